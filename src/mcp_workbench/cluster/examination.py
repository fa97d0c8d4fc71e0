"""Looks at a cluster from outside: its instances, its state server, the clocks and the key. For commands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode

from mcp_workbench.cluster.seal import Seal, read_key
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.cluster.valkey_link import StateAway, ValkeyLink, printable
from mcp_workbench.engine.config.cluster_settings import ClusterConfig
from mcp_workbench.engine.lasting_state import INSTANCE

# Values carry the time until which they are valid, the shortest some seconds.
MAX_CLOCK_DIFFERENCE: Final = 5.0
MIN_STATE_SERVER_VERSION: Final = 7
LATENCY_LIMIT: Final = 0.05


class InstanceFacts(Struct, rename="camel"):
    """What an instance says of itself, once a second."""

    instance: str
    host: str = ""
    pid: int = 0
    version: str = ""
    address: str | None = None
    users: int = 0
    sessions: int = 0
    calls: int = 0
    started_at: float = 0.0
    at: float = 0.0
    latency_seconds: float | None = None


class ClusterReport(Struct, rename="camel"):
    state: str
    instances: list[InstanceFacts] = []
    server: str | None = None
    latency_seconds: float | None = None
    clock_difference_seconds: float | None = None
    used_bytes: int | None = None
    is_own_key: bool = True
    # Each with what to do about it.
    problems: list[tuple[str, str]] = []


def open_state(
    config: ClusterConfig, folder: str, password: str | None, describe: Callable[[], bytes] = bytes
) -> ClusterState:
    """`folder`: where relative paths start. `describe`: what its heartbeat says of us. Raises `ConfigError`."""
    key = read_key(os.path.join(folder, os.path.expanduser(config.key.file)))
    link = ValkeyLink(config.state, password)
    refuses = config.when_away == "refuse"
    return ClusterState(link, Seal(key, config.name), config.name, refuses_when_away=refuses, describe=describe)


async def examine(config: ClusterConfig, folder: str, password: str | None) -> ClusterReport:
    """Raises `ConfigError`."""
    state = open_state(config, folder, password)
    link = state.link
    report = ClusterReport(link.address)
    try:
        await link.run([("PING",)], is_probe=True)
        # Once more: the first one has connected.
        before = time.time()
        clock, about, memory, mark = await link.run(
            [("TIME",), ("INFO", "server"), ("INFO", "memory"), ("GET", state.key_mark_at)]
        )
        report.latency_seconds = link.latency
        # Within the round trip, wherever in it the server has looked at its clock.
        middle = (before + time.time()) / 2
        try:
            theirs = int(clock[0]) + int(clock[1]) / 1e6
        except (TypeError, ValueError, LookupError):
            raise link.away() from None
        report.clock_difference_seconds = round(theirs - middle, 3)
        report.server = _server_of(about)
        report.is_own_key = state.is_own_key(mark)
        used = memory.get("used_memory", 0) if isinstance(memory, dict) else None
        report.used_bytes = used if isinstance(used, int) else None
        for value in (await state.find_all(INSTANCE, "")).values():
            try:
                report.instances.append(decode(value, type=InstanceFacts))
            except MsgspecError:
                continue
    except StateAway as error:
        hint = "check the address, the password, the network and the server; calls go on without it"
        report.problems.append((f"the state server at {link.address} cannot be used: {error}", hint))
    finally:
        await link.close()
    report.instances.sort(key=lambda each: (each.host, each.address or "", each.instance))
    report.problems += _judged(report)
    return report


def _server_of(about: object) -> str | None:
    if not isinstance(about, dict):
        return None
    name = about.get("server_name") or "redis"
    return printable(f"{name} {about.get('valkey_version') or about.get('redis_version')}")


def _judged(report: ClusterReport) -> list[tuple[str, str]]:
    found = []
    difference = report.clock_difference_seconds or 0.0
    if abs(difference) > MAX_CLOCK_DIFFERENCE:
        text = f"the clock of the state server differs from this machine's by {abs(difference):.1f} s"
        found.append((text, "synchronise the clocks of all machines (chrony, systemd-timesyncd)"))
    if not report.is_own_key:
        text = "other instances use the cluster's state under this name with another key"
        found.append((text, "give all instances the same key, or the cluster another `name`"))
    if (report.latency_seconds or 0.0) > LATENCY_LIMIT:
        text = f"the state server takes {1000 * (report.latency_seconds or 0):.0f} ms to answer"
        found.append((text, "run it near the instances; after 200 ms it counts as away"))
    version = (report.server or "").rpartition(" ")[2].partition(".")[0]
    if version.isdecimal() and int(version) < MIN_STATE_SERVER_VERSION:
        found.append((f"the state server is {report.server}", "Valkey 7.2 and Redis 7, or later, are supported"))
    return found
