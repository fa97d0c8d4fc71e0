"""All connections of one server, and the limits they share.

Owns which clients are connected and authenticated, how many wait for a response, which of them do not read their
responses, the cached heads, the batch of writes, and the `Date` header. Knows nothing about HTTP (`InboundConnection`)
or about what is served (`Application`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from mcp_workbench.engine.transport.allocator import trim_soon
from mcp_workbench.engine.transport.http.server.admission import Refusal
from mcp_workbench.engine.transport.http.server.authentication import Authentication
from mcp_workbench.engine.transport.http.server.body_budget import BodyBudget
from mcp_workbench.engine.transport.http.server.head_cache import HeadCache, UnsharedHeads
from mcp_workbench.engine.transport.http.server.limits import CROWD, Limits
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import Headers, ResponseWriter, whole_json_head
from mcp_workbench.engine.transport.http.server.unauthenticated_connections import UnauthenticatedConnections
from mcp_workbench.engine.transport.pieces import Pieces
from mcp_workbench.engine.transport.shared_timer import SharedTimer
from mcp_workbench.engine.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection


class Application(Protocol):
    """Answers requests: decides on the head, then serves the complete request."""

    # Whether equal heads may be different callers, so that a cached head is valid for its own connection only.
    depends_on_peer: bool
    # The headers that are read; all others are dropped.
    header_names: Mapping[bytes, str]

    def admit(self, head: RequestHead) -> Refusal | None:
        """Whether to admit a request, decided on its head alone. If `head.pending` is set, the decision comes later."""

    def admit_known(self, head: RequestHead, caller: Authentication) -> Refusal | None:
        """Decide on a head whose `pending` authentication has completed."""

    def is_still_admitted(self, head: RequestHead) -> bool:
        """Whether a head that was admitted before still is."""

    def serve(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> asyncio.Future[None] | None:
        """Answer a request, now or later. If a future is returned, the body is held until it is done."""

    def refuse(self, head: RequestHead, refusal: Refusal, writer: ResponseWriter) -> None:
        """Answer a request that is not admitted. Its body may not have been read."""


class Connections:
    """All connections of one server."""

    def __init__(self, application: Application, limits: Limits, batch: WriteBatch | None = None) -> None:
        """`batch`: that of the servers over stdio, so that what one read brings leaves together."""
        self.application = application
        self.limits = limits
        self.open: set[InboundConnection] = set()
        self.unauthenticated = UnauthenticatedConnections(limits)
        # A single message of the largest size must always fit.
        self.bodies = BodyBudget(max(limits.body_bytes_in_all, limits.message_bytes))
        self.header_names = application.header_names
        self.heads = UnsharedHeads() if application.depends_on_peer else HeadCache()
        self.batch = WriteBatch() if batch is None else batch
        self.upload_turns = UploadTurns()
        # How many connections wait for a response of which nothing has been written yet.
        self.owing = 0
        # Timeouts are late by at most this.
        self.timer: SharedTimer[InboundConnection] = SharedTimer(min(limits.head_seconds, limits.body_seconds) / 4)
        # Connections that do not read their responses, longest stalled first.
        self._stalled: dict[InboundConnection, None] = {}
        self._most = 0
        # The `Date` header, the head of a whole answer in JSON up to its length, and until when they hold, by the clock
        # of the loop, which is read anyway.
        self._date: Headers = b""
        self.json_head: Headers = b""
        self.dated_until = 0.0

    def enter(self, connection: InboundConnection) -> bool:
        """Register a new connection. False if there are too many."""
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
        """Remove a connection. After a crowd has left, its memory is returned to the system."""
        self.open.discard(connection)
        self.timer.discard(connection)
        self.unauthenticated.discard(connection)
        self._stalled.pop(connection, None)
        if self._most >= CROWD and len(self.open) < self._most // 4:
            self._most = len(self.open)
            trim_soon(asyncio.get_running_loop())

    def _make_room(self, newcomer: InboundConnection) -> None:
        """Close unauthenticated connections if there are too many of them."""
        while True:
            is_full = len(self.open) >= self.limits.connections
            surplus = self.unauthenticated.surplus(newcomer.peer, newcomer.since, is_full=is_full)
            if surplus is None:
                return
            self.leave(surplus)
            surplus.abort()

    def stall(self, connection: InboundConnection) -> None:
        """A client has stopped reading its responses."""
        self._stalled[connection] = None
        # Not now: the caller may be writing to this connection, which must not be closed under it.
        asyncio.get_running_loop().call_soon(self.drop_beyond)

    def flow(self, connection: InboundConnection) -> None:
        self._stalled.pop(connection, None)

    def progressed(self, connection: InboundConnection) -> None:
        """A stalled client has read something since."""
        if connection in self._stalled:
            self._stalled[connection] = self._stalled.pop(connection)

    def drop_beyond(self, newcomer: InboundConnection | None = None, size: int = 0) -> None:
        """Drop the longest-stalled connections until the unread bytes of the rest are within the limit. `size` bytes
        are about to be written to `newcomer`; they count, but it is not dropped for them."""
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
        """RFC 9110 requires `Date` on every response; it is formatted at most once a second, when needed."""
        now = asyncio.get_running_loop().time()
        if now >= self.dated_until:
            self.date_again(now)
        return self._date

    def date_again(self, now: float) -> Headers:
        """Format the date; return the head of a whole answer in JSON, up to its length."""
        second, fraction = divmod(time.time(), 1)
        self.dated_until = now + 1 - fraction
        self._date = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        self.json_head = whole_json_head(self._date)
        return self.json_head


class Uploading(Protocol):
    """A connection on which a large body arrives, and which is not read from at the moment."""

    def read_turn(self) -> None:
        """Read once."""


class UploadTurns:
    """Whose large body is read next, while several arrive.

    The event loop reads a connection for as long as there is something to read, several megabytes if the client is
    fast, and then the next one. Here each principal has one read in each iteration of the loop, however many
    connections it uploads on; requests of others are served in between.
    """

    __slots__ = ("_is_scheduled", "_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, deque[Uploading]] = {}
        self._is_scheduled = False

    def __repr__(self) -> str:
        return f"<UploadTurns, {sum(map(len, self._waiting.values()))} of {len(self._waiting)} principals waiting>"

    def wait(self, principal: str, connection: Uploading) -> None:
        """Call `read_turn` when it is this connection's turn."""
        self._waiting.setdefault(principal, deque()).append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        for principal in list(self._waiting):
            queue = self._waiting[principal]
            connection = queue.popleft()
            if not queue:
                del self._waiting[principal]
            connection.read_turn()
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._next_turn)
