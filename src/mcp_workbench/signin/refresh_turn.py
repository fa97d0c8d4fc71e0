"""The turn of one process to refresh one sign-in: a lock across processes, a note about the token, room for the answer.

A refresh token often works once, so it must never be sent again after it was exchanged. The lock file says what became
of the one that was sent last:

- `sent`: a process has sent it, or is about to. If the lock is free, that process ended without an answer, and only
  another attempt can tell whether the token still works.
- `used`: it was exchanged. If the lock is free, the answer was lost with the process.
- `kept`: the same, and storing the answer failed. As long as the lock is held, it is in that process's memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import Final

_SENT_STATE: Final = b"sent"
_USED_STATE: Final = b"used"
_KEPT_STATE: Final = b"kept"
_REFRESH_NOTE_BYTES: Final = 4 + 1 + 64


class RefreshTurn:
    """Held while a sign-in is refreshed, and for as long as its new tokens are only in memory."""

    __slots__ = ("_descriptor", "_is_answered", "is_busy", "is_kept", "name", "room")

    def __init__(self, name: str, descriptor: int, room: str) -> None:
        self.name = name
        # A file as large as the answer will need, which becomes the new store.
        self.room = room
        self.is_busy = True
        self.is_kept = False
        self._is_answered = False
        self._descriptor = descriptor

    def was_exchanged(self, refresh_token: str) -> bool:
        """Whether an earlier process exchanged this token and lost the answer."""
        state, _, mark = _note(self._descriptor).partition(b" ")
        return not self.is_kept and state in (_USED_STATE, _KEPT_STATE) and mark == _mark(refresh_token)

    def prepare(self, refresh_token: str, size: int) -> None:
        """Write down that the token is about to be sent, and reserve room for the answer. Raises `OSError`."""
        self._is_answered = False
        if self.is_kept:
            # The token on disk was exchanged long ago; this one is in memory alone, and there is no room.
            return
        with open(os.open(self.room, _CREATE_FLAGS, 0o600), "wb") as file:
            # Random, because some file systems store zeros in no space at all.
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
        os.pwrite(self._descriptor, _SENT_STATE + b" " + _mark(refresh_token), 0)
        os.fsync(self._descriptor)

    def answered(self) -> None:
        """The token was exchanged, or is known to be dead: it must not be sent again."""
        self._is_answered = True
        if not self.is_kept:
            os.pwrite(self._descriptor, _USED_STATE, 0)

    def keep(self) -> bool:
        """The answer cannot be stored: hold the lock until it can. False if the token still works."""
        if self._is_answered and not self.is_kept:
            self.is_kept = True
            os.pwrite(self._descriptor, _KEPT_STATE, 0)
        return self.is_kept

    def settle(self) -> None:
        """The answer is stored, or the token was not exchanged."""
        self.is_kept = False
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)

    def give_up_room(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.room)

    def close(self) -> None:
        """Unlock."""
        self.give_up_room()
        os.close(self._descriptor)


def is_kept(descriptor: int) -> bool:
    """Whether the process that holds the lock has tokens that it cannot store."""
    return _note(descriptor).startswith(_KEPT_STATE)


def try_lock(descriptor: int) -> bool:
    try:
        # Polled, because a blocking `flock` can be neither bounded nor cancelled.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _note(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, _REFRESH_NOTE_BYTES, 0)
    except OSError:
        return b""


def _mark(refresh_token: str) -> bytes:
    return hashlib.sha256(refresh_token.encode()).hexdigest().encode()


_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
