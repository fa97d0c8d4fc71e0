"""What only POSIX has, and what stands for it elsewhere: flags of `os.open`, and whose a file is.

Descriptors of Python are not inherited, so `O_CLOEXEC` is needed nowhere. Front ends load this, so it imports next to
nothing.
"""

from __future__ import annotations

import os

# A named pipe in the place of a file would otherwise block until somebody writes to it.
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)


def is_own(found: os.stat_result) -> bool:
    """Whether a file is the user's. Windows says nothing of it: there, folders of users are closed to others."""
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def user_id() -> int:
    """Return the user's id; 0 where users have none."""
    return os.getuid() if hasattr(os, "getuid") else 0
