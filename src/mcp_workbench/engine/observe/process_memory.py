"""Memory of servers' processes, read only by whoever shows it: `top`, and the page while one is open. May block.

A server is a process group (`npx` starts `sh` starts `node`), identified by its first process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from typing import Final

# `ps` lists all processes in milliseconds.
PS_TIMEOUT: Final = 5.0


def memory_of(groups: Collection[int]) -> dict[int, int]:
    """Return the resident bytes of each process group, if they can be found out."""
    if not groups:
        return {}
    found = dict.fromkeys(groups, 0)
    for group, size in _from_proc() if os.path.isdir("/proc/self") else _from_ps():
        # Shared pages are counted for each process, as `ps` and `top` do.
        if group in found:
            found[group] += size
    return {group: size for group, size in found.items() if size}


def _from_proc() -> list[tuple[int, int]]:
    page = os.sysconf("SC_PAGE_SIZE")
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program, in brackets, may contain anything.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        # proc(5): counted after the name, field 5 is the group, field 24 the resident pages.
        found.append((int(fields[2]), int(fields[21]) * page))
    return found


def _from_ps() -> list[tuple[int, int]]:
    try:
        done = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, timeout=PS_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(int(row[0]), int(row[1]) * 1024) for row in rows if len(row) == 2]
