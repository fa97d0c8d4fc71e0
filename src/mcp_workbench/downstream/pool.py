"""Which callers share which connection.

A connection belongs to a key: toolbox, server, principal, and the capabilities that the client declared. So toolboxes
never share a server process, users never do, and a server is always told the capabilities of the client it really
talks to; sessions of one user that can do the same share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.connection import Connection, LinkOpener
from mcp_workbench.errors import DownstreamError
from mcp_workbench.protocol.meta import ClientIdentity

# toolbox, server, principal, capabilities
Key = tuple[str, str, str, bytes]


# Connections to one server that one principal may have at once, for different capabilities of its clients.
MOST_VARIANTS: Final = 16
# Log levels that are remembered for servers to come, of clients that differ in what they can do.
MOST_LOG_LEVELS: Final = 256
CLOSING: Final = "the workbench is shutting down"
NO_ROOM: Final = f"{MOST_VARIANTS} kinds of clients, which declare different capabilities, use this server already"
GIVEN_UP: Final = "this connection was given up to make room for another kind of client"


class Pool:
    """All connections of this process."""

    def __init__(
        self,
        catalog: Catalog,
        own_info: bytes,
        open_link: LinkOpener,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
    ) -> None:
        self._catalog = catalog
        self._own_info = own_info
        self._open_link = open_link
        self._start_task = start_task
        self._connections: dict[Key, Connection] = {}
        # Given up to make room, and maybe still on their way out.
        self._retired: list[Connection] = []
        self._log_levels: dict[tuple[str, bytes], str] = {}
        self.is_closing = False

    def connection(self, entry: ServerEntry, principal: str, capabilities: bytes) -> Connection:
        """The connection for these callers; made, but not started, if there is none yet."""
        key = (entry.toolbox, entry.config.name, principal, capabilities)
        connection = self._connections.get(key)
        if connection is None:
            identity = ClientIdentity(self._own_info, capabilities)
            connection = Connection(entry, self._catalog, identity, self._open_link, self._start_task)
            connection.watch.log_level = self._log_levels.get((principal, capabilities))
            if self.is_closing:
                connection.retire(DownstreamError(CLOSING))
            elif entry.config.unresolved:
                assert entry.failure is not None
                connection.retire(entry.failure)
            elif not self._make_room(key):
                # Not kept: whoever asks next may find room.
                connection.retire(DownstreamError(NO_ROOM, hint="try again when they are done"))
                return connection
            self._connections[key] = connection
        return connection

    def _make_room(self, key: Key) -> bool:
        """A client that declares other capabilities with each request must not start a server for each of them."""
        shared = [(other, each) for other, each in self._connections.items() if other[:3] == key[:3]]
        if len(shared) < MOST_VARIANTS:
            return True
        self._retired = [each for each in self._retired if each.is_running]
        idle = [(other, each) for other, each in shared if each.is_idle]
        if not idle or len(self._retired) >= MOST_VARIANTS:
            return False
        other, connection = min(idle, key=lambda pair: pair[1].traffic.last_used)
        connection.retire(DownstreamError(GIVEN_UP, hint="call again"))
        del self._connections[other]
        self._retired.append(connection)
        return True

    def used_by(self, principal: str, capabilities: bytes) -> list[Connection]:
        """The connections that these callers share."""
        return [each for key, each in self._connections.items() if key[2:] == (principal, capabilities)]

    def set_log_level(self, principal: str, capabilities: bytes, level: str) -> None:
        """For all connections of these callers, those to come included."""
        self._log_levels.pop((principal, capabilities), None)
        if len(self._log_levels) >= MOST_LOG_LEVELS:
            # The oldest: a client that still wants one says so again when it connects.
            del self._log_levels[next(iter(self._log_levels))]
        self._log_levels[principal, capabilities] = level
        for connection in self.used_by(principal, capabilities):
            connection.watch.set_log_level(level)

    def connections(self) -> list[Connection]:
        """Every connection there is, in the order they were made."""
        return list(self._connections.values())

    async def close(self) -> None:
        """Stop every server, side by side, and wait until nothing is left of them."""
        self.is_closing = True
        for connection in self.connections():
            connection.retire(DownstreamError(CLOSING))
        await asyncio.gather(*(each.wait_stopped() for each in (*self.connections(), *self._retired)))
