"""Requests from the bytes of one connection.

`httptools` parses, and is fed exactly one request at a time: of the head, up to its empty line; of a body, as much as
it declares, or up to an empty line where it comes in chunks. So nothing of one request is taken for a part of the next.
In particular the parser hands the last trailer of a request in chunks to whichever request follows it; such a parser is
thrown away.

Owns the request that is arriving: its head, its body, their sizes, and since when we wait for them. Refuses to know who
may come in and what is answered; its `RequestReceiver` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import httptools  # noqa: TID253 (loaded only where HTTP is served)
from msgspec import Struct

from mcp_workbench.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.transport.http.server.admission import Refusal
from mcp_workbench.transport.http.server.body_budget import BodyBudget
from mcp_workbench.transport.http.server.limits import LARGE_BODY, MOST_HEAD_BYTES, MOST_UNUSED_BODY, SMALL_BODY, Limits
from mcp_workbench.transport.http.server.request_head import NAMES, PARAMETER_PREFIX, RequestHead, path_of, shown_again
from mcp_workbench.transport.pieces import Pieces

log = logging.getLogger(__name__)

_EMPTY_LINE: Final = b"\r\n\r\n"


class CompleteRequest(Struct, gc=False):
    head: RequestHead
    # One that is large is not joined here.
    body: bytes | Pieces
    # Whether the client understands a response in chunks (HTTP/1.1), and wants to go on afterwards.
    is_chunking: bool
    is_kept: bool
    # What its body has reserved until it is handed on.
    reserved: int

    @property
    def held_bytes(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body.size


class RequestReceiver(Protocol):
    """The connection that a request arrives on."""

    def head_arrived(self, head: RequestHead) -> None:
        """Decide whether it comes in (`head.refusal`), and answer at once where its body is not to be read."""

    def body_awaited(self) -> None:
        """The client waits to be told that its body will be read (`Expect: 100-continue`)."""

    def refused(self, head: RequestHead) -> None:
        """It does not come in after all (`head.refusal`), though its body is still coming."""

    def arrived(self, request: CompleteRequest) -> None: ...


class RequestReader:
    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_since",
        "_budget",
        "_bytes_since_body",
        "_declared",
        "_head",
        "_head_bytes",
        "_head_since",
        "_is_declining",
        "_limits",
        "_loop",
        "_names",
        "_parser",
        "_receiver",
        "_reserved",
        "_tail",
        "_url",
        "_window_bytes",
        "_window_since",
        "address",
        "is_over",
        "peer",
        "peer_names",
    )

    def __init__(
        self, receiver: RequestReceiver, limits: Limits, budget: BodyBudget, names: Mapping[bytes, str] = NAMES
    ) -> None:
        self.peer = ""
        self.address = ""
        self.peer_names: tuple[str, ...] = ()
        # The headers that are looked at.
        self._names = names
        # Whatever comes is not looked at any more.
        self.is_over = False
        self._receiver = receiver
        self._limits = limits
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._is_declining = False
        # None between two requests.
        self._head: RequestHead | None = None
        self._url = b""
        # The size of its body; None when it comes in chunks.
        self._declared: int | None = 0
        self._head_bytes = 0
        self._head_since: float | None = None
        self._body = Pieces()
        self._body_bytes = 0
        self._body_since: float | None = None
        # The last few seconds of a body, and what had come of it when they began.
        self._window_since = 0.0
        self._window_bytes = 0
        self._reserved = 0
        # Chunk sizes and trailers since the last piece of the body.
        self._bytes_since_body = 0
        # The end of what was read last, where no empty line was found: one may arrive in two reads.
        self._tail = b""

    @property
    def is_between(self) -> bool:
        """Whether no request is arriving."""
        return self._head is None

    @property
    def is_in_the_middle(self) -> bool:
        """Whether the client is still sending."""
        return self._body_since is not None or self._head_since is not None

    @property
    def is_in_body(self) -> bool:
        return self._body_since is not None

    def stop(self) -> None:
        """Look at nothing any more. What has come of a body is dropped."""
        self.is_over = True
        self._drop_body()

    def close(self) -> None:
        self.stop()
        # The one refers back to us, we to the other: nothing is left to the collector of cycles.
        self._parser = None
        self._receiver = cast(RequestReceiver, None)

    def is_late(self, now: float) -> bool:
        """Whether the client makes us wait for too long. Of a body the last seconds count: what came before them earns
        nothing."""
        if self._body_since is not None:
            if now - self._window_since <= self._limits.body_seconds:
                return False
            came, self._window_bytes = self._body_bytes - self._window_bytes, self._body_bytes
            self._window_since = now
            return came < self._limits.body_rate * self._limits.body_seconds
        return self._head_since is not None and now - self._head_since > self._limits.head_seconds

    # ── bytes in ──

    def feed(self, data: bytes) -> int | None:
        """Take in what was read. The status of a refusal where it cannot be made sense of."""
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
        """How far a head, or a body in chunks, goes at most: to the next empty line."""
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
                if self._bytes_since_body > MOST_HEAD_BYTES and not self.is_over:
                    return 431
        elif self._head_bytes > MOST_HEAD_BYTES and not self.is_over:
            # Also where none has begun: empty lines before a request are skipped, and cost us more than their sender.
            return 431
        return None

    def _decline_upgrade(self, rest: bytes) -> int | None:
        """The client would like another protocol, as Java's does with each request; it gets this one.

        The parser stops after such a head, so another one takes over. It is shown as much of the head as it needs to
        know where the body ends.
        """
        version, is_kept = self._parser.get_http_version(), self._parser.should_keep_alive()
        self._parser = httptools.HttpRequestParser(self)
        if self._head is not None:
            again = shown_again(self._head, version, is_kept)
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
        self._head = RequestHead(peer=self.peer)
        self._head.address = self.address
        self._head.peer_names = self.peer_names
        self._url = b""
        self._head_since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        if not self._is_declining:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Those that we do not look at are dropped here."""
        if self._is_declining or self._body_since is not None:
            # After the head it is a trailer. Who may come in has been decided without it (RFC 9110, 6.5.1).
            return
        known = self._names.get(name) or self._names.get(name.lower())
        head = self._head
        assert head is not None
        if known is None:
            if name[: len(PARAMETER_PREFIX)].lower() == PARAMETER_PREFIX:
                head.add_parameter(name, value)
        elif known in head.headers:
            head.add_again(known, value)
        else:
            head.headers[known] = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_declining:
            return
        head = self._head
        assert head is not None
        self._head_bytes, self._head_since = 0, None
        self._declared = head.declared_bytes
        self._body_bytes = self._window_bytes = self._bytes_since_body = 0
        self._body_since = self._window_since = self._loop.time()
        if self.is_over:
            return
        head.method = self._parser.get_method().decode("latin-1")
        head.path = path_of(self._url)
        self._receiver.head_arrived(head)
        # Of somebody who is not known yet only what has come already is kept, and nothing reserved.
        if head.refusal is None and head.pending is None:
            self.go_on(head)

    def go_on(self, head: RequestHead) -> None:
        """It comes in: its body, if there is more of it, is waited for."""
        if head is not self._head or (self._declared and not self._expects_body(head, self._declared)):
            return
        if "expect" in head.headers and head.expects_continue:
            self._receiver.body_awaited()

    def is_reading(self, head: RequestHead) -> bool:
        """Whether this is the request that is arriving."""
        return head is self._head

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        head = self._head
        if self.is_over or head is None:
            return
        if head.refusal is not None:
            if self._body_bytes > SMALL_BODY:
                self._receiver.refused(head)
        elif not head.takes_body:
            if self._body_bytes > MOST_UNUSED_BODY:
                self._refuse(head, Refusal.no_body())
        elif self._body_bytes > self._limits.message_bytes:
            self._refuse(head, Refusal.too_large(self._limits.message_bytes))
        elif self._has_room():
            self._body.add(body)
        else:
            self._refuse(head, Refusal.no_room())

    def on_message_complete(self) -> None:
        head, parser = self._head, self._parser
        if head is not None and self._declared != 0 and parser.should_upgrade():
            # Not yet: its body is still to come.
            return
        self._head = None
        self._body_since = None
        self._bytes_since_body = 0
        if self.is_over or head is None:
            return
        if self._declared is None:
            # It may hold a trailer back.
            self._parser = httptools.HttpRequestParser(self)
        is_chunking, is_kept = parser.get_http_version() != "1.0", parser.should_keep_alive()
        reserved, self._reserved = self._reserved, 0
        self._receiver.arrived(CompleteRequest(head, self._take_body(), is_chunking, is_kept, reserved))

    # ── the body ──

    def _expects_body(self, head: RequestHead, declared: int) -> bool:
        """Whether the body will be read. If so, it has its room from now on."""
        if not head.takes_body:
            refusal = Refusal.no_body() if declared > MOST_UNUSED_BODY else None
        elif self._budget.reserve(declared - self._reserved, held=self._reserved):
            self._reserved = declared
            refusal = None
        else:
            refusal = Refusal.no_room()
        if refusal is not None:
            self._refuse(head, refusal)
        return refusal is None

    def _has_room(self) -> bool:
        """What comes in chunks reserves its room as it comes."""
        more = self._body_bytes - self._reserved
        if more > 0:
            if not self._budget.reserve(more, held=self._reserved):
                return False
            self._reserved += more
        return True

    def _refuse(self, head: RequestHead, refusal: Refusal) -> None:
        head.refusal = refusal
        self._drop_body()
        self._receiver.refused(head)

    def _drop_body(self) -> None:
        held = self._body.size
        self._body.clear()
        if held or self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._budget.drop(reserved, held)

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
