"""Who shares a connection to a server. Pure: all that decides it is in `connection_key`.

Toolboxes never share, whatever their servers are called. Principals never share, but for a server that says so
(`share`: `"everyone"`): it runs with our own user's credentials and may ask nobody. Clients with a session never share
a server that keeps a person's state (`share`: `"session"`). Beyond that it depends on the era in which the server is
spoken to:

- **modern**: capabilities travel with each request, so one connection serves clients of every kind.
- **legacy**: the handshake declares once what the client can do, so clients share that can do the same, as far as a
  server can tell (`protocol.meta.usable`). Unless the server asks: on one line nothing says whose question it is, so
  each client that can be asked has a connection of its own to such a server.

A server that may ask nobody (`ask`: false) is told of no capabilities, so clients of every kind share it. All others
are spoken to in their client's era where they speak that; but where several clients come, one that nothing can be asked
of shares with those of the modern era. Before the handshake, that is a guess; the pool corrects the key of a connection
after it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.config.model import ServerConfig
from mcp_workbench.protocol.meta import NO_CAPABILITIES, usable, without_roots
from mcp_workbench.protocol.revisions import Era, Revision, chosen, newest

# Where capabilities do not count.
ANY_CAPABILITIES: Final = b""
# Of a connection that is nobody's own.
SHARED: Final = 0
# Whoever signs in at the command line.
OWN_USER: Final = ""
# Whoever is served without a principal of their own is our own user too: over stdio, on a Unix socket as the user that
# we run as, with the one token, and without any.
OWN_PRINCIPALS: Final = frozenset({OWN_USER, "local", "default", "anonymous"})
# What a client must have declared for a server to ask it anything that a user or a model answers.
ASKABLE: Final = (b'"elicitation"', b'"sampling"')


# Capabilities that servers are not told of where nobody can be asked, and where no one folder is meant.
EVERYTHING: Final = frozenset({"elicitation", "roots", "sampling"})
ROOTS: Final = frozenset({"roots"})
NOTHING: Final[frozenset[str]] = frozenset()


class Caller(Struct, frozen=True, cache_hash=True, gc=False):
    """What matters of a client for the connections that it takes."""

    principal: str
    # The era of its request: a client may speak both.
    era: Era
    # What it declared, in one spelling.
    capabilities: bytes = NO_CAPABILITIES
    # Which of the clients that keep a session; a negative number stands for one that keeps none, for a single call.
    client: int = SHARED


# Modern clients declare what they can do with each request, and nearly always the same. What is kept is bounded by
# this and the bytes of capabilities that are accepted.
MOST_CALLERS: Final = 64


@lru_cache(MOST_CALLERS)
def modern_caller(principal: str, capabilities: bytes, client: int) -> Caller:
    """Whoever sends this modern request: the same object each time, which has its hash and is found by identity."""
    return Caller(principal, "modern", capabilities, client)


class ConnectionKey(NamedTuple):
    """Callers with the same key share a connection."""

    # Not its names: a server that was changed in the configuration is another one under the same name.
    entry: ServerEntry
    principal: str
    era: Era
    capabilities: bytes
    # Whose own it is.
    client: int = SHARED

    @property
    def variants_of(self) -> tuple[ServerEntry, str]:
        """What connections have in common that differ only in the kind of client that they are for."""
        return self.entry, self.principal


def connection_key(
    entry: ServerEntry, caller: Caller, agreed: Revision | None = None, *, serves_many: bool = False
) -> ConnectionKey:
    """The key of the connection on which this caller reaches the server.

    `agreed` is the revision of a handshake that is done; without one, it is guessed from what is known so far.
    """
    revision = agreed or expected_revision(entry, era_for(entry, caller, serves_many=serves_many))
    capabilities = declared_capabilities(entry, caller.capabilities) if revision.has_handshake else ANY_CAPABILITIES
    is_asked = entry.asks and not revision.asks_in_results and any(word in capabilities for word in ASKABLE)
    client = caller.client if is_asked or entry.per_client else SHARED
    return ConnectionKey(entry, owner_of(entry, caller.principal), revision.era, capabilities, client)


def is_everyones(config: ServerConfig) -> bool:
    """Whether users share it: nothing that belongs to no call by itself is passed on to any of them."""
    return config.share == "everyone"


def owner_of(entry: ServerEntry, principal: str) -> str:
    """Whose connection, and whose credentials, this principal uses at this server."""
    return OWN_USER if is_everyones(entry.config) else principal


def era_for(entry: ServerEntry, caller: Caller, *, serves_many: bool) -> Era:
    """The era in which this caller is served by this server, where it speaks that. Eras differ in how a server asks:
    one that may ask nobody is spoken to in one era for all, and among many clients so is every server for those of whom
    nothing can be asked. A server of both eras then needs one process for them, not two."""
    if not entry.config.ask or is_everyones(entry.config):
        return "modern"
    if serves_many and not entry.per_client and declared_capabilities(entry, caller.capabilities) == NO_CAPABILITIES:
        return "modern"
    return caller.era


def withheld(config: ServerConfig) -> frozenset[str]:
    """The capabilities that a server is not told of, whatever its clients can do."""
    if not config.ask or is_everyones(config):
        return EVERYTHING
    # Shared by clients in different folders, it would take the roots of one for those of all.
    return ROOTS if config.share == "user" else NOTHING


def declared_capabilities(entry: ServerEntry, capabilities: bytes) -> bytes:
    """What a server with a handshake is told of what its clients can do, in one spelling."""
    kept_back = withheld(entry.config)
    if kept_back is EVERYTHING:
        return NO_CAPABILITIES
    return without_roots(usable(capabilities)) if kept_back else usable(capabilities)


def expected_revision(entry: ServerEntry, client: Era) -> Revision:
    """In which revision a server will be spoken to for clients of this era, as far as that is known."""
    return chosen(entry.config.protocol) or newest(entry.eras.for_client(client))
