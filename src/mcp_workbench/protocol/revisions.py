"""The revisions of MCP: one value for each, of which everybody asks what differs between them.

A new revision is a new value in `KNOWN`; where it differs in something new, also a field that says so, and the mapping
of that difference in this package (`meta`, `results`). No other package compares dates or eras to decide what to write.

The *era* says how a conversation begins: with a handshake ("legacy", up to 2025-11-25) or without ("modern"). It
is what has to be found out about a server, and what connections are shared by (`SpokenEras`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, LONGEST_KEPT, MOST_KEPT
from mcp_workbench.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    RESOURCE_NOT_FOUND,
)

Era = Literal["legacy", "modern"]


class Revision(Struct, frozen=True, eq=False, gc=False):
    """One revision. The defaults are the newest revision's; compared by identity."""

    name: str
    # `initialize` agrees on revision and capabilities once for a connection, which over HTTP is a session with streams
    # that can be resumed. Otherwise each request carries both in `_meta`, and closing its stream cancels it.
    has_handshake: bool = False
    # Servers ask in the result of a request (`input_required`), and the client sends it again with the answers.
    # Otherwise they send requests of their own to the client.
    asks_in_results: bool = True
    # Results say their type, who made them, and for how long they hold.
    has_result_types: bool = True
    # One `subscriptions/listen` names everything that a client wants to be told. Otherwise `resources/subscribe` does
    # for each resource, and changed lists are announced without being asked for.
    has_listen: bool = True
    # A log level comes with each request, and none means no messages. Otherwise `logging/setLevel` sets it for all.
    has_log_level_per_request: bool = True
    # Headers repeat the method, the name and annotated arguments of a request.
    has_mirrored_headers: bool = True
    # Tasks are the extension `io.modelcontextprotocol/tasks`. Otherwise, where they exist, they are a capability.
    has_task_extension: bool = True
    # Tasks are a capability that servers declare in `initialize`.
    has_task_capability: bool = False
    # The requests about tasks.
    task_methods: frozenset[str] = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
    # Several messages in one POST.
    has_batches: bool = False
    # Streams begin with an event that has an id and no data; older clients may choke on it.
    has_primed_streams: bool = False
    resource_not_found: int = INVALID_PARAMS
    # Not passed on either: a server behind us that has a handshake would know them.
    removed_methods: frozenset[str] = frozenset(
        {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    )

    @property
    def era(self) -> Era:
        """How a conversation in this revision begins."""
        return "legacy" if self.has_handshake else "modern"

    def stamp(self, info: bytes, capabilities: bytes) -> bytes:
        """What each request without a handshake says in `_meta`, as an object that is still open at its end."""
        if len(capabilities) > LONGEST_KEPT:
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


# A client that has shaken hands gets the same for all of its requests.
_kept_stamp: Final = lru_cache(MOST_KEPT)(_write_stamp)


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
    """What we speak to a server of which no more is known than its era."""
    return KNOWN[names(era)[-1]]


def newest_stateless(offered: Collection[str]) -> Revision | None:
    """The newest revision without a handshake that both of us speak."""
    return next((KNOWN[name] for name in reversed(names("modern")) if name in offered), None)


def has_handshake(name: str) -> bool:
    """Whether this is a revision that we know and that shakes hands."""
    revision = KNOWN.get(name)
    return revision is not None and revision.has_handshake


def chosen(protocol: str) -> Revision | None:
    """What the setting `protocol` of a server asks for: a revision, or the newest of an era; None for `auto`."""
    match protocol:
        case "legacy" | "modern":
            return newest(protocol)
        case _:
            return KNOWN.get(protocol)


def negotiate(requested: str) -> Revision:
    """The revision to answer `initialize` with: the client's own if we know it, else our newest with a handshake."""
    return KNOWN[requested] if has_handshake(requested) else newest("legacy")


class SpokenEras(Struct, frozen=True, gc=False):
    """Which eras a server speaks, as far as it was tried: None where nobody has.

    A server never says so itself: one of both eras lists modern revisions in `server/discover` and answers
    `initialize` all the same, and over stdio the first request of a process settles which of the two it speaks.
    """

    legacy: bool | None = None
    modern: bool | None = None

    def for_client(self, client: Era) -> Era:
        """In which era a client's requests are to reach the server: in its own, unless that was tried in vain."""
        if client == "legacy":
            return "modern" if self.legacy is False else "legacy"
        return "legacy" if self.modern is False else "modern"

    @staticmethod
    def only(era: Era) -> SpokenEras:
        """It speaks this one, and was tried in vain in the other."""
        return SpokenEras(legacy=era == "legacy", modern=era == "modern")

    @staticmethod
    def found(era: Era, other: bool | None) -> SpokenEras:
        """It speaks this one; `other` is what was seen of the other."""
        return SpokenEras(True, other) if era == "legacy" else SpokenEras(other, True)

    def updated(self, newer: SpokenEras) -> SpokenEras:
        """With what was found out since."""
        return SpokenEras(
            self.legacy if newer.legacy is None else newer.legacy,
            self.modern if newer.modern is None else newer.modern,
        )
