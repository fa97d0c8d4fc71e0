"""One TCP connection of a client: HTTP/1.1, requests in, responses out, with bounds on what it makes us wait and hold.

Written on `httptools`, which parses, as a plain asyncio protocol: a request costs neither a task nor a switch to one.
Measured at 32 in flight, a general server with its application protocol takes 37 µs for a request that does nothing,
more than everything we do with one.

Owns deadlines for heads and bodies, their sizes, the order of responses, and clients that do not read. Refuses to know
what is served: a `Site` decides on the head of a request whether it comes in, and answers it when it is whole; and what
all connections hold together (`Connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from typing import Any, Final, cast

import httptools  # noqa: TID253 (loaded only where HTTP is served)

from mcp_workbench.transport.http.server.admission import Refusal
from mcp_workbench.transport.http.server.arrival import NAMES, PARAMETER_PREFIX, Arrival, path_of, shown_again
from mcp_workbench.transport.http.server.connections import Connections
from mcp_workbench.transport.http.server.known_heads import HeadsOfClient
from mcp_workbench.transport.http.server.limits import (
    LINGER_BYTES,
    LINGER_SECONDS,
    MOST_HEAD_BYTES,
    MOST_PIPELINED,
    SMALL_BODY,
)
from mcp_workbench.transport.http.server.outlet import Outlet
from mcp_workbench.transport.memory import KEPT_BYTES, give_back_soon

log = logging.getLogger(__name__)

# On, and no seconds: closing means a reset.
_DISCARD: Final = struct.pack("ii", 1, 0)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.Protocol):
    """A client's connection."""

    __slots__ = (
        "_arrival",
        "_body",
        "_body_bytes",
        "_body_since",
        "_connections",
        "_first_read",
        "_has_served",
        "_head_bytes",
        "_head_since",
        "_heads",
        "_is_declining",
        "_is_lingering",
        "_is_owing",
        "_limits",
        "_loop",
        "_outlet",
        "_parser",
        "_queue",
        "_quiet_since",
        "_soon",
        "_stalled_since",
        "_transport",
        "_unsent_before",
        "_url",
        "date",
        "is_chunking",
        "is_kept",
    )

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: Any = httptools.HttpRequestParser(self)
        # The request that is arriving; None between two of them.
        self._arrival: Arrival | None = None
        self._url = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._body_since: float | None = None
        self._head_bytes = 0
        self._head_since: float | None = None
        # What was read when the request that is arriving began; empty where it began in the middle of something.
        self._first_read = b""
        self._heads = HeadsOfClient(connections.heads)
        # The response that is under way, and requests that came before it was whole.
        self._outlet: Outlet | None = None
        self._queue: deque[tuple[Arrival, bytes, bool, bool]] = deque()
        # A whole response that leaves at the end of this turn.
        self._soon = b""
        self._is_owing = False
        self._is_lingering = False
        self._is_declining = False
        self._has_served = False
        self._quiet_since = 0.0
        self._unsent_before = 0
        # Since when the client has not read what it asked for; None as long as it does.
        self._stalled_since: float | None = None
        self.is_chunking = True
        self.is_kept = True
        self.date = connections.date

    def __repr__(self) -> str:
        state = "lingering" if self._is_lingering else "quiet" if self._outlet is None else "responding"
        state += "" if self._stalled_since is None else ", stalled"
        return f"<Connection {state}, {self.unsent_bytes} bytes unsent>"

    # ── for responses (`Wire`) ──

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        try:
            return self._transport.get_write_buffer_size() + len(self._soon)
        except RuntimeError:
            # uvloop, of a transport that is closed.
            return 0

    def write(self, data: bytes) -> None:
        """Send."""
        self._settle()
        if self._soon:
            self.flush()
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Send: at the end of this turn where others wait too, else at once."""
        if self._soon or self._connections.owing < 2:
            self.write(data)
        else:
            self._soon = data
            self._connections.turn.add(self)

    def flush(self) -> None:
        """Send what was to be sent soon (`Writer`)."""
        data, self._soon = self._soon, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def responded(self) -> None:
        """The response is whole: the next request may be answered."""
        self._outlet = None
        self._settle()
        self._has_served = True
        self._quiet_since = self._loop.time()
        if not self.is_kept:
            self._linger_or_close()
        elif self._queue:
            # Not from within: whoever has just answered may still be at it.
            self._loop.call_soon(self._serve_next)

    def abort(self) -> None:
        """Close at once; what is unsent is dropped, also what the kernel has taken, which would stay for minutes."""
        unsent = self._transport.get_extra_info("socket")
        if unsent is not None:
            with contextlib.suppress(OSError):
                unsent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        if self.unsent_bytes > self._limits.unread_bytes:
            give_back_soon(self._loop)
        self._transport.abort()

    def finish(self) -> None:
        """We are going down: close when what is under way is done."""
        if self._outlet is None:
            self.flush()
            self._transport.close()
        else:
            self.is_kept = False

    # ── for asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._quiet_since = self._loop.time()
        self._transport.set_write_buffer_limits(self._limits.pause_bytes)
        if len(self._connections.open) >= self._limits.connections:
            self.is_kept = False
            self._refuse_bluntly(503)
            return
        self._connections.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._connections.leave(self)
        self._soon = b""
        self._first_read = b""
        self._heads.forget()
        self._queue.clear()
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            self._settle()
            outlet.disconnected()
        # It refers back to us.
        self._parser = None

    def eof_received(self) -> bool:
        """The client has said all it will. One that waits for an answer is taken for gone, as all servers do."""
        self.flush()
        return False

    def pause_writing(self) -> None:
        """The client does not read: it is not read from either, so that it cannot ask for more."""
        self._stalled_since = self._loop.time()
        self._unsent_before = self.unsent_bytes
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._connections.stall(self)

    def resume_writing(self) -> None:
        """It reads again."""
        self._stalled_since = None
        self._connections.flow(self)
        if self._queue:
            self._loop.call_soon(self._serve_next)
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take in what was read."""
        if self._is_lingering:
            self._body_bytes += len(data)
            if self._body_bytes > LINGER_BYTES:
                self.abort()
            return
        if self._arrival is None:
            if self._outlet is None and not self._queue and self._stalled_since is None and self._serve_known(data):
                return
            self._first_read = data
        if self._body_since is None:
            self._head_bytes += len(data)
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            if not self._is_lingering:
                cause = error.__context__
                if cause is not None and not isinstance(cause, httptools.HttpParserError):
                    log.error("a defect of ours; please report it", exc_info=cause)
                self._refuse_bluntly(400 if cause is None else 500)
            return
        if rest is not None:
            # Here, where what goes wrong with the rest is not taken for a consequence of ours.
            self._decline_upgrade(rest)
        elif self._head_bytes > MOST_HEAD_BYTES and self._body_since is None and self._head_since is not None:
            self._refuse_bluntly(431)

    def _serve_known(self, data: bytes) -> bool:
        """A whole request whose head has been here before, but for its length, is not taken apart again."""
        arrival, end = self._heads.find(data)
        if arrival is None or len(data) - end > self._limits.message_bytes or self._transport.is_closing():
            return False
        site = self._connections.site
        if not site.is_still_admitted(arrival):
            return False
        self.is_chunking = True
        site.serve(arrival, data[end:], self._begin())
        return True

    def _decline_upgrade(self, rest: bytes) -> None:
        """The client would like another protocol, as Java's does with each request; it gets this one.

        The parser stops after such a head, so another one takes over. It is shown as much of the head as it needs to
        know where the body ends.
        """
        version, is_kept = self._parser.get_http_version(), self._parser.should_keep_alive()
        self._parser = httptools.HttpRequestParser(self)
        arrival = self._arrival
        if arrival is not None:
            head = shown_again(arrival, version, is_kept)
            if head is None:
                self._refuse_bluntly(400)
                return
            self._is_declining = True
            self._parser.feed_data(head)
            self._is_declining = False
        if rest and not self._transport.is_closing():
            self.data_received(rest)

    # ── for the parser ──

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._is_declining:
            return
        self._arrival = Arrival()
        self._url = b""
        self._head_since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        if not self._is_declining:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Those that we do not look at are dropped here."""
        if self._is_declining:
            return
        known = NAMES.get(name) or NAMES.get(name.lower())
        arrival = self._arrival
        assert arrival is not None
        if known is None:
            if name[: len(PARAMETER_PREFIX)].lower() == PARAMETER_PREFIX:
                arrival.add_parameter(name, value)
        elif known in arrival.headers:
            arrival.add_again(known, value)
        else:
            arrival.headers[known] = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole: decide whether it comes in."""
        if self._is_declining:
            return
        arrival = self._arrival
        assert arrival is not None
        self._head_bytes, self._head_since = 0, None
        self._body_bytes, self._body_since = 0, self._loop.time()
        if self._is_lingering:
            return
        arrival.method = self._parser.get_method().decode("latin-1")
        arrival.path = path_of(self._url)
        arrival.refusal = self._connections.site.admit(arrival)
        if arrival.refusal is not None and arrival.is_large:
            # It will not be read.
            self._refuse_now(arrival)
        elif arrival.expects_continue and arrival.refusal is None and self._outlet is None:
            self.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        arrival = self._arrival
        if self._is_lingering or arrival is None:
            return
        if arrival.refusal is not None:
            if self._body_bytes > SMALL_BODY:
                self._refuse_now(arrival)
        elif self._body_bytes > self._limits.message_bytes:
            arrival.refusal = Refusal.too_large(self._limits.message_bytes)
            self._body.clear()
            self._refuse_now(arrival)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._parser.should_upgrade() and self._arrival is not None and self._arrival.declared_bytes != 0:
            # Not yet: its body is still to come.
            return
        arrival, self._arrival = self._arrival, None
        self._body_since = None
        if self._is_lingering or arrival is None:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._body:
            self._body = []
            if self._body_bytes > KEPT_BYTES:
                give_back_soon(self._loop)
        is_chunking = self._parser.get_http_version() != "1.0"
        is_kept = self._parser.should_keep_alive()
        if is_chunking and is_kept and arrival.refusal is None:
            self._heads.learn(self._first_read, arrival)
        self._first_read = b""
        if self._outlet is not None or self._queue or self._stalled_since is not None:
            self._queue.append((arrival, body, is_chunking, is_kept))
            self._transport.pause_reading()
            if len(self._queue) > MOST_PIPELINED:
                self.abort()
        else:
            self._serve(arrival, body, is_chunking, is_kept)

    # ── what is done with a request ──

    def _begin(self, *, without_body: bool = False) -> Outlet:
        """A response is owed from now on."""
        self._is_owing = True
        self._connections.owing += 1
        self._outlet = outlet = Outlet(self, without_body=without_body)
        return outlet

    def _settle(self) -> None:
        """It is on its way, or nobody waits for it any more."""
        if self._is_owing:
            self._is_owing = False
            self._connections.owing -= 1

    def _serve(self, arrival: Arrival, body: bytes, is_chunking: bool, is_kept: bool) -> None:
        self.is_chunking = is_chunking
        self.is_kept = self.is_kept and is_kept
        outlet = self._begin(without_body=arrival.method == "HEAD")
        site = self._connections.site
        if arrival.refusal is not None:
            site.refuse(arrival, arrival.refusal, outlet)
        else:
            site.serve(arrival, body, outlet)

    def _serve_next(self) -> None:
        if self._stalled_since is None and self._queue and self._outlet is None and not self._transport.is_closing():
            self._serve(*self._queue.popleft())
            if not self._queue and self._stalled_since is None:
                self._transport.resume_reading()

    def _refuse_now(self, arrival: Arrival) -> None:
        """Answer before the body has come; the connection cannot be used again."""
        assert arrival.refusal is not None
        if self._outlet is not None or self._queue:
            # Another response is under way on it; ours cannot overtake that.
            self.abort()
            return
        self.is_kept = False
        self._connections.site.refuse(arrival, arrival.refusal, self._begin(without_body=arrival.method == "HEAD"))

    def _refuse_bluntly(self, status: int) -> None:
        """Answer somebody whose request cannot even be read."""
        if self._outlet is not None or self._queue:
            self.abort()
            return
        self.is_kept = False
        self._begin().answer(status, b"")

    def _linger_or_close(self) -> None:
        """Close, but let a client that is still sending get to see the response: an early close would destroy it."""
        self.flush()
        if self._body_since is None and self._head_since is None:
            self._transport.close()
            return
        self._is_lingering = True
        self._body_bytes = 0
        self._quiet_since = self._loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # ── after a while ──

    def on_sweep(self, now: float) -> None:
        """Whoever makes us wait for too long goes."""
        if self._is_lingering:
            if now - self._quiet_since > LINGER_SECONDS:
                self.abort()
        elif self._stalled_since is not None:
            self._on_stalled(now)
        elif self._body_since is not None:
            patience = self._limits.body_seconds + self._body_bytes / self._limits.body_rate
            if now - self._body_since > patience:
                self._refuse_bluntly(408)
        elif self._outlet is not None:
            # It waits for us; whether it reads is the response's to watch.
            pass
        elif self._head_since is not None:
            if now - self._head_since > self._limits.head_seconds:
                self._refuse_bluntly(408)
        else:
            self._on_quiet(now)

    def _on_stalled(self, now: float) -> None:
        unsent, before = self.unsent_bytes, self._unsent_before
        self._unsent_before = unsent
        if unsent < before:
            # It takes something, however slowly.
            self._stalled_since = now
        elif now - (self._stalled_since or now) > self._limits.unread_seconds:
            self.abort()
            return
        self._connections.drop_beyond()

    def _on_quiet(self, now: float) -> None:
        unsent = self.unsent_bytes
        if unsent and unsent != self._unsent_before:
            # An answer that is being read, however slowly.
            self._unsent_before = unsent
            self._quiet_since = now
        elif now - self._quiet_since > (
            self._limits.keep_alive_seconds if self._has_served else self._limits.head_seconds
        ):
            if unsent:
                self.abort()
            else:
                self._transport.close()
