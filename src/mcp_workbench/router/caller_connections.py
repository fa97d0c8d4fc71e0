"""The connection that a request takes, and waiting until requests can be sent on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.clients import ClientPeer
from mcp_workbench.downstream.pool import Pool
from mcp_workbench.downstream.sharing import SHARED
from mcp_workbench.errors import DownstreamError
from mcp_workbench.router.routed_call import RoutedCall

if TYPE_CHECKING:
    from mcp_workbench.downstream.connection import Connection

# A server that was not of the era that was expected is looked for again: once in the other era, and once more should
# it have been replaced meanwhile.
MOST_HANDSHAKES: Final = 4
CHANGES_ERAS: Final = "the server speaks a different era of MCP each time it starts"


class CallerConnections:
    """Connections as callers reach them. Whoever uses one is known to it as a client that its server may ask."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def of_call(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        caller, client = call.route.caller, call.client
        connection = self._pool.connection(entry, caller)
        clients = connection.traffic.clients
        # Whoever used it last has joined, and most calls are theirs.
        if client is not clients.last and (client is not clients.passing or caller.client > SHARED):
            clients.join(client, caller.client > SHARED)
        return connection

    async def ready(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """The connection that this call uses, once requests can be sent on it. Raises `DownstreamError`.

        The handshake may show that the server speaks other eras than expected; then the call takes another connection.
        """
        for _ in range(MOST_HANDSHAKES):
            connection = self.of_call(entry, call)
            await connection.ensure_ready()
            if connection is self.of_call(entry, call):
                return connection
        raise DownstreamError(CHANGES_ERAS, hint="set `protocol` of this server to the revision that it speaks")

    def forget_client(self, client: ClientPeer) -> None:
        """A client with a session is gone: no server asks it anything any more."""
        for connection in self._pool.connections():
            connection.traffic.clients.leave(client)
        self._pool.end_client(client.caller.client)
