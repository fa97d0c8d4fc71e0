"""All connections of this process, and which of them a caller takes.

Who shares one is decided by `sharing.connection_key`; here is who has which key at the moment. A server's era is a
guess until the handshake is done, so a connection may turn out to belong under another key than it was made for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mcp_workbench.catalog.catalog import Catalog, Servers
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.clients import ClientPeer
from mcp_workbench.downstream.lifecycle import State
from mcp_workbench.downstream.sharing import (
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
from mcp_workbench.errors import DownstreamError
from mcp_workbench.protocol.logging_levels import LEVELS
from mcp_workbench.protocol.meta import usable

if TYPE_CHECKING:
    from mcp_workbench.catalog.replacement import Plan
    from mcp_workbench.downstream.connection import Connection
    from mcp_workbench.downstream.server_link import LinkOpener

# Connections to one server that one principal may have at once, for different capabilities of its clients.
MOST_VARIANTS: Final = 16
# Connections of one principal to one server that asks, beyond the shared ones: one for each client, or for each call of
# clients that keep no session. With more, clients share, and then a question is refused where it could be anybody's.
MOST_OWN: Final = 32
# Clients of one principal that have a process of a server that keeps state (`share`: `"session"`) to themselves.
# Sharing one would mix them up, so further ones are refused.
MOST_PER_CLIENT: Final = 64
# Log levels that are remembered for servers to come, of clients that differ in what they can do.
MOST_LOG_LEVELS: Final = 256
# Pairs of server and caller whose connection is looked up without working out its key. Modern clients may declare
# other capabilities with each request; beyond this, all are forgotten and worked out again.
MOST_FOUND: Final = 4096
CLOSING: Final = "the workbench is shutting down"
NO_ROOM: Final = f"clients with {MOST_VARIANTS} different sets of capabilities already use this server"
NO_ROOM_ALONE: Final = f"{MOST_PER_CLIENT} clients already have a process of this server each"
CLIENT_GONE: Final = "the client of this connection has disconnected"
EVICTED: Final = "this connection was closed to make room for a client with other capabilities"
SURPLUS: Final = "another connection now serves these callers"


class Pool:
    def __init__(
        self,
        servers: Servers,
        own_info: bytes,
        open_link: LinkOpener,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
    ) -> None:
        self._servers = servers
        self._own_info = own_info
        self._open_link = open_link
        self._start_task = start_task
        self._connections: dict[ConnectionKey, Connection] = {}
        # The same by who asked: on the path of every call.
        self._found: dict[tuple[ServerEntry, Caller], Connection] = {}
        # Evicted to make room, or surplus, and maybe still on their way out.
        self._retired: list[Connection] = []
        # The level that each client wants, with its principal and what it can do.
        self._log_levels: dict[tuple[int, str, bytes], tuple[str, Catalog]] = {}
        self.is_closing = False
        # Whether several clients may come, so that it matters which of them share.
        self._serves_many = False
        # Clients that come for one call, and take whichever connection runs rather than have a server started.
        self._borrowers: set[int] = set()
        servers.on_asking.append(self._make_own)
        servers.on_replaced.append(self._on_replaced)

    def connection(self, entry: ServerEntry, caller: Caller) -> Connection:
        """The connection for this caller; made, but not started, if there is none yet."""
        return self._found.get((entry, caller)) or self._find(entry, caller)

    def _find(self, entry: ServerEntry, caller: Caller) -> Connection:
        if self._serves_many:
            self._note_state(entry)
        placed = caller
        if caller.client in self._borrowers:
            # Where a server of both eras has to be started, then as most clients want it; questions change eras.
            placed = replace(caller, era="modern")
        key = connection_key(entry, placed, serves_many=self._serves_many)
        if placed is not caller and key not in self._connections:
            lent = self._lent(entry, placed)
            if lent is not None:
                # Not kept: it may end before the client comes again.
                return lent
        has_room = key in self._connections or not key.client or self._has_room_for_own(key)
        if not has_room and not entry.per_client:
            key = key._replace(client=SHARED)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._make(entry, placed, key.client)
            if self.is_closing:
                connection.retire(DownstreamError(CLOSING))
            elif entry.ended is not None:
                # Not kept: nobody is led to it but calls that were decided before.
                connection.retire(entry.ended)
                return connection
            elif entry.config.unresolved:
                assert entry.failure is not None
                connection.retire(entry.failure)
            elif key.client and not has_room:
                connection.retire(DownstreamError(NO_ROOM_ALONE, hint="try again when one of them has ended"))
                return connection
            elif not self._make_room(key):
                # Not kept: whoever asks next may find room.
                connection.retire(DownstreamError(NO_ROOM, hint="try again when they are done"))
                return connection
            self._connections[key] = connection
        if len(self._found) >= MOST_FOUND:
            self._found.clear()
        self._found[entry, caller] = connection
        return connection

    def lend_to(self, client: int) -> None:
        """This client takes a connection of others where one runs and none of its own does."""
        self._borrowers.add(client)

    def end_lending(self, client: int) -> None:
        """From now on, this client has connections as any other has."""
        self._borrowers.discard(client)

    def _lent(self, entry: ServerEntry, caller: Caller) -> Connection | None:
        """A connection of others that can do for this client. One to a server that asks must be able to ask it: a
        legacy one declared what others can answer, and may be in the middle of their calls."""
        is_asked = entry.asks and any(word in caller.capabilities for word in ASKABLE)
        owner = owner_of(entry, caller.principal)
        for key, connection in self._connections.items():
            if key.variants_of != (entry, owner) or key.client or connection.state is not State.READY:
                continue
            if not is_asked or (connection.revision is not None and connection.revision.asks_in_results):
                return connection
        return None

    def _make(self, entry: ServerEntry, caller: Caller, client: int) -> Connection:
        # Imported with the first connection: all that runs on one is a tenth of what there is, and starting needs none.
        from mcp_workbench.downstream.connection import Connection

        owner = owner_of(entry, caller.principal)
        era = era_for(entry, caller, serves_many=self._serves_many)
        first = Caller(owner, era, declared_capabilities(entry, caller.capabilities), client)
        connection = Connection(entry, self._servers, first, self._own_info, self._open_link, self._start_task)
        connection.on_handshake = lambda: self._on_handshake(entry)
        if self._serves_many and client == SHARED:
            connection.share_fairly()
        connection.subscriptions.log_level = self._wanted_level(connection)
        return connection

    def _on_handshake(self, entry: ServerEntry) -> None:
        """The eras of a server are known better after a handshake: its connections go where callers look for them."""
        self._found.clear()
        for key, connection in list(self._connections.items()):
            if connection.entry is not entry:
                continue
            now = connection_key(entry, connection.caller, connection.revision)
            if now != key:
                del self._connections[key]
                self._settle(now, connection)

    def _settle(self, key: ConnectionKey, connection: Connection) -> None:
        other = self._connections.get(key)
        if other is None or (other.is_idle and not other.is_running):
            self._connections[key] = connection
            surplus = other
        else:
            surplus = connection
        if surplus is not None:
            surplus.retire_when_idle(DownstreamError(SURPLUS, hint="call again"))
            self._retired = [each for each in (*self._retired, surplus) if each.is_running]

    def _make_room(self, key: ConnectionKey) -> bool:
        """A client that declares other capabilities with each request must not start a server for each of them."""
        if key.client:
            return True
        alike = [(other, each) for other, each in self._connections.items() if other.variants_of == key.variants_of]
        shared = [(other, each) for other, each in alike if not other.client]
        if len(shared) < MOST_VARIANTS:
            return True
        self._retired = [each for each in self._retired if each.is_running]
        idle = [(other, each) for other, each in shared if each.is_idle]
        if not idle or len(self._retired) >= MOST_VARIANTS:
            return False
        other, connection = min(idle, key=lambda pair: pair[1].traffic.last_used)
        connection.retire(DownstreamError(EVICTED, hint="call again"))
        del self._connections[other]
        self._found.clear()
        self._retired.append(connection)
        return True

    # ── another configuration ──

    def _on_replaced(self, plan: Plan) -> None:
        """Connections of servers that are no more end when the calls on them have; new calls never get there. All
        others stay as they are."""
        for connection in self._connections.values():
            if connection.entry in plan.adjusted:
                connection.config = connection.entry.config
                connection.subscriptions.timeout = connection.config.timeout
        self.drain_ended()

    def drain_ended(self) -> None:
        """Servers that no catalogue shows any more end when the calls on them have."""
        self._found.clear()
        self._drop_ended()
        for connection in list(self._connections.values()):
            if connection.entry.ended is not None:
                # Whoever watches something there is told that the lists have changed.
                connection.subscriptions.forget()
                connection.retire_when_idle(connection.entry.ended)
        self._drop_ended()

    def _drop_ended(self) -> None:
        ended = [key for key, each in self._connections.items() if each.entry.ended is not None and not each.is_running]
        for key in ended:
            del self._connections[key]

    # ── servers that ask ──

    def caller_alone(self, entry: ServerEntry, caller: Caller, client: ClientPeer) -> Caller:
        """For a call of a client without a session: whom it has to come from, so that no call of another client is
        under way where it goes. Such clients are strangers to each other."""
        era = era_for(entry, caller, serves_many=self._serves_many)
        if expected_revision(entry, era).asks_in_results or _is_free(self.connection(entry, caller), client):
            return caller
        for number in range(-1, -MOST_OWN - 1, -1):
            alone = replace(caller, client=number)
            if _is_free(self.connection(entry, alone), client):
                return alone
        return caller

    def _has_room_for_own(self, key: ConnectionKey) -> bool:
        own = [each for each in self._connections if each.client and each.variants_of == key.variants_of]
        return len(own) < (MOST_PER_CLIENT if key.entry.per_client else MOST_OWN)

    def serve_many(self) -> None:
        """Several clients may come: which of them share a server matters from now on."""
        if not self._serves_many:
            self._serves_many = True
            self._servers.on_tools.append(self._on_tools)

    def _on_tools(self, entry: ServerEntry) -> None:
        """What a server offers may show that it keeps a person's state."""
        if not entry.per_client:
            self._note_state(entry)
            if entry.per_client:
                self._make_own(entry)

    def _note_state(self, entry: ServerEntry) -> None:
        """Servers that are known to keep a person's state are not shared, unless the configuration says so."""
        if entry.config.share is None and not entry.per_client:
            from mcp_workbench.catalog.stateful import keeps_state

            entry.per_client = keeps_state(entry.config, entry.tools)

    def _make_own(self, entry: ServerEntry) -> None:
        """No longer shared: the connection that clients shared so far is now the first one's own."""
        self._found.clear()
        for key, connection in list(self._connections.items()):
            first = connection.traffic.clients.first()
            if connection.entry is not entry or first is None:
                continue
            own = connection_key(entry, replace(connection.caller, client=first.caller.client), connection.revision)
            if own != key and own not in self._connections:
                connection.caller = replace(connection.caller, client=first.caller.client)
                self._connections[own] = self._connections.pop(key)

    def end_client(self, client: int) -> None:
        """A client is gone, and what was its own goes with it."""
        self._borrowers.discard(client)
        self._retired = [each for each in self._retired if each.is_running]
        for key, connection in list(self._connections.items()):
            if key.client == client != SHARED:
                connection.retire(DownstreamError(CLIENT_GONE))
                del self._connections[key]
                self._retired.append(connection)
                self._found.clear()
        wished = [kind for kind in self._log_levels if kind[0] == client != SHARED]
        for kind in wished:
            _, catalog = self._log_levels.pop(kind)
            self._set_log_levels(self.used_by(Caller(kind[1], "legacy", kind[2], client), catalog))

    def used_by(self, caller: Caller, catalog: Catalog) -> list[Connection]:
        """The connections to servers of this catalogue on which a legacy server was told of clients like this one."""
        return [each for each in self._connections.values() if _is_like(each, caller, catalog)]

    def set_log_level(self, caller: Caller, catalog: Catalog, level: str) -> None:
        """What this client wants to be told of by all servers, those to come included. Who shares a server with others
        that want more gets what it wants out of that (`Session.relay_notification`)."""
        kind = (caller.client, caller.principal, usable(caller.capabilities))
        self._log_levels.pop(kind, None)
        if len(self._log_levels) >= MOST_LOG_LEVELS:
            # The oldest: a client that still wants one says so again when it connects.
            del self._log_levels[next(iter(self._log_levels))]
        self._log_levels[kind] = level, catalog
        self._set_log_levels(self.used_by(caller, catalog))

    def _set_log_levels(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            level = self._wanted_level(connection)
            if level is not None:
                connection.subscriptions.set_log_level(level)

    def _wanted_level(self, connection: Connection) -> str | None:
        """The most talkative level that a client of this connection wants."""
        wanted = [
            level
            for (client, principal, capabilities), (level, catalog) in self._log_levels.items()
            if _is_like(connection, Caller(principal, "legacy", capabilities, client), catalog)
        ]
        return min(wanted, key=LEVELS.index, default=None)

    def connections(self) -> list[Connection]:
        """Every connection there is, in the order they were made."""
        self._drop_ended()
        return list(self._connections.values())

    async def close(self) -> None:
        """Stop every server, side by side, and wait until nothing is left of them."""
        self.is_closing = True
        for connection in (*self.connections(), *self._retired):
            connection.retire(DownstreamError(CLOSING))
        await asyncio.gather(*(each.wait_stopped() for each in (*self.connections(), *self._retired)))


def _is_like(connection: Connection, caller: Caller, catalog: Catalog) -> bool:
    """Whether this caller, to whom the catalogue is shown, is told to the server as those of this connection are."""
    first = connection.caller
    if catalog not in connection.entry.catalogs:
        return False
    if first.principal != caller.principal or first.client not in (SHARED, caller.client):
        return False
    return first.capabilities == declared_capabilities(connection.entry, caller.capabilities)


def _is_free(connection: Connection, client: ClientPeer) -> bool:
    """Whether nobody else's call is under way on it, waits for it, or was cancelled a moment ago."""
    traffic = connection.traffic
    is_reserved = traffic.clients.reserved_for not in (None, client)
    if is_reserved or traffic.questions.cancelled_calls.is_anothers(client, traffic.loop.time()):
        return False
    return all(call.client is client for call in traffic.calls_youngest_first())
