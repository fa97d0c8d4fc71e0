"""Server-sent events, sans-I/O: a parser that is fed pieces of any size, and an encoder.

Follows "Interpreting an event stream" of the HTML standard. Owns where events begin and end; knows nothing about their
content. Takes time linear in its input: only new bytes are searched, and a long line is joined once.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mcp_workbench.engine.transport.pieces import Pieces

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# A line of data is longer than the data by the name of its field.
FIELD_OVERHEAD: Final = len(b"data: ")
# `retry` is in milliseconds; nine digits are eleven days, and a million digits would be an attack on `int`.
MAX_RETRY_DIGITS: Final = 9
# Sent as a header when a stream is resumed, so it must fit into one.
MAX_RESUMABLE_ID_LENGTH: Final = 1024

KEEP_ALIVE: Final = b":\n\n"


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One event. `id` is the stream's last event id, which may come from an earlier event."""

    data: bytes
    type: str
    id: str


class SseParser:
    """Splits a byte stream into events.

    An event larger than `limit`, or a line that could only belong to one, ends the parsing: `overflowed` is then true,
    earlier events have been returned, and the rest is ignored.
    """

    __slots__ = (
        "_after_return",
        "_data",
        "_has_data",
        "_held",
        "_limit",
        "_start",
        "_type",
        "last_id",
        "overflowed",
        "retry",
    )

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The first bytes until it is known whether they are a byte order mark; then None.
        self._start: bytes | None = b""
        self._after_return = False
        self._held = Pieces()
        self._data = Pieces()
        # Whether the event has data, which may be empty.
        self._has_data = False
        self._type = ""
        self.last_id = ""
        # The server's reconnection time in milliseconds, if it sent one.
        self.retry: int | None = None
        self.overflowed = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Parse a chunk and return the events that it completes. An unfinished event at the end is dropped."""
        if self._start is not None:
            chunk = self._without_mark(chunk)
        if not chunk or self.overflowed:
            return []
        if self._after_return:
            self._after_return = False
            # The second half of a CRLF that was split between two chunks.
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._held.size:
            self._held.add(lines[0])
            lines[0] = self._held.take()
        events: list[ServerSentEvent] = []
        for line in lines:
            self._take(line, events)
            if self.overflowed:
                return events
        if rest:
            self._hold(rest)
        return events

    def _without_mark(self, chunk: bytes) -> bytes:
        assert self._start is not None
        seen = self._start + chunk
        if len(seen) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(seen):
            self._start = seen
            return b""
        self._start = None
        return seen.removeprefix(BYTE_ORDER_MARK)

    def _hold(self, rest: bytes) -> None:
        if self._held.size + len(rest) > self._limit + FIELD_OVERHEAD:
            self._overflow()
        else:
            self._held.add(rest)

    def _overflow(self) -> None:
        self.overflowed = True
        self._held.clear()
        self._data.clear()

    def _take(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if not line:
            if self._has_data:
                events.append(ServerSentEvent(self._data.take(), self._type or "message", self.last_id))
                self._has_data = False
            self._type = ""
        elif len(line) > self._limit + FIELD_OVERHEAD:
            self._overflow()
        elif line.startswith(b"data:"):
            # The common form is sliced directly, so that a large message is copied once, not twice.
            self._add_data(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            self._add_data(b"")
        else:
            self._set_field(*_split_field(line))

    def _add_data(self, data: bytes) -> None:
        if self._has_data:
            self._data.add(b"\n")
        self._has_data = True
        if self._data.size + len(data) > self._limit:
            self._overflow()
        else:
            self._data.add(data)

    def _set_field(self, name: bytes, value: bytes) -> None:
        if name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id":
            if b"\0" not in value and len(value) <= MAX_RESUMABLE_ID_LENGTH:
                self.last_id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
            self.retry = int(value)


def _split_field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.removeprefix(b" ")


def encode_event(data: bytes, *, id: str | None = None, retry: int | None = None) -> bytes:
    """Encode one `message` event. An id with empty data gives the client an id to resume from."""
    head = b"" if id is None else b"id: %b\n" % id.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"".join((head, b"event: message\ndata: ", data, b"\n\n"))
