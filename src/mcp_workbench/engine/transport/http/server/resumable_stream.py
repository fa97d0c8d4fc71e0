"""The streams of a legacy session, and how they are resumed.

A stream outlives its connections: sent events are kept for a while, and a client that lost its connection comes back
with the id of the last event that it received. Ids are `stream-number`: they identify the stream and the position in
it. Where other instances may be asked to resume, they end with the id of the request, which can then be answered by one
that does not have the stream. Owns events and their order.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import MsgspecError
from msgspec.json import decode

from mcp_workbench.engine.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.modern_request import STREAM_HEADERS
from mcp_workbench.engine.transport.http.server.response_writer import NO_HEADERS, Headers, ResponseWriter
from mcp_workbench.engine.transport.http.sse import KEEP_ALIVE, encode_event

# The stream that a plain GET opens.
STANDALONE: Final = 0
# The measured size of a stream without its events, so that many small streams count too.
STREAM_BYTES: Final = 1300
# A request with a longer id gets event ids without it: they come back in a header.
MAX_REQUEST_ID_BYTES: Final = 64
MAX_EVENT_ID_LENGTH: Final = 160


class ReplayBudget:
    """A budget for events kept for resuming, in all sessions. The least recently used stream drops its events first."""

    __slots__ = ("_most", "_streams", "total")

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._streams: dict[ResumableStream, None] = {}

    def charge(self, stream: ResumableStream, size: int) -> None:
        self.total += size
        self._streams.pop(stream, None)
        self._streams[stream] = None
        while self.total > self._most and len(self._streams) > 1:
            next(iter(self._streams)).forget()

    def release(self, stream: ResumableStream, size: int) -> None:
        self.total -= size
        if not stream.kept_bytes:
            self._streams.pop(stream, None)


class ResumableStream:
    """A sequence of messages to a client, over a succession of connections."""

    __slots__ = (
        "_budget",
        "_dropped",
        "_events",
        "_last",
        "_limits",
        "_read",
        "_resumed",
        "_suffix",
        "_writers",
        "ended_at",
        "kept_bytes",
        "number",
    )

    def __init__(
        self,
        number: int,
        budget: ReplayBudget,
        limits: Limits,
        dropped: Callable[[int], object],
        request: bytes | None = None,
    ) -> None:
        """`request`: the id of the request, as JSON, if its event ids are to tell it."""
        self.number = number
        is_told = request is not None and len(request) <= MAX_REQUEST_ID_BYTES
        self._suffix = f"-{urlsafe_b64encode(request).decode()}" if request is not None and is_told else ""
        # Called with its number when none of its events are left to be resumed.
        self._dropped = dropped
        # When the last message was sent; None while there may be more.
        self.ended_at: float | None = None
        self.kept_bytes = 0
        self._budget = budget
        self._limits = limits
        self._events: deque[tuple[int, bytes]] = deque()
        # The numbers of the last event, and of the last one written to a connection.
        self._last = self._read = 0
        # Usually one. A client may open several; the newest gets the messages, the others take over when it closes.
        self._writers: list[ResponseWriter] = []
        # The last connection that resumed. Its response may be complete but still unread.
        self._resumed: ResponseWriter | None = None

    def __repr__(self) -> str:
        state = "open" if self.ended_at is None else "ended"
        return f"<ResumableStream {self.number} {state}, {len(self._writers)} connected, {len(self._events)} kept>"

    @property
    def is_connected(self) -> bool:
        return bool(self._writers)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that its readers have not read yet."""
        return sum(writer.unsent_bytes for writer in self._writers)

    def number_from(self, number: int) -> None:
        """Number its events from here: larger than those of another instance, which had this stream before."""
        self._last = self._read = number

    def open(self, writer: ResponseWriter, *, is_primed: bool, headers: Headers = NO_HEADERS) -> None:
        """Attach a connection, starting with the events that have not been written to any yet.

        `is_primed`: send an event id at once, so that the client can resume even before the first message.
        """
        writer.begin(200, STREAM_HEADERS + headers)
        if is_primed:
            self._last += 1
            priming = encode_event(b"", id=self._name(self._last), retry=self._limits.retry_milliseconds)
            writer.write(priming)
        self._attach(writer, self._read)

    def resume(self, writer: ResponseWriter, after: int) -> None:
        """Attach a connection that continues where an earlier one broke."""
        writer.begin(200, STREAM_HEADERS)
        # The earlier connection may be broken without our knowledge; and a POST has only one reader.
        if self.number != STANDALONE:
            for stale in self._writers:
                stale.abort()
            self._writers.clear()
        # A client that resumes repeatedly without reading would make us buffer everything each time.
        before, self._resumed = self._resumed, writer
        if before is not None and before.unsent_bytes > self._limits.pause_bytes:
            self.leave(before)
            before.abort()
        self._attach(writer, after)

    def leave(self, writer: ResponseWriter) -> None:
        """Detach a connection. The stream continues without it."""
        writer.abandon()
        if writer in self._writers:
            self._writers.remove(writer)

    def put(self, message: bytes) -> None:
        self._last += 1
        event = encode_event(message, id=self._name(self._last))
        self._events.append((self._last, event))
        self.kept_bytes += len(event)
        self._budget.charge(self, len(event))
        self._forget_beyond(self._limits.replay_bytes, self._limits.waiting_messages)
        if self._writers:
            self._read = self._last
            writer = self._writers[-1]
            writer.write(event)
            if writer.unsent_bytes > self._limits.message_bytes + self._limits.unread_bytes:
                self._writers.remove(writer)
                writer.abort()

    def end(self, now: float) -> None:
        """End the stream and its connections. Its events can be resumed for a while."""
        if self.ended_at is not None:
            return
        self.ended_at = now
        for writer in self._writers:
            writer.finish()
        self._writers.clear()
        self.kept_bytes += STREAM_BYTES
        self._budget.charge(self, STREAM_BYTES)

    def release(self) -> None:
        """End its connections; the stream itself continues, and may be resumed."""
        for writer in self._writers:
            writer.finish()
        self._writers.clear()

    def comment(self) -> None:
        """Write a byte for proxies, which cut silent connections."""
        for writer in self._writers:
            writer.write(KEEP_ALIVE)

    def forget(self) -> None:
        """Drop all events kept for resuming."""
        if self.kept_bytes > KEPT_BYTES:
            trim_soon(asyncio.get_running_loop())
        self._forget_beyond(0, 0)
        if self.ended_at is not None:
            size, self.kept_bytes = self.kept_bytes, 0
            self._budget.release(self, size)
            self._dropped(self.number)

    def _attach(self, writer: ResponseWriter, after: int) -> None:
        for number, event in self._events:
            if number > after:
                writer.write(event)
        self._read = self._last
        if self.ended_at is None:
            self._writers.append(writer)
            writer.gone = lambda: self.leave(writer)
        else:
            writer.finish()

    def _forget_beyond(self, most_bytes: int, most_events: int) -> None:
        # Keep the newest event whatever its size, unless nothing is to be kept: it is probably an answer, which is
        # never sent again.
        spared = 1 if most_events else 0
        while len(self._events) > spared and (self.kept_bytes > most_bytes or len(self._events) > most_events):
            size = len(self._events.popleft()[1])
            self.kept_bytes -= size
            self._budget.release(self, size)

    def _name(self, number: int) -> str:
        return f"{self.number}-{number}{self._suffix}"


class EventId(NamedTuple):
    stream: int
    number: int
    # The id of the request that the stream answers, as JSON; None if it is not told.
    request: bytes | None


def parse_event_id(text: str) -> EventId | None:
    """One of our event ids; None for any other."""
    if len(text) > MAX_EVENT_ID_LENGTH or not text.isascii():
        return None
    stream, _, rest = text.partition("-")
    number, _, request = rest.partition("-")
    if not (stream.isdecimal() and number.isdecimal() and max(len(stream), len(number)) <= 20):
        return None
    return EventId(int(stream), int(number), _request_id(request) if request else None)


def _request_id(encoded: str) -> bytes | None:
    try:
        id = urlsafe_b64decode(encoded)
        decode(id, type=str | int)
    except (binascii.Error, ValueError, MsgspecError):
        return None
    return id
