"""What the kernel says about processes and descriptors, read from /proc.

Owns the questions that tests about process life ask. Linux only; a zombie counts as gone, because all that is left
of it is an exit status that its parent has not fetched.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable

# From <linux/prctl.h>.
PR_SET_CHILD_SUBREAPER = 36
POLL_INTERVAL = 0.02
# What a busy machine may take for anything that is waited for. Only a test that fails waits for so long.
PATIENCE = 45.0


def available() -> bool:
    return sys.platform == "linux"


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold spaces and parentheses of its own.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[1])


def alive(pid: int) -> bool:
    found = _state_and_parent(pid)
    return found is not None and found[0] not in "ZX"


def has_children() -> bool:
    """Whether this process has any, zombies included. One that adopts orphans and has none has no descendants."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(pid: int) -> set[int]:
    """Everything below `pid` that lives, at any depth."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _state_and_parent(int(entry))) is not None:
            children.setdefault(found[1], []).append(int(entry))
    found_below: set[int] = set()
    unseen = [pid]
    while unseen:
        below = children.get(unseen.pop(), [])
        found_below.update(below)
        unseen.extend(below)
    return {child for child in found_below if alive(child)}


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "(gone)"


def open_descriptors(pid: int | None = None) -> dict[int, str]:
    """Descriptor -> what it points at, of this process or another."""
    folder = f"/proc/{os.getpid() if pid is None else pid}/fd"
    found: dict[int, str] = {}
    for entry in os.listdir(folder):
        try:
            found[int(entry)] = os.readlink(f"{folder}/{entry}")
        except FileNotFoundError:
            # The descriptor that lists the folder is itself in the list.
            continue
    return found


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent dies, so that `descendants` still finds them."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_zombies() -> None:
    """Fetch the exit status of orphans that came to us and ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def wait_until(predicate: Callable[[], bool], timeout: float = PATIENCE, what: str = "the condition") -> None:
    """Poll until `predicate()` holds: for what cannot be waited for, such as processes that are not our children."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {timeout} s")
        time.sleep(POLL_INTERVAL)


async def eventually(predicate: Callable[[], bool], timeout: float = PATIENCE, what: str = "the condition") -> None:
    """`wait_until` for async tests: the event loop goes on meanwhile."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {timeout} s")
        await asyncio.sleep(POLL_INTERVAL)


def describe(pids: Iterable[int]) -> str:
    return "\n".join(f"  {pid}: {command_line(pid)}" for pid in sorted(pids))
