"""How many files this process may open.

The usual soft limit of 1,024 is for programs that use `select`. Whoever serves many clients raises it at start, as far
as the system allows; servers get back what we were given, because they may be such programs.
"""

from __future__ import annotations

import contextlib
from typing import Final

# Ten thousand connections, and as much again for servers. More would slow down programs that close every possible
# descriptor when they start.
MAX_OPEN_FILES: Final = 65_536

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
