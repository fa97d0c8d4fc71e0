"""A number that a process and all its descendants carry, whatever they do to their environment, files and groups.

Resource limits are inherited by fork and exec, and no program touches `RLIMIT_RTTIME`, how long a real-time process may
compute without a pause: it is unlimited by default, irrelevant to other processes, and has room for nineteen digits.
Ours are twelve for a workbench and six for a server. A daemon that starts with a clean environment keeps it, and where
system calls are filtered nobody can take it off (`seccomp`).

Linux only; elsewhere processes are not tagged. Owns the numbers. Knows nothing about what is done to tagged processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

IS_LINUX: Final = sys.platform.startswith("linux")
_FIRST: Final = 10**18
_SERVERS_PER_INSTANCE: Final = 10**6


class ProcessTag:
    """The tags of one workbench's servers."""

    def __init__(self) -> None:
        self._instance = 1 + int.from_bytes(os.urandom(8), "big") % (10**12 - 1)

    @property
    def prefix(self) -> str:
        """The common prefix of the tags of all servers, as shown in `/proc/PID/limits`."""
        return f" {_FIRST // _SERVERS_PER_INSTANCE + self._instance}"

    def number(self, server: int) -> int:
        return _FIRST + self._instance * _SERVERS_PER_INSTANCE + server % _SERVERS_PER_INSTANCE

    def is_on(self, pid: int, server: int) -> bool:
        """Whether this process descends from that server."""
        try:
            with open(f"/proc/{pid}/limits") as file:
                return f" {self.number(server)} " in file.read()
        except OSError:
            return False

    def applied(self, server: int) -> contextlib.AbstractContextManager[None]:
        """Tag processes started within this context."""
        return _limited(self.number(server))

    @staticmethod
    def cleared() -> contextlib.AbstractContextManager[None]:
        """Start processes without a tag, not even that of an outer workbench."""
        return _limited(_FIRST)


@contextlib.contextmanager
def _limited(value: int) -> Iterator[None]:
    if not IS_LINUX:
        yield
        return
    # Imported here to keep it off the start-up path.
    import resource

    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (value, before[1]))
    except (ValueError, OSError):
        # There is a hard limit that we may not exceed. The other marks remain.
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, before)
