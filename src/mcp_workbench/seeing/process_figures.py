"""Memory, files and CPU time of processes, read from Linux' `/proc` when somebody asks; elsewhere what Python knows.

A server is a process and all that it has started (`npx` starts `sh` starts `node`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from mcp_workbench.seeing.metrics import ProcessFacts

# Of one server. A server that starts more is not measured further.
MAX_PROCESSES: Final = 256
_IMPORTED_AT: Final = time.time()


class ProcessTree(NamedTuple):
    """A process with everything that it has started."""

    memory: int
    processes: int


def tree_of(pids: Iterable[int]) -> ProcessTree | None:
    """The processes that these have started, with them; None if that cannot be found out."""
    page, memory, found = os.sysconf("SC_PAGE_SIZE"), 0, 0
    left = list(pids)
    while left and found < MAX_PROCESSES:
        pid = left.pop()
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                memory += int(file.read().split()[1]) * page
            with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
                left += map(int, file.read().split())
        except (OSError, ValueError, IndexError):
            # It has ended, or this is not Linux.
            continue
        found += 1
    return ProcessTree(memory, found) if found else None


def own_process(started_at: float = _IMPORTED_AT) -> ProcessFacts:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    facts = ProcessFacts(
        cpu_seconds=used.ru_utime + used.ru_stime,
        started_at=started_at,
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = (int(each) * os.sysconf("SC_PAGE_SIZE") for each in file.read().split()[:2])
        return facts._replace(memory=resident, virtual_memory=virtual, open_files=len(os.listdir("/proc/self/fd")))
    except (OSError, ValueError):
        return facts
