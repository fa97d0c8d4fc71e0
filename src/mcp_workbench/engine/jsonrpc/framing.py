"""Newline framing, sans-I/O.

Owns message boundaries. Knows nothing about the content of a line: it splits bytes, so that one line of invalid UTF-8
cannot break the whole stream.
"""

from __future__ import annotations

# Programs on Windows write it before UTF-8; to JSON it is not white space.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# As a number: to look for bytes in bytes takes ten times as long.
NEWLINE = 0x0A
# How much of the start and of the end of an oversized line is kept, to find the request that it answers: servers write
# the id either among the first members or as the last one.
KEPT_OF_OVERSIZED = 512
# A peer that writes byte by byte would make each byte an object, which takes forty times the memory. Parts smaller than
# this are joined as soon as there are this many of them.
SMALL_PART = 1024
MAX_SMALL_PARTS = 1024


class Oversized:
    """The start and end of a line that exceeded the limit."""

    __slots__ = ("head", "size", "tail")

    def __init__(self, head: bytes, tail: bytes, size: int) -> None:
        self.head = head
        self.tail = tail
        self.size = size


class LongLine:
    """The parts of a complete line that is so long that joining it takes noticeable time."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))

    def join(self) -> bytes:
        """Join the parts. Other threads can run meanwhile: Python releases the GIL to join a megabyte or more."""
        return b"".join(self.parts)


class LineSplitter:
    """Cuts a byte stream into lines in time linear in its length.

    Only new bytes are searched for a newline, and a long line is joined once, when it is complete. Lines longer than
    `limit` are discarded as they arrive and never stored; what is kept of them is in `oversized`. A line of more than
    `long` bytes is not joined: it is put into `long_line`, and precedes the lines that are returned.
    """

    __slots__ = ("_limit", "_long", "_parts", "_size", "_small_parts", "_start", "long_line", "oversized")

    def __init__(self, limit: int, long: int | None = None) -> None:
        self._limit = limit
        self._long = limit if long is None else long
        self._parts: list[bytes] = []
        self._size = 0
        # How many parts at the end of the list are small.
        self._small_parts = 0
        # The first bytes of the stream, until it is clear whether they are a byte order mark.
        self._start: bytes | None = b""
        self.long_line: LongLine | None = None
        self.oversized: list[Oversized] = []

    def sole_line(self, data: bytes) -> bytes | None:
        """The line that these bytes are, without its newline, if they are exactly one: nearly always. Else None, and
        they have to be fed."""
        if self._size or self._start is not None or data[-1:] != b"\n" or len(data) > self._limit:
            return None
        line = data[:-1]
        return None if NEWLINE in line else line

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the lines they complete, without their newlines."""
        if self._start is not None:
            data = self._without_mark(self._start, data)
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._size:
            self._hold(lines[0])
            is_long = self._long < self._size <= self._limit
            if is_long:
                self._set_aside()
            joined = None if is_long else self._take()
            if joined is None:
                del lines[0]
            else:
                lines[0] = joined
        if rest:
            self._hold(rest)
        if len(data) > self._limit:
            lines = self._drop_too_long(lines)
        return lines

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes of an incomplete line have arrived."""
        return self._size

    def finish(self) -> bytes | None:
        """The stream has ended: return the incomplete last line, if any."""
        return self._take() if self._size else None

    def discard(self) -> None:
        """Drop the bytes of an incomplete line."""
        self._size, self._parts = 0, []

    def _without_mark(self, start: bytes, data: bytes) -> bytes:
        """The start of the stream without a byte order mark, which may arrive in several parts too."""
        start += data
        if len(start) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(BYTE_ORDER_MARK)

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
            self._small_parts = self._small_parts + 1 if len(part) < SMALL_PART else 0
            if self._small_parts >= MAX_SMALL_PARTS:
                self._parts[-MAX_SMALL_PARTS:] = [b"".join(self._parts[-MAX_SMALL_PARTS:])]
                self._small_parts = 0
            return
        # Beyond the limit, keep only the start and the latest end of the line.
        seen = b"".join((*self._parts, part))
        self._parts = [seen[:KEPT_OF_OVERSIZED], seen[-KEPT_OF_OVERSIZED:]]
        self._small_parts = 0

    def _set_aside(self) -> None:
        self.long_line = LongLine(self._parts)
        self._size, self._parts, self._small_parts = 0, [], 0

    def _take(self) -> bytes | None:
        size, parts = self._size, self._parts
        self._size, self._parts, self._small_parts = 0, [], 0
        if size > self._limit:
            self.oversized.append(Oversized(parts[0], parts[-1], size))
            return None
        return b"".join(parts)

    def _drop_too_long(self, lines: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        for line in lines:
            if len(line) > self._limit:
                self.oversized.append(Oversized(line[:KEPT_OF_OVERSIZED], line[-KEPT_OF_OVERSIZED:], len(line)))
            else:
                kept.append(line)
        return kept
