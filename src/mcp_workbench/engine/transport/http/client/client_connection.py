"""One HTTP/1.1 connection to a server: a request, its response, then the next request.

A plain asyncio protocol with `httptools` as the parser: measured against a general-purpose HTTP client, a call costs a
fifth. Owns the framing of requests and responses and the flow of a body. Knows nothing about addresses and MCP.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, cast

import httptools  # noqa: TID253 (loaded only with the first server that has a `url`)

from mcp_workbench.engine.transport.http.client.response import (
    BrokeOff,
    NoAnswer,
    NotHttp,
    NotSent,
    RequestFailed,
    Response,
    ResponseListener,
    Unwritable,
    join_fields,
)
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW, WriteBatch

# Status line and headers. Servers in the field stay far below; an endless stream of headers must be stopped.
MAX_RESPONSE_HEAD_BYTES: Final = 128 * 1024
# Headers up to this length are cached in encoded form.
MAX_CACHED_HEADER_LENGTH: Final = 512
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class OutboundState(IntEnum):
    """The state of a connection to a server. An integer, so that the table below is looked up in C."""

    CONNECTING = 0
    IDLE = 1
    QUEUED = 2  # with a request that is written with the current batch
    SENT = 3
    RECEIVING = 4  # the head of the response has arrived
    COMPLETE = 5
    SPENT = 6  # as `COMPLETE`, but of no use for another request
    CLOSED = 7


class OutboundEvent(IntEnum):
    """What can happen to a connection to a server, apart from its end, which is possible at any time."""

    CONNECTED = 0
    QUEUE = 1
    SEND = 2
    WITHDRAW = 3
    HEAD = 4
    END = 5
    LAST_END = 6  # the server closes the connection after this response
    UNSOLICITED = 7  # another response, to no request of ours
    RELEASE = 8


# Bound once: up to Python 3.11, reading a member of an enumeration costs as much as the transition.
CONNECTING, IDLE, QUEUED, SENT, RECEIVING, COMPLETE, SPENT, CLOSED = OutboundState
CONNECTED, QUEUE, SEND, WITHDRAW, HEAD, END, LAST_END, UNSOLICITED, RELEASE = OutboundEvent

OUTBOUND_TRANSITIONS: Final[dict[tuple[OutboundState, OutboundEvent], OutboundState]] = {
    (CONNECTING, CONNECTED): IDLE,
    (IDLE, QUEUE): QUEUED,
    (IDLE, SEND): SENT,
    (QUEUED, SEND): SENT,
    (QUEUED, WITHDRAW): IDLE,
    (SENT, HEAD): RECEIVING,
    (RECEIVING, END): COMPLETE,
    (RECEIVING, LAST_END): SPENT,
    (COMPLETE, UNSOLICITED): SPENT,
    (COMPLETE, RELEASE): IDLE,
}


class _Awaited:
    """A listener that puts the outcome into a future."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def on_response(self, response: Response) -> None:
        if self.future.done():
            response.release()
        else:
            self.future.set_result(response)

    def on_failed(self, error: RequestFailed) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class OutboundConnection(asyncio.Protocol):
    """One HTTP/1.1 connection to a server; one request at a time."""

    __slots__ = (
        "_batch",
        "_fields",
        "_free",
        "_head_bytes",
        "_is_paused",
        "_listener",
        "_parser",
        "_response",
        "_soon",
        "_tunnel",
        "idle_since",
        "state",
        "transport",
    )

    def __init__(self, free: Callable[[OutboundConnection], None], batch: WriteBatch) -> None:
        self.state = CONNECTING
        self.idle_since = 0.0
        # Called when the connection can be used again, and when it is gone.
        self._free = free
        # A whole request that is written with the current batch.
        self._soon = b""
        self._batch = batch
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: Any = None
        # The header fields of the response that is arriving, in order.
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        # Waits for the response; None once it has been notified.
        self._listener: ResponseListener | None = None
        self._response: Response | None = None
        # The head of a proxy's response to `CONNECT`.
        self._tunnel: tuple[asyncio.Future[int], bytearray] | None = None
        # Of the flow: a response may be paused in any state.
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<OutboundConnection {self.state.name.lower()}{', paused' if self._is_paused else ''}>"

    @property
    def is_open(self) -> bool:
        return IDLE <= self.state < CLOSED

    async def request(self, head: bytes, body: bytes) -> Response:
        """Send a request; return its response as soon as its head has arrived. Raises `RequestFailed`."""
        waiting = _Awaited()
        self.begin(head, body, waiting)
        try:
            return await waiting.future
        except BaseException:
            self.close()
            raise

    def begin(self, head: bytes, body: bytes, listener: ResponseListener, *, soon: bool = False) -> None:
        """Send a request and notify `listener` of its response, without a task. `soon`: together with others, at the
        end of the current batch."""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            # Real servers end lines in various ways.
            self._parser.set_dangerous_leniencies(
                lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
            )
        self._head_bytes = 0
        self._response = None
        if not self.is_open:
            listener.on_failed(NoAnswer())
            return
        self._listener = listener
        if soon and len(body) < JOIN_BELOW:
            self.state = OUTBOUND_TRANSITIONS[self.state, QUEUE]
            self._soon = head + body
            self._batch.add(self)
            return
        self.state = OUTBOUND_TRANSITIONS[self.state, SEND]
        if len(body) >= JOIN_BELOW:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)

    def flush(self) -> None:
        """Write what is in the batch (`Writer`). If it can no longer be written it is kept, so that its end is
        reported."""
        if self.state is QUEUED and not self.transport.is_closing():
            self.state = OUTBOUND_TRANSITIONS[self.state, SEND]
            data, self._soon = self._soon, b""
            self.transport.write(data)

    def withdraw(self) -> bool:
        """Withdraw a request. False if it has already been written."""
        if self.state is not QUEUED:
            return False
        self.state = OUTBOUND_TRANSITIONS[self.state, WITHDRAW]
        self._soon = b""
        self._listener = None
        self._free(self)
        return True

    async def tunnel(self, head: bytes) -> int:
        """Ask a proxy for a tunnel; returns the status of its response."""
        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tunnel = (answered, bytearray())
        self.transport.write(head)
        try:
            return await answered
        finally:
            self._tunnel = None

    def is_readable(self) -> bool:
        """Whether there is unread data; between two requests that can only be the end of the connection."""
        import select

        if not hasattr(select, "poll"):
            return False
        watched = select.poll()
        try:
            watched.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
            return bool(watched.poll(0))
        except (OSError, ValueError, AttributeError):
            # Already closed.
            return True

    def close(self) -> None:
        if self.is_open:
            self.state = CLOSED
            self.transport.abort()

    def release(self, *, is_clean: bool) -> None:
        """The response is no longer read: reuse the connection, or close it."""
        self._response = None
        # A response that arrived before the whole request was written means that the server does not read the rest.
        if is_clean and self.state is COMPLETE and not self.transport.get_write_buffer_size():
            if self._is_paused:
                self.resume_reading()
            self.state = OUTBOUND_TRANSITIONS[self.state, RELEASE]
            self._free(self)
        else:
            self.close()

    def pause_reading(self) -> None:
        """Stop reading: TCP slows the server down once its window is full."""
        if self.is_open and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open and self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    # ── for asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.state = OUTBOUND_TRANSITIONS[self.state, CONNECTED]

    def connection_lost(self, error: Exception | None) -> None:
        self.state = CLOSED
        self._end()
        self._soon = b""
        self._free(self)
        # It refers back to us: break the cycle.
        self._parser = None

    def eof_received(self) -> bool:
        self._end()
        return False

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._on_tunnel(data)
            return
        parser = self._parser
        if self.state < SENT or parser is None:
            # Unexpected data: the server is closing, or answers twice. Do not use the connection again.
            self.close()
            return
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(NotHttp("the server changed the protocol"))
        except httptools.HttpParserError as error:
            self._fail(NotHttp(str(error)))
        if self._response is None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_RESPONSE_HEAD_BYTES:
                self._fail(NotHttp("its headers do not end"))
        elif self._listener is not None:
            listener, self._listener = self._listener, None
            listener.on_response(self._response)

    def _end(self) -> None:
        """The connection has ended, which also ends a response without a declared length."""
        if self._tunnel is not None:
            if not self._tunnel[0].done():
                self._tunnel[0].set_exception(BrokeOff("the proxy closed the connection"))
        elif self._response is not None:
            is_delimited = self._is_delimited(self._response.headers)
            self._response.end(BrokeOff() if is_delimited else None)
        elif self._listener is not None:
            self._fail(NotSent() if self._soon else NoAnswer() if not self._head_bytes else BrokeOff())

    @staticmethod
    def _is_delimited(headers: Mapping[str, str]) -> bool:
        return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()

    def _fail(self, error: RequestFailed) -> None:
        if self._response is not None:
            self._response.end(error)
        elif self._listener is not None:
            listener, self._listener = self._listener, None
            listener.on_failed(error)
        self.close()

    def _on_tunnel(self, data: bytes) -> None:
        assert self._tunnel is not None
        answered, seen = self._tunnel
        seen += data
        if answered.done():
            return
        if b"\r\n\r\n" in seen:
            status = re.match(rb"HTTP/1\.[01] ([0-9]{3})", seen)
            answered.set_result(int(status[1]) if status else 0)
        elif len(seen) > MAX_RESPONSE_HEAD_BYTES:
            answered.set_result(0)

    # ── for the parser ──

    def on_message_begin(self) -> None:
        self._fields = []
        if self.state is COMPLETE:
            # It is not read, and the connection not used again.
            self.state = OUTBOUND_TRANSITIONS[self.state, UNSOLICITED]

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # 1xx responses precede the final one.
        if status >= 200 and self.state is SENT:
            self.state = OUTBOUND_TRANSITIONS[self.state, HEAD]
            self._response = Response(self, status, join_fields(self._fields))

    def on_body(self, body: bytes) -> None:
        if self.state is RECEIVING and self._response is not None:
            try:
                self._response.feed(body)
            except zlib.error as error:
                self._fail(NotHttp(f"its compression is broken: {error}"))

    def on_message_complete(self) -> None:
        if self.state is RECEIVING and self._response is not None:
            # Must be asked now: later the parser is at the next message.
            event = END if self._parser.should_keep_alive() else LAST_END
            self.state = OUTBOUND_TRANSITIONS[self.state, event]
            self._response.end()


def write_head(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    return end_head(open_head(method, target, headers), body)


def open_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A head without its end, which depends on the body. Raises `Unwritable`."""
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers.items():
        lines.append(_line(name, value) if len(value) < MAX_CACHED_HEADER_LENGTH else _line.__wrapped__(name, value))
    # Headers are ASCII; anything else in a configuration is sent as UTF-8, which most servers expect.
    return "".join(lines).encode()


def end_head(head: bytes, body: bytes | None) -> bytes:
    return head + (b"\r\n" if body is None else b"content-length: %d\r\n\r\n" % len(body))


# Most headers are the same in each request.
@lru_cache(maxsize=512)
def _line(name: str, value: str) -> str:
    if not _FIELD_NAME.fullmatch(name) or _UNWRITABLE.search(value):
        raise Unwritable(f"header `{name}` contains characters that are not allowed in a header")
    return f"{name}: {value}\r\n"
