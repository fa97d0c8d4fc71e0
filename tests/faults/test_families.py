"""Servers behind wrappers, with children, grandchildren and daemons that ignore TERM.

All of them are gone within 5 seconds of the end, however that comes: the client goes, a signal, a crash of the server,
an idle server that is stopped; and within 2 seconds after our own SIGKILL, which nobody can prepare for.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app import serving
from mcp_workbench.engine.transport import child
from tests.faults.families import KINDS
from tests.faults.running_workbench import BAD_SERVER, Faults, RunningWorkbench, bad_entry, error_text
from tests.support.client import Json
from tests.support.processes import alive, command_line, describe, eventually

# The promises, and what a busy machine may add to them before a test fails.
CLOSING, KILLED = 5.0, 2.0
BUSY = 5.0


def wrapped_entry() -> Json:
    """A server behind two shells that stay, as behind `npx`."""
    command = shlex.join([sys.executable, BAD_SERVER, "--name", "bad"])
    inner = f"{command}; true"
    return {"command": "/bin/sh", "args": ["-c", f"sh -c {shlex.quote(inner)}; true"], "protocol": "legacy"}


async def family_of(workbench: RunningWorkbench, server: str = "bad") -> dict[str, int]:
    """Start the whole family of a server; who is in it."""
    found = (await workbench.value(server, "family", {"folder": str(workbench.folder / f"family of {server}")}))["pids"]
    family = {**found, "server": (await workbench.value(server, "pid"))["pid"]}
    assert set(family) == {*KINDS, "server"} and all(map(alive, family.values()))
    return {f"{server}: {name}": pid for name, pid in family.items()}


async def gone(family: dict[str, int], seconds: float) -> None:
    def left() -> list[int]:
        return [pid for pid in family.values() if alive(pid)]

    began = time.monotonic()
    try:
        await eventually(lambda: not left(), seconds + BUSY)
    except AssertionError:
        raise AssertionError(f"after {time.monotonic() - began:.1f} s:\n{describe(left())}") from None


@pytest.mark.parametrize("end", ["EOF", "SIGTERM", "SIGINT", "SIGKILL"])
async def test_everything_that_servers_started_ends_with_us(faults: Faults, end: str) -> None:
    async with faults.serving({"bad": bad_entry(), "wrapped": wrapped_entry()}) as workbench:
        family = {**await family_of(workbench), **await family_of(workbench, "wrapped")}
        workbench.is_over = True
        workbench.status_at_end = -signal.SIGKILL if end == "SIGKILL" else 0
        if end == "EOF":
            workbench.process.close_stdin()
        else:
            os.kill(workbench.pid, getattr(signal, end))
        await gone(family, KILLED if end == "SIGKILL" else CLOSING)


async def test_stubborn_families_with_calls_under_way_are_gone_in_time_too(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(), "wrapped": wrapped_entry()}) as workbench:
        family = {**await family_of(workbench), **await family_of(workbench, "wrapped")}
        calls = [await workbench.start(server, "stubborn") for server in ("bad", "wrapped")]
        workbench.is_over = True
        workbench.process.close_stdin()
        for call in calls:
            assert "was not finished" in error_text(await call.result())
        await gone(family, CLOSING)


def test_all_that_the_end_may_wait_for_fits_into_the_promise() -> None:
    """Calls that go on, and then servers that end only by force: with what a machine needs to do it."""
    needed = 0.25
    by_force = child.EOF_GRACE + child.TERM_GRACE
    assert by_force + child.KILL_GRACE <= CLOSING - needed
    assert serving.STDIO_DRAIN_TIMEOUT + by_force / 2 <= CLOSING - needed


async def test_a_crashed_server_that_ignores_its_end_is_gone_when_we_are(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        first = (await workbench.value("bad", "pid"))["pid"]
        assert "closed its output" in await workbench.failure("bad", "mute")
        # The next life has begun while the first one is still being ended.
        second = (await workbench.value("bad", "pid"))["pid"]
        assert first != second and alive(first)
        workbench.is_over = True
        workbench.process.close_stdin()
        await gone({"first": first, "second": second}, CLOSING)


@pytest.mark.parametrize("how", ["killed", "idle"])
async def test_everything_a_server_started_ends_with_it(faults: Faults, how: str) -> None:
    settings: dict[str, Any] = {"idleTimeout": 0.5} if how == "idle" else {}
    async with faults.serving({"bad": bad_entry(**settings)}) as workbench:
        family = await family_of(workbench)
        if how == "killed":
            os.kill(family["bad: server"], signal.SIGKILL)
        await gone(family, CLOSING)
        await workbench.others_work()
        assert await workbench.value("bad", "count") == {"count": 1}


async def test_orphans_are_no_zombies_while_we_run(faults: Faults) -> None:
    """A daemon that ends long before its server is buried at once: it came to us when its parent ended."""
    async with faults.serving({"bad": bad_entry()}) as workbench:
        family = await family_of(workbench)
        daemon = family["bad: daemon"]
        os.kill(daemon, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{daemon}").exists(), what="the burial of the daemon")
        assert await workbench.value("bad", "count") == {"count": 1}


async def test_no_kill_of_ours_reaches_somebody_else(faults: Faults) -> None:
    """A stranger with our mark's name but another value in its environment is left alone."""
    stranger = await asyncio.create_subprocess_exec(
        "sleep", "60", env={**os.environ, "MCP_WORKBENCH_PROCESS": "1-somebody/1;"}, start_new_session=True
    )
    try:
        async with faults.serving({"bad": bad_entry()}) as workbench:
            family = await family_of(workbench)
            workbench.is_over = True
            workbench.status_at_end = -signal.SIGKILL
            os.kill(workbench.pid, signal.SIGKILL)
            await gone(family, KILLED)
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.parametrize("end", ["idle", "EOF", "SIGTERM", "SIGKILL"])
async def test_a_daemon_that_left_its_group_and_shed_its_environment_ends_too(faults: Faults, end: str) -> None:
    """With its server when that is stopped, with us, and after our SIGKILL: it still carries the tag of its server."""
    settings: dict[str, Any] = {"idleTimeout": 2} if end == "idle" else {}
    async with faults.serving({"bad": bad_entry(**settings)}) as workbench:
        path = faults.path("unmarked")
        await workbench.value("bad", "family", {"folder": str(path), "unmarked": True})
        daemon = int(path.read_text())
        await eventually(lambda: command_line(daemon) == "sleep 600", what="its clean environment")
        assert b"MCP_WORKBENCH" not in Path(f"/proc/{daemon}/environ").read_bytes()
        if end != "idle":
            workbench.is_over = True
            workbench.status_at_end = -signal.SIGKILL if end == "SIGKILL" else 0
            if end == "EOF":
                workbench.process.close_stdin()
            else:
                os.kill(workbench.pid, getattr(signal, end))
        await gone({"daemon": daemon}, KILLED if end == "SIGKILL" else CLOSING)
