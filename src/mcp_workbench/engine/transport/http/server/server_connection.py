"""One TCP connection of a client: HTTP/1.1, requests in, responses out, with bounds on waiting and memory.

A plain asyncio protocol: a request costs neither a task nor a task switch. Measured with 32 in flight, a
general-purpose server with its application protocol takes 37 µs for an empty request, more than everything we do with
one.

Owns the order of responses, when the connection ends, and clients that do not read. Knows nothing about parsing
(`RequestReader`), about what is served (an `Application` decides on the head whether to admit a request, and answers it
when it is complete), or about the limits that connections share (`Connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from enum import IntEnum
from typing import Final, cast

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.allocator import trim_soon
from mcp_workbench.engine.transport.http.server.authentication import Authentication
from mcp_workbench.engine.transport.http.server.connections import Connections
from mcp_workbench.engine.transport.http.server.head_cache import ConnectionHeadCache
from mcp_workbench.engine.transport.http.server.limits import (
    LINGER_BYTES,
    MAX_PIPELINED_REQUESTS,
    REFUSED_UPLOAD_LINGER_TIMEOUT,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.request_reader import CompleteRequest, RequestReader
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.engine.transport.http.server.unauthenticated_connections import (
    address_of,
    names_in_certificate,
    peer_of,
)
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW

# SO_LINGER on, with zero seconds: closing sends a reset.
_DISCARD: Final = struct.pack("ii", 1, 0)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class InboundState(IntEnum):
    """The state of a client's connection. An integer, so that the table below is looked up in C."""

    QUIET = 0
    OWING = 1  # a request is being served, and nothing of its response is written
    RESPONDING = 2
    OWING_LAST = 3  # as `OWING`; the connection ends after the response
    RESPONDING_LAST = 4
    ENDING = 5  # the last response is complete
    LINGERING = 6  # as `ENDING`, while the client may still be sending
    LOST = 7


class InboundEvent(IntEnum):
    """What can happen to a client's connection, apart from its loss, which is possible at any time."""

    BEGIN = 0
    BEGIN_LAST = 1
    MAKE_LAST = 2
    WRITE = 3
    RESPONDED = 4
    LINGER = 5


# Bound once: up to Python 3.11, reading a member of an enumeration costs as much as the transition.
QUIET, OWING, RESPONDING, OWING_LAST, RESPONDING_LAST, ENDING, LINGERING, LOST = InboundState
BEGIN, BEGIN_LAST, MAKE_LAST, WRITE, RESPONDED, LINGER = InboundEvent

INBOUND_TRANSITIONS: Final[dict[tuple[InboundState, InboundEvent], InboundState]] = {
    (QUIET, BEGIN): OWING,
    (QUIET, BEGIN_LAST): OWING_LAST,
    (OWING, MAKE_LAST): OWING_LAST,
    (RESPONDING, MAKE_LAST): RESPONDING_LAST,
    (OWING_LAST, MAKE_LAST): OWING_LAST,
    (RESPONDING_LAST, MAKE_LAST): RESPONDING_LAST,
    (OWING, WRITE): RESPONDING,
    (OWING_LAST, WRITE): RESPONDING_LAST,
    (OWING, RESPONDED): QUIET,
    (RESPONDING, RESPONDED): QUIET,
    (OWING_LAST, RESPONDED): ENDING,
    (RESPONDING_LAST, RESPONDED): ENDING,
    (ENDING, LINGER): LINGERING,
}
# The same by event, for those of every request.
_AFTER_BEGIN, _AFTER_WRITE, _AFTER_RESPONSE = (
    {state: to for (state, on), to in INBOUND_TRANSITIONS.items() if on is event} for event in (BEGIN, WRITE, RESPONDED)
)
# While a response is owed, others are written in batches with it.
_OWING_STATES: Final = frozenset({OWING, OWING_LAST})


class InboundConnection(asyncio.Protocol):
    """One HTTP/1.1 connection of a client; responses leave in the order of the requests."""

    __slots__ = (
        "_connections",
        "_first_read",
        "_heads",
        "_held",
        "_ignored_bytes",
        "_limits",
        "_loop",
        "_queue",
        "_quiet_since",
        "_reader",
        "_soon",
        "_stalled_since",
        "_transport",
        "_unsent_before",
        "_waits_for_turn",
        "_writer",
        "date",
        "has_authenticated",
        "is_chunking",
        "peer",
        "since",
        "state",
    )

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._reader = RequestReader(self, connections.limits, connections.bodies, connections.header_names)
        # What was read when the current request began; empty if it began in the middle of a read.
        self._first_read = b""
        self._heads = ConnectionHeadCache(connections.heads)
        # Requests whose authentication is pending. Nothing is read meanwhile.
        self._held = 0
        # Whether others are read from before more of a large body is.
        self._waits_for_turn = False
        # The response in progress, and requests that arrived before it was complete.
        self._writer: ResponseWriter | None = None
        self._queue: deque[CompleteRequest] = deque()
        # A whole response that is written with the next batch.
        self._soon = b""
        self.state = QUIET
        self._ignored_bytes = 0
        self._quiet_since = 0.0
        self._unsent_before = 0
        # Since when the client has not read its responses; None while it does.
        self._stalled_since: float | None = None
        self.is_chunking = True
        self.date = connections.date
        # The peer, the time of the connection, and whether one of its requests has authenticated.
        self.peer = ""
        self.since = 0.0
        self.has_authenticated = False

    def __repr__(self) -> str:
        stalled = "" if self._stalled_since is None else ", stalled"
        return f"<InboundConnection {self.state.name.lower()}{stalled}, {self.unsent_bytes} bytes unsent>"

    # ── for responses (`ConnectionWriter`) ──

    @property
    def unsent_bytes(self) -> int:
        try:
            return self._transport.get_write_buffer_size() + len(self._soon)
        except RuntimeError:
            # uvloop raises this once the transport is closed.
            return 0

    def write(self, data: bytes | memoryview) -> None:
        self._settle()
        if self._soon:
            self.flush()
        if len(data) > self._limits.pause_bytes:
            self._connections.drop_beyond(self, len(data))
        if not self._transport.is_closing():
            self._transport.write(data)

    def respond(self, parts: tuple[Part, ...]) -> bool:
        """Write a whole answer in JSON and be done with the request. False, and nothing is done, unless the connection
        is kept, nothing of the response is written, and the answer is short and in two parts: so are nearly all."""
        if self.state is not OWING or len(parts) != 2:
            return False
        begin, rest = parts
        size = len(begin) + len(rest)
        if size >= JOIN_BELOW:
            return False
        connections, now = self._connections, self._loop.time()
        head = connections.json_head if now < connections.dated_until else connections.date_again(now)
        data = b"".join((head, b"%d\r\n\r\n" % size, begin, rest))
        connections.owing -= 1
        self.state = QUIET
        self._writer = None
        self._quiet_since = now
        if self._soon:
            self.write(data)
        elif connections.owing:
            self._soon = data
            connections.batch.add(self)
        elif not self._transport.is_closing():
            self._transport.write(data)
        if self._queue:
            # Not now: the code that has just answered may not have finished.
            self._loop.call_soon(self._serve_next)
        return True

    def write_soon(self, data: bytes) -> None:
        """Write: in one batch with other connections if they wait too, else at once."""
        if self._soon or self._connections.owing < 2:
            self.write(data)
        else:
            self._soon = data
            self._connections.batch.add(self)

    def flush(self) -> None:
        """Write what is in the batch (`Writer`)."""
        data, self._soon = self._soon, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def responded(self) -> None:
        """The response is complete: the next request may be answered."""
        self._writer = None
        if self.state in _OWING_STATES:
            self._connections.owing -= 1
        self.state = _AFTER_RESPONSE[self.state]
        self._quiet_since = self._loop.time()
        if self.state is ENDING:
            self._linger_or_close()
        elif self._queue:
            # Not now: the code that has just answered may not have finished.
            self._loop.call_soon(self._serve_next)

    def abort(self) -> None:
        """Close at once. Unsent data is dropped, including the kernel's buffer, which would otherwise stay for
        minutes."""
        unsent = self._transport.get_extra_info("socket")
        if unsent is not None:
            with contextlib.suppress(OSError):
                unsent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        if self.unsent_bytes > self._limits.pause_bytes:
            trim_soon(self._loop)
        self._transport.abort()

    def finish(self) -> None:
        """Close when the requests in progress are done, because the server stops."""
        if self._writer is None:
            self.flush()
            self._transport.close()
        else:
            self.make_last()

    @property
    def is_kept(self) -> bool:
        return self.state <= RESPONDING

    def make_last(self) -> None:
        """Close the connection after the response in progress."""
        self.state = INBOUND_TRANSITIONS[self.state, MAKE_LAST]

    # ── for asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.since = self._quiet_since = self._loop.time()
        self.peer = self._reader.peer = peer_of(transport)
        self._reader.address = self._heads.address = address_of(transport) or self.peer
        self._reader.peer_names = names_in_certificate(transport)
        self._transport.set_write_buffer_limits(self._limits.pause_bytes)
        if not self._connections.enter(self):
            self._refuse_unparsed(503)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.leave(self)
        self._soon = b""
        self._first_read = b""
        self._heads.forget()
        for request in self._queue:
            self._connections.bodies.drop(request.reserved, request.held_bytes)
        self._queue.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            self._settle()
            writer.disconnected()
        self.state = LOST
        self._reader.close()

    def eof_received(self) -> bool:
        """The client has closed its side. If it waits for a response it is considered gone, as in other servers."""
        self.flush()
        return False

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read, so that it cannot ask for more."""
        self._stalled_since = self._loop.time()
        self._unsent_before = self.unsent_bytes
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._connections.stall(self)

    def resume_writing(self) -> None:
        self._stalled_since = None
        self._connections.flow(self)
        if self._queue:
            self._loop.call_soon(self._serve_next)
        else:
            self._read_on()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self.state is QUIET and reader.head is None and not self._queue and self._stalled_since is None:
            if self._serve_known(data):
                return
        elif reader.is_over:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > LINGER_BYTES:
                self.abort()
            return
        if reader.head is None:
            self._first_read = data
        status = reader.feed(data)
        if status is not None:
            self._refuse_unparsed(status)
        elif reader.is_in_large_body and not self._waits_for_turn and not self._transport.is_closing():
            self._waits_for_turn = True
            self._transport.pause_reading()
            self._connections.upload_turns.wait(reader.principal, self)

    def read_turn(self) -> None:
        """Read more of a large body (`Uploading`)."""
        self._waits_for_turn = False
        if not self._queue:
            self._read_on()

    def _serve_known(self, data: bytes) -> bool:
        """Serve a complete request whose head is cached, without parsing it."""
        heads, connections = self._heads, self._connections
        head, end = heads.find(data), heads.end
        if head is None or len(data) - end > self._limits.message_bytes or self._transport.is_closing():
            return False
        application = connections.application
        if not application.is_still_admitted(head):
            return False
        if not self.has_authenticated:
            connections.recognise(self)
        # As `_begin` does it, on a connection that is known to be quiet.
        self.is_chunking, self.state = True, OWING
        self._writer = writer = ResponseWriter(self)
        connections.owing += 1
        if connections.owing > 1:
            # While others wait, too, what this request sends to a server leaves with what theirs send.
            application.serve(head, data[end:], writer)
            return True
        batch = connections.batch
        batch.is_sole = True
        application.serve(head, data[end:], writer)
        batch.is_sole = False
        return True

    # ── for the reader (`Receiver`) ──

    def head_arrived(self, head: RequestHead) -> None:
        """Decide whether to admit the request."""
        head.refusal = self._connections.application.admit(head)
        if head.pending is not None:
            self._hold(head, head.pending)
        elif head.refusal is None:
            if head.principal and not self.has_authenticated:
                self._connections.recognise(self)
        elif head.is_large:
            # The body will not be read.
            self.refused(head)

    def _hold(self, head: RequestHead, pending: asyncio.Future[Authentication]) -> None:
        """Stop reading until the pending authentication completes, so that the client cannot fill our memory."""
        self._held += 1
        self._transport.pause_reading()
        pending.add_done_callback(lambda done: self._release(head, done))

    def _release(self, head: RequestHead, done: asyncio.Future[Authentication]) -> None:
        self._held -= 1
        head.pending = None
        if done.cancelled() or self._transport.is_closing() or self._reader.is_over:
            return
        head.refusal = self._connections.application.admit_known(head, done.result())
        if head.refusal is None:
            if not self.has_authenticated:
                self._connections.recognise(self)
            self._reader.go_on(head)
        elif head.is_large and self._reader.is_reading(head):
            self.refused(head)
            return
        self._serve_next()
        if not self._queue:
            self._read_on()

    def _read_on(self) -> None:
        is_paused = self._held or self._waits_for_turn or self._stalled_since is not None
        if not is_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def body_awaited(self) -> None:
        """Tell the client to send the body, unless an earlier response is in progress."""
        if self._writer is None:
            self.write(_CONTINUE)

    def refused(self, head: RequestHead) -> None:
        """Answer before the body has arrived; the connection cannot be used again."""
        assert head.refusal is not None
        self._reader.stop()
        if self._writer is not None or self._queue:
            # An earlier response is in progress, and ours cannot overtake it.
            self.abort()
            return
        writer = self._begin(BEGIN_LAST, without_body=head.method == "HEAD")
        self._connections.application.refuse(head, head.refusal, writer)

    def arrived(self, request: CompleteRequest) -> None:
        head = request.head
        if request.is_chunking and request.is_kept and head.refusal is None and head.pending is None:
            self._heads.learn(self._first_read, request.head)
        self._first_read = b""
        if self._writer is not None or self._queue or self._stalled_since is not None or head.pending is not None:
            self._queue.append(request)
            self._transport.pause_reading()
            if len(self._queue) > MAX_PIPELINED_REQUESTS:
                self._reader.stop()
                self.abort()
        else:
            self._serve(request)

    # ── what is done with a request ──

    def _begin(self, event: InboundEvent = BEGIN, without_body: bool = False) -> ResponseWriter:
        """Start a response, which is owed from now on."""
        self.state = _AFTER_BEGIN[self.state] if event is BEGIN else INBOUND_TRANSITIONS[self.state, event]
        self._connections.owing += 1
        self._writer = writer = ResponseWriter(self, without_body)
        return writer

    def _settle(self) -> None:
        """The response is being written, or the client no longer waits for it."""
        if self.state in _OWING_STATES:
            self.state = _AFTER_WRITE[self.state]
            self._connections.owing -= 1

    def _serve(self, request: CompleteRequest) -> None:
        head = request.head
        self.is_chunking = request.is_chunking
        event = BEGIN if request.is_kept else BEGIN_LAST
        writer = self._begin(event, without_body=head.method == "HEAD")
        application, bodies = self._connections.application, self._connections.bodies
        reading = None
        if head.refusal is not None:
            application.refuse(head, head.refusal, writer)
        else:
            reading = application.serve(head, request.body, writer)
        if reading is not None:
            # Even if the client disconnects meanwhile: the body is held until it has been read.
            reading.add_done_callback(lambda _: bodies.release(request.reserved, request.principal))
        elif request.reserved:
            bodies.release(request.reserved, request.principal)

    def _serve_next(self) -> None:
        if self._stalled_since is not None or not self._queue or self.state is not QUIET:
            return
        if self._queue[0].head.pending is None and not self._transport.is_closing():
            self._serve(self._queue.popleft())
            if not self._queue:
                self._read_on()

    def _refuse_unparsed(self, status: int) -> None:
        """Answer a request that cannot be parsed."""
        self._reader.stop()
        if self._writer is not None or self._queue:
            self.abort()
            return
        self._begin(BEGIN_LAST).answer(status, b"")

    def _linger_or_close(self) -> None:
        """Close, but give a client that is still sending time to read the response: an early close would destroy it."""
        self.flush()
        if not self._reader.is_in_the_middle:
            self._transport.close()
            return
        self._reader.stop()
        self.state = INBOUND_TRANSITIONS[self.state, LINGER]
        self._ignored_bytes = 0
        self._quiet_since = self._loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # ── after a while ──

    def on_timer(self, now: float) -> None:
        """Close the connection if the client has been too slow."""
        if self._held:
            # The client waits for us, and the authentication is bounded.
            return
        if self.state is LINGERING:
            if now - self._quiet_since > REFUSED_UPLOAD_LINGER_TIMEOUT:
                self.abort()
        elif self._stalled_since is not None:
            self._on_stalled(now)
        elif self._reader.is_in_body or (self._writer is None and self._reader.is_in_the_middle):
            if self._reader.is_late(now):
                self._refuse_unparsed(408)
        elif self._writer is None:
            # During a response, the response itself watches whether the client reads.
            self._on_quiet(now)

    def _on_stalled(self, now: float) -> None:
        unsent, before = self.unsent_bytes, self._unsent_before
        self._unsent_before = unsent
        if unsent < before:
            # The client reads, however slowly.
            self._stalled_since = now
            self._connections.progressed(self)
        elif now - (self._stalled_since or now) > self._limits.unread_seconds:
            self.abort()
            return
        self._connections.drop_beyond()

    def _on_quiet(self, now: float) -> None:
        unsent = self.unsent_bytes
        # Health checks and preflights need no connection afterwards, and strangers must not accumulate them.
        patience = self._limits.keep_alive_seconds if self.has_authenticated else self._limits.head_seconds
        if unsent and unsent != self._unsent_before:
            # A response that is being read, however slowly.
            self._unsent_before = unsent
            self._quiet_since = now
        elif now - self._quiet_since > patience:
            if unsent:
                self.abort()
            else:
                self._transport.close()
