"""Files that are replaced whole or not at all, and locks that one process holds at a time.

Owns drafts and waiting. Knows nothing about what is in a file, nor what a failure means to its user.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from typing import Final

PRIVATE_FILE_MODE: Final = 0o600
# Another process holds such a lock for milliseconds.
_FILE_LOCK_POLL_INTERVAL: Final = 0.02


def replace_whole(
    path: str,
    content: bytes,
    *,
    mode: int = PRIVATE_FILE_MODE,
    is_durable: bool = False,
    keeps_mode: bool = False,
    check: Callable[[], None] = lambda: None,
) -> os.stat_result:
    """Write a draft and rename it; returns what is known of the file. Raises `OSError`, and what `check` raises, which
    is called before the rename: the file is then as it was, and no draft is left beside it.

    It gets this `mode`, by default for the user alone, unless `keeps_mode` says that a file already there decides.
    `is_durable`: on the disk before the rename, as the new name could otherwise have no content after a power failure.
    """
    # A name of its own for each writer: the last rename wins, and every content is whole.
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.new"
    if keeps_mode:
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(path).st_mode)
    try:
        # `O_EXCL`: never through a link that others have put there. Private until all is written, whatever the umask.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o700 | 0o200)
        with open(descriptor, "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(descriptor)
            written = os.fstat(descriptor)
        check()
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    return written


def lock(descriptor: int, seconds: float) -> None:
    """Lock an open file until it is closed; systems without such locks have none. Raises `BlockingIOError` if another
    process holds it for longer."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        return
    until = time.monotonic() + seconds
    while True:
        try:
            # Unlike `fcntl` locks, it does not end when another descriptor of the same file is closed; like them, it
            # ends with the process, so a crash leaves no stale lock behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_FILE_LOCK_POLL_INTERVAL)
