"""Where the shared workbench listens: its socket and its lock, in a folder that others may clean up.

If the socket is removed while we run, nobody can reach us, and if the lock's file is, a second workbench can start. So
both are watched and made again. Owns these files; knows nothing about connections. Everything here may block.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from mcp_workbench.engine.file_watch import Fingerprint, Watched, fingerprint
from mcp_workbench.engine.process_context import LOCK, WANTED, make_private
from mcp_workbench.sharing.front.joining import is_at, listen, sign_lock, take_lock


class Displaced(Exception):
    """Another shared workbench has started meanwhile, and holds the lock."""


class SocketPlace:
    def __init__(self, listener: socket.socket, lock: int | None) -> None:
        """`lock` is the descriptor of the lock that we hold; without one, nothing is made again."""
        self._lock = lock
        self.path: str = listener.getsockname()
        self.folder = os.path.dirname(self.path)
        self._file = _identity(self.path)
        # `mcp-workbench up` leaves this file; it is gone with the folder.
        self._is_wanted = os.path.lexists(os.path.join(self.folder, WANTED))

    def watched(self, changed: Callable[[Fingerprint], None]) -> Watched:
        """Return what to watch. `changed` is called in the watching thread."""
        files = (self.path, os.path.join(self.folder, LOCK))
        return Watched(files, fingerprint(files), changed)

    def restore(self) -> socket.socket | None:
        """Make again what is missing. Returns the new socket to listen on; None if ours is in place. Raises `Displaced`
        and `OSError`."""
        if self._lock is None:
            return None
        if not is_at(self._lock, os.path.join(self.folder, LOCK)):
            make_private(self.folder)
            taken = take_lock(self.folder)
            if taken is None:
                raise Displaced
            # The descriptor stays the same for whoever closes it.
            os.dup2(taken, self._lock, inheritable=False)
            os.close(taken)
            sign_lock(self._lock)
            if self._is_wanted:
                os.close(os.open(os.path.join(self.folder, WANTED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if self._file is not None and _identity(self.path) == self._file:
            return None
        listener = socket.socket(fileno=listen(self.folder).detach())
        self._file = _identity(self.path)
        return listener

    def remove(self) -> None:
        """Remove the socket, unless it belongs to another workbench."""
        if self._file is not None and _identity(self.path) == self._file:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _identity(path: str) -> tuple[int, int] | None:
    """Return which file it is; None if there is none. The inode is not reused while the socket is open."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
