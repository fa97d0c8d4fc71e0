"""Who shares a connection to a server. Pure: `connection_key` decides it.

Toolboxes never share, even if their servers have the same names. Principals share only servers with `share`:
`"everyone"`, which run with the credentials of the workbench's owner and may not ask clients anything. Clients with a
session never share a stateful server (`share`: `"session"`). Apart from that, it depends on the era:

- **modern**: each request carries capabilities, so one connection serves all kinds of clients.
- **legacy**: the handshake declares the client's capabilities once, so clients share if theirs are equal as far as a
  server can tell (`engine.protocol.meta.usable`). The exception are servers that ask questions: on a shared pipe,
  nothing says whose question it is, so each client that can be asked has its own connection to such a server.

A server that may not ask (`ask`: false) is told of no capabilities, so all kinds of clients share it. All others are
used in their client's era if they speak it; but with several clients, one that cannot be asked anything shares with
those of the modern era. Before the handshake, the era is a guess, and the pool corrects the key afterwards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES, usable, without_roots
from mcp_workbench.engine.protocol.revisions import Era, Revision, chosen, newest

# For keys in which capabilities do not count.
ANY_CAPABILITIES: Final = b""
# For connections that belong to no particular client.
SHARED: Final = 0
# The workbench's owner, who signs in at the command line and is the one user over stdio.
OWN_USER: Final = ""
# Clients without their own principal act for the workbench's owner: over stdio, on a Unix socket with our own uid, with
# the single token, and without any.
OWN_PRINCIPALS: Final = frozenset({OWN_USER, "local", "default", "anonymous"})
# Capabilities that let a server ask something that a user or a model answers.
ASKABLE: Final = (b'"elicitation"', b'"sampling"')


# Capabilities that are withheld from servers that may not ask, or that serve clients in different folders.
EVERYTHING: Final = frozenset({"elicitation", "roots", "sampling"})
ROOTS_FEATURE: Final = frozenset({"roots"})
NO_FEATURES: Final[frozenset[str]] = frozenset()


class Caller(Struct, frozen=True, cache_hash=True, gc=False):
    """The properties of a client that determine its connections."""

    principal: str
    # The era of the request, because a client may speak both.
    era: Era
    # Its capabilities in canonical form.
    capabilities: bytes = NO_CAPABILITIES
    # The number of a client with a session; negative for a single call of a client without one.
    client: int = SHARED


# Modern clients declare their capabilities with each request, nearly always the same ones. The cache is limited by this
# number and by the maximum size of capabilities.
MAX_CACHED_CALLERS: Final = 64


@lru_cache(MAX_CACHED_CALLERS)
def modern_caller(principal: str, capabilities: bytes, client: int) -> Caller:
    """The caller of a modern request: the same object each time, with its hash cached, so that lookups are fast."""
    return Caller(principal, "modern", capabilities, client)


class ConnectionKey(NamedTuple):
    """Callers with the same key share a connection."""

    # The entry rather than its name: a server changed in the configuration is a different one with the same name.
    entry: ServerEntry
    principal: str
    era: Era
    capabilities: bytes
    # The client it belongs to.
    client: int = SHARED


def connection_key(
    entry: ServerEntry, caller: Caller, agreed: Revision | None = None, *, serves_many: bool = False
) -> ConnectionKey:
    """The key of this caller's connection to the server.

    `agreed` is the revision of a completed handshake; without one, it is guessed from what is known.
    """
    revision = agreed or expected_revision(entry, era_for(entry, caller, serves_many=serves_many))
    capabilities = declared_capabilities(entry, caller.capabilities) if revision.has_handshake else ANY_CAPABILITIES
    is_asked = entry.asks and not revision.asks_in_results and any(word in capabilities for word in ASKABLE)
    client = caller.client if is_asked or entry.per_client else SHARED
    return ConnectionKey(entry, owner_of(entry, caller.principal), revision.era, capabilities, client)


def is_everyones(config: ServerConfig) -> bool:
    """Whether users share it. Messages that do not belong to a call are then forwarded to none of them."""
    return config.share == "everyone"


def owner_of(entry: ServerEntry, principal: str) -> str:
    """The principal whose connection and credentials this principal uses for this server."""
    return OWN_USER if is_everyones(entry.config) else principal


def era_for(entry: ServerEntry, caller: Caller, *, serves_many: bool) -> Era:
    """The preferred era for this caller and server. Eras differ in how servers ask questions: a server that may not ask
    is used in one era for all clients, and with several clients, so is every server for clients that cannot be asked.
    A server of both eras then needs one process for them instead of two."""
    if not entry.config.ask or is_everyones(entry.config):
        return "modern"
    if serves_many and not entry.per_client and declared_capabilities(entry, caller.capabilities) == NO_CAPABILITIES:
        return "modern"
    return caller.era


def withheld(config: ServerConfig) -> frozenset[str]:
    """The capabilities that are never declared to a server."""
    if not config.ask or is_everyones(config):
        return EVERYTHING
    # Shared by clients in different folders, it would use the roots of one for all.
    return ROOTS_FEATURE if config.share == "user" else NO_FEATURES


def declared_capabilities(entry: ServerEntry, capabilities: bytes) -> bytes:
    """The capabilities to declare in a handshake, in canonical form."""
    kept_back = withheld(entry.config)
    if kept_back is EVERYTHING:
        return NO_CAPABILITIES
    return without_roots(usable(capabilities)) if kept_back else usable(capabilities)


def expected_revision(entry: ServerEntry, client: Era) -> Revision:
    return chosen(entry.config.protocol) or newest(entry.eras.for_client(client))
