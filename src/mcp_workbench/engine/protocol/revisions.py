"""The revisions of MCP: one value for each, with a field for everything that differs between them.

A new revision is a new value in `KNOWN`. If it differs in a new way, it also needs a field for the difference and its
mapping in this package (`meta`, `results`). No other package compares dates or eras to decide what to write.

The *era* says how a conversation begins: with a handshake ("legacy", up to 2025-11-25) or without ("modern"). It has to
be discovered for each server (`SpokenEras`), and connections are shared by it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, MAX_CACHED_PIECE_BYTES, MAX_CACHED_PIECES
from mcp_workbench.engine.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    RESOURCE_NOT_FOUND,
)

Era = Literal["legacy", "modern"]


class Revision(Struct, frozen=True, eq=False, gc=False):
    """One revision. The defaults describe the newest one. Compared by identity."""

    name: str
    # `initialize` negotiates revision and capabilities once for a connection, which over HTTP is a session with
    # resumable streams. Otherwise each request carries both in `_meta`, and closing its stream cancels it.
    has_handshake: bool = False
    # Servers ask questions in a result (`input_required`), and the client repeats the request with the answers.
    # Otherwise they send requests to the client.
    asks_in_results: bool = True
    # Results state their type, their server, and how long they may be cached.
    has_result_types: bool = True
    # One `subscriptions/listen` names everything that a client subscribes to. Otherwise each resource needs a
    # `resources/subscribe`, and list changes are announced without a subscription.
    has_listen: bool = True
    # Each request has its own log level, and no level means no messages. Otherwise `logging/setLevel` sets it for all.
    has_log_level_per_request: bool = True
    # HTTP headers mirror the method, the name and annotated arguments of a request.
    has_mirrored_headers: bool = True
    # Tasks are the extension `io.modelcontextprotocol/tasks`. Otherwise, if they exist, they are a capability.
    has_task_extension: bool = True
    # Tasks are a capability that servers declare in `initialize`.
    has_task_capability: bool = False
    # The requests about tasks.
    task_methods: frozenset[str] = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
    # Several messages in one POST.
    has_batches: bool = False
    # Streams begin with an event that has an id and no data, which older clients may not accept.
    has_primed_streams: bool = False
    resource_not_found: int = INVALID_PARAMS
    # Not forwarded either: a legacy server behind us would accept them.
    removed_methods: frozenset[str] = frozenset(
        {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    )

    @property
    def era(self) -> Era:
        """How a conversation in this revision begins."""
        return "legacy" if self.has_handshake else "modern"

    def stamp(self, info: bytes, capabilities: bytes) -> bytes:
        """The members of `_meta` for each request without a handshake, as a JSON object without its closing brace."""
        if len(capabilities) > MAX_CACHED_PIECE_BYTES:
            return _write_stamp(self.name, info, capabilities)
        return _kept_stamp(self.name, info, capabilities)


def _write_stamp(name: str, info: bytes, capabilities: bytes) -> bytes:
    return b'{"%b":"%b","%b":%b,"%b":%b' % (
        PROTOCOL_VERSION.encode(),
        name.encode(),
        CLIENT_INFO.encode(),
        info,
        CLIENT_CAPABILITIES.encode(),
        capabilities,
    )


# The stamp is the same for all requests of a legacy client.
_kept_stamp: Final = lru_cache(MAX_CACHED_PIECES)(_write_stamp)


def _with_handshake(
    name: str, *, has_batches: bool = False, has_primed_streams: bool = False, has_task_capability: bool = False
) -> Revision:
    return Revision(
        name,
        has_handshake=True,
        asks_in_results=False,
        has_result_types=False,
        has_listen=False,
        has_log_level_per_request=False,
        has_mirrored_headers=False,
        has_task_extension=False,
        has_task_capability=has_task_capability,
        task_methods=frozenset({"tasks/get", "tasks/list", "tasks/result", "tasks/cancel"}),
        has_batches=has_batches,
        has_primed_streams=has_primed_streams,
        resource_not_found=RESOURCE_NOT_FOUND,
        removed_methods=frozenset(),
    )


# Oldest first.
KNOWN: Final[dict[str, Revision]] = {
    revision.name: revision
    for revision in (
        _with_handshake("2024-11-05"),
        _with_handshake("2025-03-26", has_batches=True),
        _with_handshake("2025-06-18"),
        _with_handshake("2025-11-25", has_primed_streams=True, has_task_capability=True),
        Revision("2026-07-28"),
    )
}


def names(era: Era) -> tuple[str, ...]:
    """The revisions of an era, oldest first."""
    return tuple(revision.name for revision in KNOWN.values() if revision.era == era)


def newest(era: Era) -> Revision:
    """The revision for a server of which only the era is known."""
    return KNOWN[names(era)[-1]]


def newest_stateless(offered: Collection[str]) -> Revision | None:
    """The newest revision without a handshake that both sides speak."""
    return next((KNOWN[name] for name in reversed(names("modern")) if name in offered), None)


def has_handshake(name: str) -> bool:
    """Whether this is a known revision with a handshake."""
    revision = KNOWN.get(name)
    return revision is not None and revision.has_handshake


def chosen(protocol: str) -> Revision | None:
    """The revision that a server's `protocol` setting selects, which may name an era; None for `auto`."""
    match protocol:
        case "legacy" | "modern":
            return newest(protocol)
        case _:
            return KNOWN.get(protocol)


def negotiate(requested: str) -> Revision:
    """The revision to answer `initialize` with: the client's if we know it, else our newest with a handshake."""
    return KNOWN[requested] if has_handshake(requested) else newest("legacy")


class SpokenEras(Struct, frozen=True, gc=False):
    """Which eras a server speaks; None for an era that has not been tried.

    Servers never say so themselves: a server of both eras lists only modern revisions in `server/discover` but answers
    `initialize` as well, and over stdio the first request decides which era the process speaks.
    """

    legacy: bool | None = None
    modern: bool | None = None

    def for_client(self, client: Era) -> Era:
        """The era in which to send a client's requests: its own, unless the server does not speak it."""
        if client == "legacy":
            return "modern" if self.legacy is False else "legacy"
        return "legacy" if self.modern is False else "modern"

    @staticmethod
    def only(era: Era) -> SpokenEras:
        """It speaks this era and not the other."""
        return SpokenEras(legacy=era == "legacy", modern=era == "modern")

    @staticmethod
    def found(era: Era, other: bool | None) -> SpokenEras:
        """It speaks this era; `other` says whether it speaks the other one, None if unknown."""
        return SpokenEras(True, other) if era == "legacy" else SpokenEras(other, True)

    def updated(self, newer: SpokenEras) -> SpokenEras:
        """Add newer findings."""
        return SpokenEras(
            self.legacy if newer.legacy is None else newer.legacy,
            self.modern if newer.modern is None else newer.modern,
        )
