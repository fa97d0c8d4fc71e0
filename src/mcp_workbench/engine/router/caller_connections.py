"""Finds the connection for a request, and waits until requests can be sent on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.clients import ClientPeer
from mcp_workbench.engine.downstream.pool import Pool
from mcp_workbench.engine.downstream.sharing import SHARED
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection

# If a server speaks a different era than expected, the connection is looked up again: once for the other era, and again
# if the server has been replaced meanwhile.
MAX_CONCURRENT_HANDSHAKES: Final = 4
CHANGES_ERAS: Final = "the server speaks a different era of MCP each time it starts"


class CallerConnections:
    """The connections of callers. Registers each caller with its connection as a client that the server may ask."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def of_call(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """The connection of this call, to list what the server offers."""
        connection = self._pool.connection(entry, call.route.caller)
        clients, client = connection.traffic.clients, call.client
        has_session = call.route.caller.client > SHARED
        if client is not clients.last and (client is not clients.passing or has_session):
            clients.join(client, has_session)
        return connection

    def is_replaced(self, entry: ServerEntry, call: RoutedCall) -> bool:
        """Whether a new configuration has removed this server, or has another one in its place. What was not sent to it
        yet has to be decided again."""
        return call.view.face.catalog.whole not in entry.catalogs

    def for_use(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """Like `of_call`, for a call that opens or uses the server: it keeps running while its client is connected."""
        caller, client, pool = call.route.caller, call.client, self._pool
        connection = pool.found.get((entry, caller)) or pool.connection(entry, caller)
        clients = connection.traffic.clients
        # The last client to use it holds it already, and most calls are from the same client.
        if client is not clients.holder:
            clients.hold(client, caller.client)
        return connection

    async def ready(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """Return the connection for this call, once requests can be sent on it. Raises `DownstreamError`.

        The handshake may show that the server speaks other eras than expected; then the call uses another connection.
        """
        for _ in range(MAX_CONCURRENT_HANDSHAKES):
            connection = self.for_use(entry, call)
            await connection.ensure_ready()
            if connection is self.for_use(entry, call):
                return connection
        raise DownstreamError(CHANGES_ERAS, hint="set `protocol` of this server to the revision that it speaks")

    def is_busy(self) -> bool:
        """Whether any call is in progress."""
        return any(connection.traffic.call_count for connection in self._pool.connections())

    def forget_client(self, client: ClientPeer) -> None:
        """Remove a client whose session has ended, so that no server asks it anything."""
        for connection in self._pool.connections():
            connection.release(client)
        self._pool.end_client(client.caller.client)


class CallerReach:
    """How the requests of one call's client reach servers (`engine.router.lists.ServerReach`)."""

    __slots__ = ("_call", "_connections")

    def __init__(self, connections: CallerConnections, call: RoutedCall) -> None:
        self._connections = connections
        self._call = call

    def __call__(self, entry: ServerEntry) -> Connection:
        return self._connections.of_call(entry, self._call)

    def is_busy(self) -> bool:
        return self._connections.is_busy()
