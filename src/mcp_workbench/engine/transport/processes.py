"""Every process has an owner: no server, and nothing a server starts, outlives us.

Servers hide behind `npx`, `uvx` and `sh`, and some fork helpers that leave their process group. Three nets catch them:

- each server leads its own process group, which is ended as a whole;
- on Linux we are a *child subreaper*: orphans among our descendants become our children, where they are found and
  identified by a mark in their environment or by their tag (`process_tag.py`), and ended;
- a small *guardian* process outlives us by a second if we die without warning, and ends all groups and everything that
  is marked or tagged. Parent-death signals would reach direct children only.

Owns the guardian, the marks and the reaping. Knows nothing about servers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.process_tag import ProcessTag

PROCESS_MARK_VARIABLE: Final = "MCP_WORKBENCH_PROCESS"
# How long killed processes may take to end.
STRAYS_TIMEOUT: Final = 1.0
IS_LINUX: Final = sys.platform.startswith("linux")
_PR_SET_CHILD_SUBREAPER: Final = 36
# Generations of processes that are killed at the very end.
MAX_KILLED_GENERATIONS: Final = 20

# `sh` rather than Python: it starts in a millisecond and uses 1 MB. It reads `+ GROUP` and `- GROUP` until its pipe
# ends, which happens when we are gone, for whatever reason.
_GUARDIAN: Final = """
trap '' INT TERM HUP QUIT PIPE
mark=$0 tag=$1
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
end() {
  for group in $groups; do kill -s "$1" -- "-$group" 2>/dev/null; done
  [ -r /proc/self/environ ] || return 0
  for found in $(grep -l -a -F "$mark" /proc/[0-9]*/environ; grep -l -F "$tag" /proc/[0-9]*/limits); do
    found=${found#/proc/}; found=${found%/*}
    [ "$found" = $$ ] || kill -s "$1" "$found" 2>/dev/null
  done
}
end TERM
sleep 0.4
end KILL
sleep 0.2
end KILL
"""


class ProcessTable:
    """All processes that this workbench has started."""

    def __init__(self) -> None:
        self._instance = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._started = 0
        self.is_prepared = False
        self._foreign: frozenset[int] = frozenset()
        self._spared: list[subprocess.Popen[bytes]] = []
        self._guardian: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        # Whether servers have only half of the usual time to end, because most of our own has passed.
        self.is_hurried = False

    @cached_property
    def _tag(self) -> ProcessTag:
        # Imported with the first server: starting up does not need it.
        from mcp_workbench.engine.transport.process_tag import ProcessTag

        return ProcessTag()

    def prepare(self) -> None:
        """Prepare once, before the first server starts, to keep this off the start-up path."""
        if not self.is_prepared:
            self.is_prepared = True
            # Children of the process that became us by `exec`, such as a wrapper script: not ours.
            self._foreign = frozenset(_children())
            _become_subreaper()
        if self._guardian is None or self._guardian.poll() is not None:
            self.close()
            self._start_guardian()

    def mark(self) -> str:
        """A unique value for `PROCESS_MARK_VARIABLE` in the environment of the next server."""
        self._started += 1
        return f"{self._instance}/{self._started};"

    def tagging(self, mark: str) -> contextlib.AbstractContextManager[None]:
        """The context in which the server with this mark is started."""
        return self._tag.applied(_serial(mark))

    def add(self, group: int) -> None:
        """A server was started as the leader of this process group."""
        self._groups.add(group)
        self._notify_guardian(f"+ {group}\n")

    def remove(self, group: int) -> None:
        """The whole group has ended."""
        self._groups.discard(group)
        self._notify_guardian(f"- {group}\n")

    def spare(self, process: subprocess.Popen[bytes]) -> None:
        """This process cleans up after a server, and outlives us if it must."""
        self._spared = [each for each in self._spared if each.poll() is None]
        self._spared.append(process)

    def strays(self, mark: str | None = None) -> list[int]:
        """Orphans that lead none of our groups; with `mark`, only those of that server. Linux only."""
        found = []
        for pid in _children():
            if pid in self._groups or pid in self._foreign or (self._guardian and pid == self._guardian.pid):
                continue
            if any(each.pid == pid and each.returncode is None for each in self._spared):
                continue
            if mark is None or self._is_marked(pid, mark):
                found.append(pid)
        return found

    def is_clear_of(self, mark: str) -> bool:
        """Whether no orphan has this mark, or might have it but cannot be read right now."""
        return all(self._is_marked(pid, mark) is False for pid in self.strays())

    def _is_marked(self, pid: int, mark: str) -> bool | None:
        """Whether it has the mark or the tag; None if unknown."""
        return self._tag.is_on(pid, _serial(mark)) or _has_mark(pid, mark)

    def reap_strays(self) -> None:
        """Collect orphans that have ended, so that they do not remain zombies."""
        for pid in self.strays():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def kill_strays(self) -> None:
        """Kill all remaining strays, at the very end."""
        # Not waited for one by one: a process of another user, or one blocked on a disk, could take forever.
        end = time.monotonic() + STRAYS_TIMEOUT
        # The children of a stray become ours when it is gone.
        for _ in range(MAX_KILLED_GENERATIONS):
            strays = self.strays()
            if not strays:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            while self._has_unreaped(strays) and time.monotonic() < end:
                time.sleep(0.005)

    def _has_unreaped(self, strays: list[int]) -> bool:
        left = False
        for pid in strays:
            with contextlib.suppress(ChildProcessError):
                left = os.waitpid(pid, os.WNOHANG)[0] == 0 or left
        return left

    def kill_all(self) -> None:
        """Kill every group and every stray now, because there is no time left."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        self.kill_strays()

    def close(self) -> None:
        """End the guardian. All groups have ended by now."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        # Everything it would look for is gone.
        guardian.kill()
        if guardian.stdin:
            guardian.stdin.close()
        # It was killed, and only has to be reaped.
        with contextlib.suppress(subprocess.TimeoutExpired):
            guardian.wait(STRAYS_TIMEOUT)

    def _start_guardian(self) -> None:
        if sys.platform == "win32":
            return
        try:
            # Without a tag, so that neither it nor the guardian of an outer workbench finds it.
            with self._tag.cleared():
                self._guardian = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARDIAN, f"{PROCESS_MARK_VARIABLE}={self._instance}/", self._tag.prefix],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                    bufsize=0,
                )
        except OSError:
            self._guardian = None
            return
        for group in self._groups:
            self._notify_guardian(f"+ {group}\n")

    def _notify_guardian(self, line: str) -> None:
        if self._guardian is not None and self._guardian.stdin is not None:
            # A guardian that was killed is replaced before the next start.
            with contextlib.suppress(OSError):
                self._guardian.stdin.write(line.encode())


def _become_subreaper() -> None:
    if not IS_LINUX:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[int]:
    if not IS_LINUX:
        return []
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except (OSError, ValueError):
        return []


def _serial(mark: str) -> int:
    return int(mark.rpartition("/")[2].rstrip(";"))


def _has_mark(pid: int, mark: str) -> bool | None:
    """Whether it has this mark. None if unknown, because the process is in the middle of `exec` or exit."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if environment:
            return f"{PROCESS_MARK_VARIABLE}={mark}".encode() in environment
        # Field 51 of `stat` is where the environment ends; 0 means that there is none yet, or no longer one.
        with open(f"/proc/{pid}/stat", "rb") as file:
            return None if file.read().rpartition(b")")[2].split()[48] == b"0" else False
    except ProcessLookupError:
        return None
    except OSError:
        return False
