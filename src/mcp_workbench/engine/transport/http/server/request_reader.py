"""Requests from the bytes of one connection.

`httptools` parses, and is fed exactly one request at a time: the head up to its empty line; a body up to its declared
length, or up to an empty line if it is chunked. So no part of one request is taken for a part of the next. In
particular the parser passes the last trailer of a chunked request to the request that follows it, so a parser that has
read a chunked body is discarded.

Owns the request that is arriving: its head, its body, their sizes, and their deadlines. Knows nothing about admission
and responses, which are up to its `RequestReceiver`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import httptools  # noqa: TID253 (loaded only where HTTP is served)
from msgspec import Struct

from mcp_workbench.engine.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.engine.transport.http.server.admission import Refusal
from mcp_workbench.engine.transport.http.server.body_budget import BodyBudget
from mcp_workbench.engine.transport.http.server.limits import (
    LARGE_BODY,
    MAX_REQUEST_HEAD_BYTES,
    MAX_UNUSED_BODY_BYTES,
    SMALL_BODY,
    Limits,
)
from mcp_workbench.engine.transport.http.server.request_head import (
    HEADER_SPELLINGS,
    PARAMETER_PREFIX_BYTES,
    RequestHead,
    path_of,
    shown_again,
)
from mcp_workbench.engine.transport.pieces import Pieces

log = logging.getLogger(__name__)

_EMPTY_LINE: Final = b"\r\n\r\n"


class CompleteRequest(Struct, gc=False):
    head: RequestHead
    # A large one is not joined here.
    body: bytes | Pieces
    # Whether the client understands chunked responses (HTTP/1.1), and whether it wants to keep the connection.
    is_chunking: bool
    is_kept: bool
    # Bytes reserved in the body budget until the request is handed on.
    reserved: int
    # By whom.
    principal: str = ""

    @property
    def held_bytes(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body.size


class RequestReceiver(Protocol):
    """The connection that a request arrives on."""

    def head_arrived(self, head: RequestHead) -> None:
        """Decide whether to admit it (`head.refusal`), and answer at once if its body is not to be read."""

    def body_awaited(self) -> None:
        """The client waits for `100 Continue` before it sends its body."""

    def refused(self, head: RequestHead) -> None:
        """It is refused after all (`head.refusal`), while its body is still arriving."""

    def arrived(self, request: CompleteRequest) -> None: ...


class RequestReader:
    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_since",
        "_budget",
        "_bytes_since_body",
        "_declared",
        "_head_bytes",
        "_head_since",
        "_is_declining",
        "_limits",
        "_loop",
        "_names",
        "_parser",
        "_receiver",
        "_reserved",
        "_reserved_by",
        "_tail",
        "_url",
        "_window_bytes",
        "_window_since",
        "address",
        "head",
        "is_over",
        "peer",
        "peer_names",
    )

    def __init__(
        self,
        receiver: RequestReceiver,
        limits: Limits,
        budget: BodyBudget,
        names: Mapping[bytes, str] = HEADER_SPELLINGS,
    ) -> None:
        self.peer = ""
        self.address = ""
        self.peer_names: tuple[str, ...] = ()
        # The headers that are read.
        self._names = names
        # Whether further bytes are ignored.
        self.is_over = False
        self._receiver = receiver
        self._limits = limits
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._is_declining = False
        # None between two requests.
        self.head: RequestHead | None = None
        self._url = b""
        # The size of its body; None if it is chunked.
        self._declared: int | None = 0
        self._head_bytes = 0
        self._head_since: float | None = None
        self._body = Pieces()
        self._body_bytes = 0
        self._body_since: float | None = None
        # The current window for measuring the rate of a body: its start, and the bytes received by then.
        self._window_since = 0.0
        self._window_bytes = 0
        self._reserved = 0
        self._reserved_by = ""
        # Chunk sizes and trailers since the last piece of the body.
        self._bytes_since_body = 0
        # The last bytes of the previous read if it had no empty line, which may be split between two reads.
        self._tail = b""

    @property
    def is_in_the_middle(self) -> bool:
        """Whether the client is still sending."""
        return self._body_since is not None or self._head_since is not None

    @property
    def is_in_body(self) -> bool:
        return self._body_since is not None

    @property
    def is_in_large_body(self) -> bool:
        """Whether more has arrived of a body than an ordinary call has, and more is to come."""
        return self._body_since is not None and self._body_bytes > SMALL_BODY and not self.is_over

    @property
    def principal(self) -> str:
        """Whose request is arriving; empty if that is not known."""
        return "" if self.head is None else self.head.principal

    def stop(self) -> None:
        """Ignore everything from now on, and drop what has arrived of a body."""
        self.is_over = True
        self._drop_body()

    def close(self) -> None:
        self.stop()
        # Break the reference cycles, so that the garbage collector has nothing to do.
        self._parser = None
        self._receiver = cast(RequestReceiver, None)

    def is_late(self, now: float) -> bool:
        """Whether the client is too slow. For a body only the current window counts: earlier bytes earn no credit."""
        if self._body_since is not None:
            if now - self._window_since <= self._limits.body_seconds:
                return False
            came, self._window_bytes = self._body_bytes - self._window_bytes, self._body_bytes
            self._window_since = now
            return came < self._limits.body_rate * self._limits.body_seconds
        return self._head_since is not None and now - self._head_since > self._limits.head_seconds

    # ── bytes in ──

    def feed(self, data: bytes) -> int | None:
        """Process the bytes that were read. Returns the status of a refusal if they cannot be parsed."""
        start, size = 0, len(data)
        while start < size and not self.is_over:
            if self._body_since is not None and self._declared is not None:
                end = min(size, start + max(self._declared - self._body_bytes, 1))
            else:
                end = self._end_of_lines(data, start)
            status = self._feed_piece(data if end - start == size else memoryview(data)[start:end])
            if status is not None:
                return status
            start = end
        return None

    def _end_of_lines(self, data: bytes, start: int) -> int:
        """The furthest end of a head or a chunked body: the next empty line."""
        tail, self._tail = self._tail, b""
        straddling = (tail + data[start : start + 3]).find(_EMPTY_LINE) if tail else -1
        if straddling >= 0:
            return start + straddling + len(_EMPTY_LINE) - len(tail)
        end = data.find(_EMPTY_LINE, start)
        if end >= 0:
            return end + len(_EMPTY_LINE)
        self._tail = (tail + data[max(start, len(data) - 3) :])[-3:]
        return len(data)

    def _feed_piece(self, piece: bytes | memoryview) -> int | None:
        body_before = self._body_bytes
        was_in_body = self._body_since is not None
        if not was_in_body:
            self._head_bytes += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._decline_upgrade(bytes(piece[upgrade.args[0] :]))
        except httptools.HttpParserError as error:
            return None if self.is_over else _status_of_failure(error)
        if self._body_since is not None:
            if was_in_body:
                is_body = self._body_bytes != body_before
                self._bytes_since_body = 0 if is_body else self._bytes_since_body + len(piece)
                if self._bytes_since_body > MAX_REQUEST_HEAD_BYTES and not self.is_over:
                    return 431
        elif self._head_bytes > MAX_REQUEST_HEAD_BYTES and not self.is_over:
            # Even before a head begins: empty lines before a request are skipped, which costs us more than the sender.
            return 431
        return None

    def _decline_upgrade(self, rest: bytes) -> int | None:
        """Ignore a request to switch protocols, which Java's client sends with each request.

        The parser stops after such a head, so a new one takes over. It is fed the part of the head that it needs to
        find the end of the body.
        """
        version, is_kept = self._parser.get_http_version(), self._parser.should_keep_alive()
        self._parser = httptools.HttpRequestParser(self)
        if self.head is not None:
            again = shown_again(self.head, version, is_kept)
            if again is None:
                return 400
            self._is_declining = True
            self._parser.feed_data(again)
            self._is_declining = False
        return self.feed(rest) if rest else None

    # ── for the parser ──

    def on_message_begin(self) -> None:
        if self._is_declining:
            return
        self.head = RequestHead(peer=self.peer)
        self.head.address = self.address
        self.head.peer_names = self.peer_names
        self._url = b""
        self._head_since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        if not self._is_declining:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header, or drop it if it is not one that we read."""
        if self._is_declining or self._body_since is not None:
            # After the head it is a trailer, which must not affect admission (RFC 9110, 6.5.1).
            return
        known = self._names.get(name) or self._names.get(name.lower())
        head = self.head
        assert head is not None
        if known is None:
            if name[: len(PARAMETER_PREFIX_BYTES)].lower() == PARAMETER_PREFIX_BYTES:
                head.add_parameter(name, value)
        elif known in head.headers:
            head.add_again(known, value)
        else:
            head.headers[known] = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_declining:
            return
        head = self.head
        assert head is not None
        self._head_bytes, self._head_since = 0, None
        self._declared = head.declared_bytes
        self._body_bytes = self._window_bytes = self._bytes_since_body = 0
        self._body_since = self._window_since = self._loop.time()
        if self.is_over:
            return
        head.method = self._parser.get_method().decode("latin-1")
        head.path, head.target = path_of(self._url), self._url
        self._receiver.head_arrived(head)
        # Until the caller is known, only what has arrived is kept, and nothing is reserved.
        if head.refusal is None and head.pending is None:
            self.go_on(head)

    def go_on(self, head: RequestHead) -> None:
        """The request is admitted: wait for the rest of its body."""
        if head is not self.head or (self._declared and not self._expects_body(head, self._declared)):
            return
        if "expect" in head.headers and head.expects_continue:
            self._receiver.body_awaited()

    def is_reading(self, head: RequestHead) -> bool:
        return head is self.head

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        head = self.head
        if self.is_over or head is None:
            return
        if head.refusal is not None:
            if self._body_bytes > SMALL_BODY:
                self._receiver.refused(head)
        elif not head.takes_body:
            if self._body_bytes > MAX_UNUSED_BODY_BYTES:
                self._refuse(head, Refusal.no_body())
        elif self._body_bytes > self._limits.message_bytes:
            self._refuse(head, Refusal.too_large(self._limits.message_bytes))
        elif self._has_room(head):
            self._body.add(body)
        else:
            self._refuse(head, Refusal.no_room())

    def on_message_complete(self) -> None:
        head, parser = self.head, self._parser
        if head is not None and self._declared != 0 and parser.should_upgrade():
            # Not yet: its body is still to come.
            return
        self.head = None
        self._body_since = None
        if self.is_over or head is None:
            return
        if self._declared is None:
            # The parser may hold back a trailer.
            self._parser = httptools.HttpRequestParser(self)
        is_chunking, is_kept = parser.get_http_version() != "1.0", parser.should_keep_alive()
        reserved, self._reserved = self._reserved, 0
        body = self._take_body()
        self._receiver.arrived(CompleteRequest(head, body, is_chunking, is_kept, reserved, self._reserved_by))

    # ── the body ──

    def _expects_body(self, head: RequestHead, declared: int) -> bool:
        """Whether the body will be read. If so, its size is reserved from now on."""
        if not head.takes_body:
            refusal = Refusal.no_body() if declared > MAX_UNUSED_BODY_BYTES else None
        elif self._reserve(head, declared - self._reserved):
            refusal = None
        else:
            refusal = Refusal.no_room()
        if refusal is not None:
            self._refuse(head, refusal)
        return refusal is None

    def _has_room(self, head: RequestHead) -> bool:
        """Reserve memory for a chunked body as it arrives."""
        more = self._body_bytes - self._reserved
        return more <= 0 or self._reserve(head, more)

    def _reserve(self, head: RequestHead, size: int) -> bool:
        if not self._reserved:
            # Whoever it is now: the caller of a body may become known while it arrives.
            self._reserved_by = head.principal
        has_room = self._budget.reserve(size, held=self._reserved, principal=self._reserved_by)
        self._reserved += size if has_room else 0
        return has_room

    def _refuse(self, head: RequestHead, refusal: Refusal) -> None:
        head.refusal = refusal
        self._drop_body()
        self._receiver.refused(head)

    def _drop_body(self) -> None:
        held = self._body.size
        self._body.clear()
        if held or self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._budget.drop(reserved, held, self._reserved_by)

    def _take_body(self) -> bytes | Pieces:
        if self._body.size > KEPT_BYTES:
            trim_soon(self._loop)
        if self._body.size > LARGE_BODY:
            body, self._body = self._body, Pieces()
            return body
        return self._body.take()


def _status_of_failure(error: httptools.HttpParserError) -> int:
    cause = error.__context__
    if cause is None or isinstance(cause, httptools.HttpParserError):
        return 400
    log.error("internal error; please report it", exc_info=cause)
    return 500
