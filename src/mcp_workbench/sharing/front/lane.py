"""One direction of the copying: from one descriptor to another, in whole lines if they are short.

Owns the data in between, which is bounded: while some waits, nothing more is read. Does not know what is at either end.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# As in `engine.transport.pipes`: reads grow while the peer keeps them full.
SMALL_READ: Final = 64 * 1024
LARGE_READ: Final = 256 * 1024
# An unfinished line is held back up to this length, so that a peer that dies in the middle of it leaves no partial
# message. Longer ones are passed on as they arrive: they need not fit into memory.
LONGEST_HELD: Final = LARGE_READ


class Lane:
    """Bytes from `source` to `target`. Both may change when a connection is replaced."""

    __slots__ = (
        "_size",
        "_whole",
        "begun",
        "held",
        "is_mid_line",
        "read_ahead",
        "source",
        "target",
        "waiting",
        "was_mid_line",
    )

    def __init__(self, source: int, target: int, whole: bytes | None = None) -> None:
        """Lines that start with `whole` are held back until complete, however long: the source can be trusted."""
        self.source = source
        self.target = target
        self._whole = whole
        # The beginning of an unfinished line, of which nothing has been written.
        self.held = b""
        # The piece being written, from its beginning, if it did not fit, and how much of it was written.
        self.waiting = b""
        self.begun = 0
        # Whether the target has seen the beginning of an unfinished line.
        self.is_mid_line = False
        # The same before the last piece: whether that piece starts in the middle of a line.
        self.was_mid_line = False
        # Data already read from the source; the next `read` returns it.
        self.read_ahead: bytes | None = None
        self._size = SMALL_READ

    def read(self) -> bytes | None:
        """Return the data that may be passed on; None at the end. Raises `OSError`."""
        data, self.read_ahead = self.read_ahead, None
        if data is None:
            data = os.read(self.source, self._size)
        if not data:
            return None
        self.was_mid_line = self.is_mid_line
        self._size = LARGE_READ if len(data) >= SMALL_READ else SMALL_READ
        if data[-1:] == b"\n" and not self.held:
            self.is_mid_line = False
            return data
        return self._cut(data)

    def _cut(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        if end:
            ready, self.held = self.held + data[:end], data[end:]
            self.is_mid_line = False
        else:
            ready, self.held = b"", self.held + data
        if self.is_mid_line or (len(self.held) > LONGEST_HELD and self.held[:1] != self._whole):
            ready, self.held = ready + self.held, b""
            self.is_mid_line = True
        return ready

    def write(self, data: bytes) -> bool:
        """Write what `read` returned; False if some of it has to wait for the target. Raises `OSError`."""
        try:
            written = os.write(self.target, data)
        except BlockingIOError:
            written = 0
        if written == len(data):
            return True
        self.keep(data, written)
        return False

    def keep(self, data: bytes, written: int) -> None:
        """Keep what could not be written, to wait for the target."""
        self.waiting, self.begun = data, written

    def write_waiting(self) -> bool:
        """Continue writing. Returns whether nothing waits any longer. Raises `OSError`."""
        try:
            self.begun += os.write(self.target, memoryview(self.waiting)[self.begun :])
        except BlockingIOError:
            return False
        if self.begun < len(self.waiting):
            return False
        self.waiting, self.begun = b"", 0
        return True
