"""How many files this process and its servers may open, and how many they have room for at once.

The usual soft limit of 1,024 is for programs that use `select`. Whoever serves many clients raises it at start, as far
as the system allows; servers get back what we were given, because they may be such programs.

Linux gives a process a table of 64 descriptors and doubles it when it is full. While threads share it, each time takes
5 to 15 ms: the kernel waits until no processor looks at the old one (`synchronize_rcu`). A server in Node has a hundred
modules open at once as it starts, and would wait twice. A new process gets a table as large as its parent needs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

# Ten thousand connections, and as much again for servers. More would slow down programs that close every possible
# descriptor when they start.
MAX_OPEN_FILES: Final = 65_536

# A descriptor that makes the table one of 256, which takes 2 KB.
HIGH_DESCRIPTOR: Final = 255

# What we were given, if we have raised it.
_given: tuple[int, int] | None = None


def raise_limit() -> None:
    """Raise the soft limit on open files."""
    global _given
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _given = (soft, hard)


def give_back(pid: int) -> None:
    """Give a process that we have started the limit that we were given."""
    if _given is None:
        return
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        # Linux alone has it; elsewhere servers inherit ours.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)


def high_descriptor() -> int | None:
    """Open a descriptor so high that a process started now has room for many. None: the system allows no such one."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            return fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
        finally:
            os.close(nothing)
    return None


@contextlib.contextmanager
def room_for_many() -> Iterator[None]:
    """What is started in this context has room for many descriptors."""
    high = high_descriptor()
    try:
        yield
    finally:
        if high is not None:
            os.close(high)
