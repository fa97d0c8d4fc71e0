"""What a process and those it started weigh, as the kernel counts it.

Owns reading /proc, and `ps` where there is none. Refuses to know what the processes do.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
KIB = 1024
# Memory is given back in steps, by the allocator and by tasks that tidy up after a burst.
SETTLE_INTERVAL = 0.1
SETTLE_READINGS = 5
SETTLE_DEADLINE = 5.0


class Memory(NamedTuple):
    """Resident bytes; `pss` counts shared pages in proportion, and is unknown outside Linux."""

    rss: int
    pss: int | None


class Process(NamedTuple):
    """A process and the words it was started with."""

    pid: int
    command: tuple[str, ...]


def memory_of(pid: int) -> Memory:
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        kilobytes = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True).stdout
        return Memory(int(kilobytes) * KIB, None)
    fields = {words[0]: int(words[1]) * KIB for line in rollup.splitlines()[1:] if (words := line.split())}
    return Memory(fields["Rss:"], fields["Pss:"])


def settled_memory_of(pid: int) -> Memory:
    """Waits until several readings in a row agree, or for a bounded time."""
    deadline = time.monotonic() + SETTLE_DEADLINE
    readings = [memory_of(pid)]
    while time.monotonic() < deadline:
        time.sleep(SETTLE_INTERVAL)
        readings.append(memory_of(pid))
        if len({each.rss for each in readings[-SETTLE_READINGS:]}) == 1 and len(readings) >= SETTLE_READINGS:
            break
    return readings[-1]


def marked_processes(variable: str, value: str) -> list[Process]:
    """All our processes with this in their environment: also those that left their parent or their group."""
    if not PROC.is_dir():
        return []
    wanted = f"{variable}={value}".encode()
    found: list[Process] = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
                found.append(Process(int(entry.name), tuple(words)))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found
