"""What is known of a run, at any moment of it: the report can be written whenever somebody wants it.

Owns the facts and the verdict. Refuses to know how they came about and how they are shown.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import mcp_workbench
from mcp_workbench.engine.transport.allocator import KEPT_BYTES
from soak.accounts import Accounts
from soak.samples import Reading, Samples

# What "flat" means: the end of the run against the time when everybody had arrived, beside what is kept on purpose
# from the first large messages on.
MAX_DRIFT = 1.10
# A shorter run is still warming up, and a large message may fill all of its last tenth.
MIN_JUDGED = 120.0
# One server in so many is at an address.
REMOTES_ONE_IN = 5
# A workbench over stdio is not read meanwhile: its beginning at rest has no load to show yet what it takes.
MAX_STDIO_GROWTH = 1.25


@dataclass(frozen=True)
class Settings:
    """How large a run is."""

    minutes: float
    clients: int
    servers: int
    stdio: int
    pause: float
    kill_pause: float
    large_pause: float

    @property
    def remotes(self) -> int:
        """How many of the servers are at an address."""
        return self.servers // REMOTES_ONE_IN


@dataclass(frozen=True)
class Ended:
    """A workbench over stdio, from its first reading to its end."""

    before: Reading
    after: Reading


@dataclass
class Record:
    """One run. Filled in while it goes on."""

    settings: Settings
    samples: Samples
    accounts: Accounts = field(default_factory=Accounts)
    machine: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    arrivals: int = 0
    kills: int = 0
    stops: int = 0
    # The same for servers at an address.
    remote_kills: int = 0
    remote_stops: int = 0
    remote_restarts: int = 0
    large: Counter[tuple[int, str]] = field(default_factory=Counter)
    # Every server up, nobody calling: before the crowd came, and after it had gone.
    before: Reading | None = None
    after: Reading | None = None
    stdio: list[Ended] = field(default_factory=list)
    # Calls that servers saw; and those at an address among them.
    noted: int | None = None
    remote_noted: int | None = None
    repeated: int | None = None
    # What must not be, beside what the accounts and the readings say.
    problems: list[str] = field(default_factory=list)
    is_over: bool = False
    is_interrupted: bool = False

    def verdict(self) -> list[str]:
        """Everything that does not hold."""
        accounts, found = self.accounts, list(self.problems)
        found += [f"wrong: {each}" for each in accounts.wrong[:20]]
        if self.is_over and accounts.under_way:
            found.append(f"{accounts.under_way} calls have no end")
        if self.repeated:
            found.append(f"{self.repeated} calls reached a server twice")
        if self.noted is not None and self.noted < accounts.answered - self.large.total():
            found.append(f"{accounts.answered:,} calls were answered, but servers saw {self.noted:,}")
        if self.samples.all and self.seconds >= MIN_JUDGED:
            early, late = self.samples.drift(lambda sample: sample.memory)
            if late > early * MAX_DRIFT + KEPT_BYTES:
                found.append(f"memory grew from {early / 1e6:.1f} to {late / 1e6:.1f} MB")
        if self.before is not None and self.after is not None:
            found += _left(self.before, self.after)
        for number, ended in enumerate(self.stdio, 1):
            found += [f"stdio {number}: {each}" for each in _left(ended.before, ended.after)]
            if ended.after.memory > ended.before.memory * MAX_STDIO_GROWTH:
                was, now = ended.before.memory / 1e6, ended.after.memory / 1e6
                found.append(f"stdio {number}: memory grew from {was:.1f} to {now:.1f} MB")
        return found + self._missing() if self.is_over else found

    def _missing(self) -> list[str]:
        """What a run must have done before it can be said that anything held."""
        accounts = self.accounts
        happened = {
            "no call was answered": accounts.answered,
            "no call failed: the kills met none": accounts.failed,
            "no call was cancelled": accounts.cancelled,
            "no server was killed": self.kills,
            "no server was stopped for a while": self.stops,
            "no large message passed": self.large.total(),
            "no reading was taken": len(self.samples.all),
            "no reading was taken before anybody came": self.before is not None,
            "no reading was taken after everybody had gone": self.after is not None,
            "nobody asked the servers what they saw": self.noted is not None,
        }
        if self.settings.remotes:
            happened |= {
                "no call reached a server at an address": self.remote_noted or 0,
                "no server at an address was killed": self.remote_kills,
                "no server at an address was started again": self.remote_restarts,
                "no server at an address was stopped for a while": self.remote_stops,
            }
        found = [words for words, count in happened.items() if not count]
        if len(self.stdio) < self.settings.stdio:
            found.append(f"{len(self.stdio)} of {self.settings.stdio} workbenches over stdio came to a last reading")
        return found


def _left(before: Reading, after: Reading) -> list[str]:
    """What there is more of at rest."""
    names = ("descriptors", "tasks", "calls_in_flight")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return [
        f"{name.replace('_', ' ')}: {now} when everybody had gone, {was} before they came"
        for name, was, now in pairs
        if now > was
    ]


def describe_machine() -> dict[str, str]:
    """Where it ran: figures mean nothing without it."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version() + (" (debug)" if hasattr(sys, "gettotalrefcount") else ""),
        "MCP Workbench": mcp_workbench.__version__,
        "load before": f"{os.getloadavg()[0]:.2f}",
    }
