"""All connections of this process, and which of them a caller uses.

`sharing.connection_key` decides who shares a connection; this module keeps the connections by key. A server's era is a
guess until the handshake, so a connection may turn out to belong under a different key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog, Servers
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.clients import ClientPeer, ForwardedCall
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.sharing import (
    ASKABLE,
    SHARED,
    Caller,
    ConnectionKey,
    connection_key,
    declared_capabilities,
    era_for,
    expected_revision,
    owner_of,
)
from mcp_workbench.engine.protocol.logging_levels import LEVELS
from mcp_workbench.engine.protocol.meta import usable
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.downstream.server_link import LinkOpener

# How many connections to one server a principal may have at once, for clients with different capabilities.
MAX_CONNECTION_VARIANTS: Final = 16
# How many unshared connections a principal may have to one server that asks questions: one for each client, or for each
# call of clients without a session. Beyond that, clients share, and a question that could be any client's is refused.
MAX_OWN_CONNECTIONS: Final = 32
# How many clients of one principal may have their own process of a stateful server (`share`: `"session"`). Sharing one
# would mix up their state, so further clients are refused.
MAX_SUBSCRIPTIONS_PER_CLIENT: Final = 64
# How many log levels of clients are kept for servers that start later.
MAX_LOG_LEVELS: Final = 256
# How many pairs of server and caller have their connection cached, without computing its key. Modern clients may
# declare different capabilities with each request; beyond this limit, the cache is cleared.
MAX_CACHED_CONNECTION_KEYS: Final = 4096
SHUTTING_DOWN: Final = "the workbench is shutting down"
NO_ROOM: Final = f"clients with {MAX_CONNECTION_VARIANTS} different sets of capabilities already use this server"
NO_ROOM_ALONE: Final = f"{MAX_SUBSCRIPTIONS_PER_CLIENT} clients already have a process of this server each"
CLIENT_DISCONNECTED: Final = "the client of this connection has disconnected"
EVICTED: Final = "this connection was closed to make room for a client with other capabilities"
SURPLUS: Final = "another connection now serves these callers"


class Pool:
    def __init__(
        self,
        servers: Servers,
        own_info: bytes,
        open_link: LinkOpener,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        on_session_end: Callable[[ServerEntry, str, float], None] = lambda entry, version, seconds: None,
        conceal: Callable[[str], str] = str,
    ) -> None:
        """`on_session_end`: told which server has ended after it was ready, its revision, and how long that was.
        `conceal`: redacts secrets in reports about servers."""
        self._servers = servers
        self.on_session_end = on_session_end
        self.conceal = conceal
        self._own_info = own_info
        self._open_link = open_link
        # Without the context of the request that happens to start a server: its groups are not those of later ones.
        self._start_task = lambda work: Context().run(start_task, work)
        self._connections: dict[ConnectionKey, Connection] = {}
        # Their keys by server: each user has its own entries, so there are few for each and many in all.
        self._keys: dict[ServerEntry, dict[ConnectionKey, None]] = {}
        # The same by caller, for the path of every call.
        self.found: dict[tuple[ServerEntry, Caller], Connection] = {}
        # Evicted or superfluous connections that may still be stopping.
        self._retired: list[Connection] = []
        # The log level of each client, with its principal and capabilities.
        self._log_levels: dict[tuple[int, str, bytes], tuple[str, Catalog]] = {}
        self.is_closing = False
        # Whether there may be several clients, so that it matters which of them share.
        self._serves_many = False
        # Clients for a single call, which use any running connection rather than start a server.
        self._borrowers: set[int] = set()
        servers.on_asking.append(self._make_own)
        servers.on_replaced.append(self._on_replaced)

    def connection(self, entry: ServerEntry, caller: Caller) -> Connection:
        """The connection for this caller; created, but not started, if there is none yet."""
        return self.found.get((entry, caller)) or self._find(entry, caller)

    def _find(self, entry: ServerEntry, caller: Caller) -> Connection:
        if self._serves_many:
            self._note_state(entry)
        placed = caller
        if caller.client in self._borrowers:
            # If a server of both eras has to be started, use the era of most clients; questions are bridged.
            placed = replace(caller, era="modern")
        key = connection_key(entry, placed, serves_many=self._serves_many)
        if placed is not caller and key not in self._connections:
            lent = self._lent(entry, placed)
            if lent is not None:
                # Not cached: it may end before the client's next call.
                return lent
        has_room = key in self._connections or not key.client or self._has_room_for_own(key)
        if not has_room and not entry.per_client:
            key = key._replace(client=SHARED)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._make(entry, placed, key.client)
            if self.is_closing:
                connection.retire(DownstreamError(SHUTTING_DOWN))
            elif entry.ended is not None:
                # Not cached: only calls that were decided earlier get here.
                connection.retire(entry.ended)
                return connection
            elif entry.config.unresolved:
                assert entry.failure is not None
                connection.retire(entry.failure)
            elif key.client and not has_room:
                connection.retire(DownstreamError(NO_ROOM_ALONE, hint="try again when one of them has ended"))
                return connection
            elif not self._make_room(key):
                # Not cached: there may be room for the next caller.
                connection.retire(DownstreamError(NO_ROOM, hint="try again when they are done"))
                return connection
            self._enter(key, connection)
        if len(self.found) >= MAX_CACHED_CONNECTION_KEYS:
            self.found.clear()
        self.found[entry, caller] = connection
        return connection

    def _enter(self, key: ConnectionKey, connection: Connection) -> None:
        self._connections[key] = connection
        self._keys.setdefault(key.entry, {})[key] = None

    def _remove(self, key: ConnectionKey) -> Connection:
        keys = self._keys[key.entry]
        del keys[key]
        if not keys:
            del self._keys[key.entry]
        return self._connections.pop(key)

    def _of_server(self, entry: ServerEntry, owner: str) -> list[tuple[ConnectionKey, Connection]]:
        """The connections that this owner has to a server, for clients of all kinds."""
        return [(key, self._connections[key]) for key in self._keys.get(entry, ()) if key.principal == owner]

    def lend_to(self, client: int) -> None:
        """Let this client use a running connection of other clients if it has none itself."""
        self._borrowers.add(client)

    def end_lending(self, client: int) -> None:
        """From now on, treat this client like any other."""
        self._borrowers.discard(client)

    def _lent(self, entry: ServerEntry, caller: Caller) -> Connection | None:
        """A running connection that this client can borrow. If the server asks questions, it must be able to ask this
        client: a legacy connection declared what others can answer, and may be in the middle of their calls."""
        is_asked = entry.asks and any(word in caller.capabilities for word in ASKABLE)
        owner = owner_of(entry, caller.principal)
        for key, connection in self._of_server(entry, owner):
            if key.client or connection.state is not State.READY:
                continue
            if not is_asked or (connection.revision is not None and connection.revision.asks_in_results):
                return connection
        return None

    def _make(self, entry: ServerEntry, caller: Caller, client: int) -> Connection:
        # Imported for the first connection: everything behind it is a tenth of the code, and start-up needs none of it.
        from mcp_workbench.engine.downstream.connection import Connection

        owner = owner_of(entry, caller.principal)
        era = era_for(entry, caller, serves_many=self._serves_many)
        first = Caller(owner, era, declared_capabilities(entry, caller.capabilities), client)
        connection = Connection(entry, self._servers, first, self._own_info, self._open_link, self._start_task, self)
        if self._serves_many and client == SHARED:
            connection.share_fairly()
        connection.subscriptions.log_level = self._wanted_level(connection)
        return connection

    def last_seen(self, principal: str) -> float:
        """When callers of this principal last used any server."""
        if not self._serves_many:
            return inf
        used = (each.traffic.last_used for key, each in self._connections.items() if key.principal == principal)
        return max(used, default=0.0)

    def on_handshake(self, entry: ServerEntry) -> None:
        """After a handshake, more is known about the server's eras: move its connections to their right keys."""
        self.found.clear()
        for key in list(self._keys.get(entry, ())):
            connection = self._connections[key]
            now = connection_key(entry, connection.caller, connection.revision)
            if now != key:
                self._remove(key)
                self._settle(now, connection)

    def _settle(self, key: ConnectionKey, connection: Connection) -> None:
        other = self._connections.get(key)
        if other is None or (other.is_idle and not other.is_running):
            self._enter(key, connection)
            surplus = other
        else:
            surplus = connection
        if surplus is not None:
            self._connections[key].traffic.clients.adopt(surplus.traffic.clients)
            self._retire_later(surplus)

    def _make_room(self, key: ConnectionKey) -> bool:
        """Limit the variants: a client with different capabilities in each request must not start a server for each."""
        if key.client:
            return True
        shared = [pair for pair in self._of_server(key.entry, key.principal) if not pair[0].client]
        if len(shared) < MAX_CONNECTION_VARIANTS:
            return True
        self._retired = [each for each in self._retired if each.is_running]
        idle = [(other, each) for other, each in shared if each.is_idle]
        if not idle or len(self._retired) >= MAX_CONNECTION_VARIANTS:
            return False
        other, connection = min(idle, key=lambda pair: (pair[1].is_held, pair[1].traffic.last_used))
        connection.retire(DownstreamError(EVICTED, hint="call again"))
        self._remove(other)
        self.found.clear()
        self._retired.append(connection)
        return True

    # ── replacing the configuration ──

    def _on_replaced(self, plan: Plan) -> None:
        """Connections of removed servers end after their last call and get no new ones. All others are untouched."""
        for connection in self._connections.values():
            if connection.entry in plan.adjusted:
                connection.adjust(connection.entry.config)
        self.drain_ended()

    def drain_ended(self) -> None:
        """Stop servers that no catalogue shows any more, after their last call."""
        self.found.clear()
        self._drop_ended()
        for connection in list(self._connections.values()):
            if connection.entry.ended is not None:
                # The sessions of subscribers subscribe again to what has taken its place.
                connection.subscriptions.forget()
                if connection.state is State.STARTING:
                    # Nothing was sent to it yet, and what waits for it goes elsewhere.
                    connection.retire(connection.entry.ended)
                else:
                    connection.retire_when_idle(connection.entry.ended)
        self._drop_ended()

    def _drop_ended(self) -> None:
        ended = [key for key, each in self._connections.items() if each.entry.ended is not None and not each.is_running]
        for key in ended:
            self._remove(key)

    # ── servers that ask questions ──

    def caller_alone(self, entry: ServerEntry, caller: Caller, client: ClientPeer) -> Caller:
        """The caller to use for a call of a client without a session, so that no other client has a call in progress on
        the same connection. Such clients are independent of each other."""
        era = era_for(entry, caller, serves_many=self._serves_many)
        if expected_revision(entry, era).asks_in_results or _is_free(self.connection(entry, caller), client):
            return caller
        for number in range(-1, -MAX_OWN_CONNECTIONS - 1, -1):
            alone = replace(caller, client=number)
            connection = self.connection(entry, alone)
            if _is_free(connection, client):
                return alone
            traffic = connection.traffic
            is_kept = traffic.clients.reserved_for is not None or not connection.is_idle
            if not is_kept and traffic.questions.cancelled_calls.are_old(traffic.loop.time()):
                # Only cancelled calls of others are in the way, and they count as long as the link.
                connections = self._of_server(entry, connection.principal)
                self._abandon(next(key for key, each in connections if each is connection))
                return alone
        return caller

    def _abandon(self, key: ConnectionKey) -> None:
        """Give this connection to no further caller, and stop its server after its last call."""
        self.found.clear()
        self._retire_later(self._remove(key))

    def _retire_later(self, connection: Connection) -> None:
        connection.retire_when_idle(DownstreamError(SURPLUS, hint="call again"))
        self._retired = [each for each in (*self._retired, connection) if each.is_running]

    def _has_room_for_own(self, key: ConnectionKey) -> bool:
        own = [other for other, _ in self._of_server(key.entry, key.principal) if other.client]
        return len(own) < (MAX_SUBSCRIPTIONS_PER_CLIENT if key.entry.per_client else MAX_OWN_CONNECTIONS)

    def serve_many(self) -> None:
        """Prepare for several clients: from now on it matters which of them share a server."""
        if not self._serves_many:
            self._serves_many = True
            self._servers.on_tools.append(self._on_tools)

    def _on_tools(self, entry: ServerEntry) -> None:
        """The tools of a server may show that it keeps a user's state."""
        if not entry.per_client:
            self._note_state(entry)
            if entry.per_client:
                self._make_own(entry)

    def _note_state(self, entry: ServerEntry) -> None:
        """Do not share servers that are known to keep a user's state, unless the configuration says so."""
        if entry.config.share is None and not entry.per_client:
            from mcp_workbench.engine.catalog.stateful import keeps_state

            entry.per_client = keeps_state(entry.config, entry.tools)

    def _make_own(self, entry: ServerEntry) -> None:
        """Stop sharing a server: the connection that was shared now belongs to its first client."""
        self.found.clear()
        for key in list(self._keys.get(entry, ())):
            connection = self._connections[key]
            first = connection.traffic.clients.first()
            if first is None:
                continue
            own = connection_key(entry, replace(connection.caller, client=first.caller.client), connection.revision)
            if own == key or own in self._connections:
                continue
            if connection.traffic.questions.cancelled_calls.is_anothers(first):
                # It could never be told apart from a question of those calls.
                self._abandon(key)
            else:
                connection.caller = replace(connection.caller, client=first.caller.client)
                self._enter(own, self._remove(key))

    def end_client(self, client: int) -> None:
        """Stop what belonged to a client that has disconnected."""
        self._borrowers.discard(client)
        self._retired = [each for each in self._retired if each.is_running]
        for key, connection in list(self._connections.items()):
            if key.client == client != SHARED:
                calls = connection.traffic.calls_youngest_first()
                if any(call.client.caller.client != client for call in calls):
                    # It was shared until its server asked, and others still have calls on it.
                    connection.retire_when_idle(DownstreamError(CLIENT_DISCONNECTED))
                else:
                    connection.retire(DownstreamError(CLIENT_DISCONNECTED))
                self._remove(key)
                self._retired.append(connection)
                self.found.clear()
        wished = [kind for kind in self._log_levels if kind[0] == client != SHARED]
        for kind in wished:
            _, catalog = self._log_levels.pop(kind)
            self._set_log_levels(self.used_by(Caller(kind[1], "legacy", kind[2], client), catalog))

    def used_by(self, caller: Caller, catalog: Catalog) -> list[Connection]:
        """The connections to servers of this catalogue whose handshake declared a client like this one."""
        return [each for each in self._connections.values() if _is_like(each, caller, catalog)]

    def set_log_level(self, caller: Caller, catalog: Catalog, level: str) -> None:
        """Set the log level of this client for all servers, including future ones. If it shares a server with clients
        that want more, the rest is filtered out (`Session.relay_notification`)."""
        kind = (caller.client, caller.principal, usable(caller.capabilities))
        self._log_levels.pop(kind, None)
        if len(self._log_levels) >= MAX_LOG_LEVELS:
            # Drop the oldest: clients set their level again when they connect.
            del self._log_levels[next(iter(self._log_levels))]
        self._log_levels[kind] = level, catalog
        self._set_log_levels(self.used_by(caller, catalog))

    def _set_log_levels(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            level = self._wanted_level(connection)
            if level is not None:
                connection.subscriptions.set_log_level(level)

    def _wanted_level(self, connection: Connection) -> str | None:
        """The most verbose level that a client of this connection wants."""
        wanted = [
            level
            for (client, principal, capabilities), (level, catalog) in self._log_levels.items()
            if _is_like(connection, Caller(principal, "legacy", capabilities, client), catalog)
        ]
        return min(wanted, key=LEVELS.index, default=None)

    def connections(self) -> list[Connection]:
        """All connections, in the order of their creation."""
        self._drop_ended()
        return list(self._connections.values())

    def calls(self) -> list[ForwardedCall]:
        """The client requests that servers are handling."""
        return [call for each in (*self.connections(), *self._retired) for call in each.traffic.calls()]

    async def close(self) -> None:
        """Stop all servers concurrently, and wait until nothing is left of them."""
        self.is_closing = True
        for connection in (*self.connections(), *self._retired):
            connection.retire(DownstreamError(SHUTTING_DOWN))
        await asyncio.gather(*(each.wait_stopped() for each in (*self.connections(), *self._retired)))


def _is_like(connection: Connection, caller: Caller, catalog: Catalog) -> bool:
    """Whether the handshake of this connection declared a client like this caller, who sees this catalogue."""
    first = connection.caller
    if catalog not in connection.entry.catalogs:
        return False
    if first.principal != caller.principal or first.client not in (SHARED, caller.client):
        return False
    return first.capabilities == declared_capabilities(connection.entry, caller.capabilities)


def _is_free(connection: Connection, client: ClientPeer) -> bool:
    """Whether no other client has a call on it that is in progress, waiting, or recently cancelled."""
    traffic = connection.traffic
    is_reserved = traffic.clients.reserved_for not in (None, client)
    if is_reserved or traffic.questions.cancelled_calls.is_anothers(client):
        return False
    return all(call.client is client for call in traffic.calls_youngest_first())
