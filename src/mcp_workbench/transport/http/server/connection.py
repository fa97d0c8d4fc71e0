"""One TCP connection of a client: uvicorn's HTTP/1.1 protocol, with bounds on what it may make us wait and hold.

Owns deadlines for heads and bodies, the size of a head, the number of connections, and clients that do not read.
Imported only where HTTP is served, for uvicorn takes its time.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any, cast

from uvicorn.config import Config  # noqa: TID253
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: TID253
from uvicorn.server import ServerState  # noqa: TID253

from mcp_workbench.transport.http.server.endpoint import CONNECTION
from mcp_workbench.transport.http.server.limits import MOST_HEAD_BYTES, Limits


def _canned(status: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status


_TOO_MANY = _canned(b"503 Service Unavailable")
_TOO_SLOW = _canned(b"408 Request Timeout")
_HEAD_TOO_LARGE = _canned(b"431 Request Header Fields Too Large")


class Connections(ServerState):
    """All connections of one server."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self._second = 0

    def refresh_date(self) -> None:
        """RFC 9110 wants a `Date` on every response; it is written once a second, and only when somebody asks."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self.default_headers = [(b"date", formatdate(second, usegmt=True).encode())]


class Connection(HttpToolsProtocol):
    """A client's connection."""

    def __init__(self, config: Config, server_state: Connections, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state, asyncio.get_running_loop())
        self._all = server_state
        self._limits = server_state.limits
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_before = 0

    # For responses (`ClientConnection`)

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""
        self.transport.abort()

    # For asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connected. Who connects and says nothing does not stay."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._arm(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what was read. A timer runs only while the rest of a head or a body is still to come."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        elif self._timer is None and (self._in_body or (self._in_head and self._head_bytes)):
            self._arm(self._limits.body_seconds if self._in_body else self._limits.head_seconds)

    # For the parser

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._all.refresh_date()
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[CONNECTION] = self
        self._in_head = True

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._head_bytes = 0
        self._in_body = True
        self._body_bytes = 0
        self._body_since = self.loop.time()
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole. What follows is the head of the next one."""
        self._in_body = False
        self._in_head = True
        self._disarm()
        super().on_message_complete()

    # What happens after a while

    def timeout_keep_alive_handler(self) -> None:
        """Idle for long enough. An answer that is still being read is not idle; one that nobody reads is given up."""
        unsent = self.unsent_bytes
        if not unsent:
            super().timeout_keep_alive_handler()
        elif unsent == self._unsent_before:
            self.abort()
        else:
            self._unsent_before = unsent
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_body:
            earned = self._body_bytes / self._limits.body_rate
            left = self._body_since + self._limits.body_seconds + earned - self.loop.time()
            # Time that a body waits because we did not read it is not the client's.
            if left > 0 or self.flow.read_paused:
                self._arm(max(left, 1.0))
                return
        if self._in_body or self._head_bytes:
            self.transport.write(_TOO_SLOW)
        self.transport.close()
