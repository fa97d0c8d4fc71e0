"""How a workbench is doing, as the kernel and its own status tell it: what must be the same after a fault as before.

Owns the reading of processes, descriptors, tasks, memory and processor time. Refuses to know what happened in between.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import descendants, describe, open_descriptors

PAGE = 4096
# What "memory is back" means.
MEMORY_RATIO = 1.10


@dataclass(frozen=True)
class Vitals:
    """One reading."""

    processes: frozenset[int]
    descriptors: Counter[str]
    tasks: int
    resident_bytes: int

    def leftovers(self, before: Vitals, kept_bytes: int = 0) -> list[str]:
        """What there is more of than before, or a process less; `kept_bytes` is what the C library may keep of large messages."""
        found = []
        if self.processes != before.processes:
            found.append(
                f"processes: more\n{describe(self.processes - before.processes)}\n"
                f"  fewer {sorted(before.processes - self.processes)}"
            )
        # Fewer is no leak: a connection that was kept for later may have been closed meanwhile.
        if more := self.descriptors - before.descriptors:
            found.append(f"descriptors: more {dict(more)}")
        if self.tasks > before.tasks:
            found.append(f"tasks: {self.tasks}, before {before.tasks}")
        if self.resident_bytes > before.resident_bytes * MEMORY_RATIO + kept_bytes:
            found.append(f"memory: {self.resident_bytes:,} bytes, before {before.resident_bytes:,}")
        return found


def read_vitals(pid: int, tasks: int) -> Vitals:
    """Of a process that runs; how many tasks it has only it can tell."""
    return Vitals(frozenset(descendants(pid)), descriptors_by_kind(pid), tasks, resident_bytes(pid))


def descriptors_by_kind(pid: int) -> Counter[str]:
    """Pipes, sockets and the like are counted; files are told apart by their path."""
    return Counter(re.sub(r":\[\d+\]$", "", target) for target in open_descriptors(pid).values())


def resident_bytes(pid: int) -> int:
    """Memory that is really there."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def peak_bytes(pid: int) -> int:
    """The most there has been since `forget_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(pid: int) -> None:
    """Let `peak_bytes` start anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid: int) -> float:
    """Time that the main thread has been running: unlike a stopwatch, it does not count other people's programs."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
