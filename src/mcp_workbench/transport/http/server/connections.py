"""All connections of one server, and what they may make us hold together.

Owns who is connected and who of them has authenticated, how many wait for a response, which of them do not read what
they asked for, the heads that are known, what is written in one batch, and the `Date` that all of them send.
Refuses to know how a connection speaks (`InboundConnection`) and what is served (`Application`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from mcp_workbench.transport.allocator import trim_soon
from mcp_workbench.transport.http.server.admission import Refusal
from mcp_workbench.transport.http.server.authentication import Authentication
from mcp_workbench.transport.http.server.body_budget import BodyBudget
from mcp_workbench.transport.http.server.head_cache import HeadCache, UnsharedHeads
from mcp_workbench.transport.http.server.limits import CROWD, Limits
from mcp_workbench.transport.http.server.request_head import RequestHead
from mcp_workbench.transport.http.server.response_writer import Headers, ResponseWriter
from mcp_workbench.transport.http.server.unauthenticated_connections import UnauthenticatedConnections
from mcp_workbench.transport.pieces import Pieces
from mcp_workbench.transport.shared_timer import SharedTimer
from mcp_workbench.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    from mcp_workbench.transport.http.server.server_connection import InboundConnection


class Application(Protocol):
    """What answers requests: decides on the head, then serves the whole."""

    # Whether the same head may be anybody's, so that none is known for others than the connection it came on.
    depends_on_peer: bool
    # The headers that are looked at.
    header_names: Mapping[bytes, str]

    def admit(self, head: RequestHead) -> Refusal | None:
        """Whether a request comes in, decided on its head alone. Where `head.pending` is set, that is known later."""

    def admit_known(self, head: RequestHead, caller: Authentication) -> Refusal | None:
        """The same for a head of which it is known by now who is calling."""

    def is_still_admitted(self, head: RequestHead) -> bool:
        """Whether a head that came in before does so now."""

    def serve(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> asyncio.Future[None] | None:
        """Answer a request, now or later. Where a future is returned, its body is held until that is done."""

    def refuse(self, head: RequestHead, refusal: Refusal, writer: ResponseWriter) -> None:
        """Answer a request that does not come in. Its body may not have been read."""


class Connections:
    """All connections of one server."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.open: set[InboundConnection] = set()
        self.unauthenticated = UnauthenticatedConnections(limits)
        # A message of the largest size must find room when it is alone.
        self.bodies = BodyBudget(max(limits.body_bytes_in_all, limits.message_bytes))
        self.header_names = application.header_names
        self.heads = UnsharedHeads() if application.depends_on_peer else HeadCache()
        self.batch = WriteBatch()
        # How many wait for a response of which nothing has been written yet.
        self.owing = 0
        # What happens after a while is late by at most this.
        self.timer: SharedTimer[InboundConnection] = SharedTimer(min(limits.head_seconds, limits.body_seconds) / 4)
        # Those that have not read what they asked for, whoever has been at it for longest first.
        self._stalled: dict[InboundConnection, None] = {}
        self._most = 0
        self._second = 0
        self._date: Headers = b""

    def enter(self, connection: InboundConnection) -> bool:
        """Somebody connected. False where there is no room."""
        self._make_room(connection)
        if len(self.open) >= self.limits.connections:
            return False
        self.open.add(connection)
        self.timer.add(connection)
        self.unauthenticated.add(connection)
        self._most = max(self._most, len(self.open))
        return True

    def recognise(self, connection: InboundConnection) -> None:
        connection.has_authenticated = True
        self.unauthenticated.discard(connection)

    def leave(self, connection: InboundConnection) -> None:
        """Somebody is gone. When a crowd is, the memory that it took is given back."""
        self.open.discard(connection)
        self.timer.discard(connection)
        self.unauthenticated.discard(connection)
        self._stalled.pop(connection, None)
        if self._most >= CROWD and len(self.open) < self._most // 4:
            self._most = len(self.open)
            trim_soon(asyncio.get_running_loop())

    def _make_room(self, newcomer: InboundConnection) -> None:
        """Close connections that have not authenticated, where there are too many of them."""
        while True:
            is_full = len(self.open) >= self.limits.connections
            surplus = self.unauthenticated.surplus(newcomer.peer, newcomer.since, is_full=is_full)
            if surplus is None:
                return
            self.leave(surplus)
            surplus.abort()

    def stall(self, connection: InboundConnection) -> None:
        """A client does not read what it asked for."""
        self._stalled[connection] = None
        # Not from within: whoever is writing to it may not be done, and its connection must not end under it.
        asyncio.get_running_loop().call_soon(self.drop_beyond)

    def flow(self, connection: InboundConnection) -> None:
        self._stalled.pop(connection, None)

    def progressed(self, connection: InboundConnection) -> None:
        """One of those that do not read has read something since."""
        if connection in self._stalled:
            self._stalled[connection] = self._stalled.pop(connection)

    def drop_beyond(self, newcomer: InboundConnection | None = None, size: int = 0) -> None:
        """Drop those who have not read for longest, until the others do not hold too much; together with so many bytes
        that are about to be written to the newcomer, who is not dropped for them."""
        unread = size + sum(connection.unsent_bytes for connection in self._stalled)
        for connection in list(self._stalled):
            if unread <= self.limits.unread_bytes_in_all:
                break
            if connection is newcomer:
                continue
            unread -= connection.unsent_bytes
            del self._stalled[connection]
            connection.abort()

    def date(self) -> Headers:
        """RFC 9110 wants a `Date` on every response; it is written once a second, and only when somebody asks."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._date = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._date
