"""The catalogue as `economy` sees it: tools to list within a budget, to search, and to summarise.

Owns the search index, which is built at the first search after a change and cached with the manifests, and the summary
that instructions are written from, cached as well so that start-up need not read a single tool. A cached index that was
made of the manifests in their current state needs none of them: only the servers of what is found are read. `prepare`
and `summarise` take long and may be called from another thread; they work on a snapshot.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, chain
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary
from zlib import crc32

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import OF_USER, ManifestStore, offer_identity, written_identity
from mcp_workbench.engine.catalog.names import path_of
from mcp_workbench.engine.catalog.offer import Definitions
from mcp_workbench.engine.economy.instructions import Box
from mcp_workbench.engine.jsonrpc.messages import encode

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.economy.fields import SearchDocument
    from mcp_workbench.engine.economy.index import Found, Hit, Index
    from mcp_workbench.engine.economy.learned_needs import LearnedNeeds
    from mcp_workbench.engine.economy.tool import Tool

WORDS_OF_A_TOOLBOX: Final = 8


class _Summary(Struct):
    """What instructions say about a toolbox in addition to its configuration."""

    tools: int
    # With how much each of them distinguishes it.
    words: dict[str, float] = {}


class _StoredSummaries(Struct):
    """The summaries of all toolboxes, and the state of the manifests they were computed from."""

    manifests: dict[str, str]
    toolboxes: dict[str, _Summary]


class ServerTools(Struct, array_like=True, frozen=True):
    """The tools of one server in an index, which follow one another there."""

    toolbox: str
    server: str
    # The manifest that they were read from, in which state; empty if the server has listed them itself.
    state: str
    # What filters and the lock leave of it.
    shown: str
    tools: int
    digest: str


class Indexed:
    """An index, and whose tools are in it."""

    def __init__(self, index: Index, spans: Sequence[ServerTools]) -> None:
        self.index = index
        self.spans = spans
        self._starts = tuple(accumulate((span.tools for span in spans), initial=0))
        self._last: tuple[tuple[object, ...], Found] | None = None

    def search(
        self,
        query: str,
        limit: int,
        within: frozenset[ServerTools] | None = None,
        learned: LearnedNeeds | None = None,
    ) -> Found:
        """The best tools, among those of some servers. The last result is kept: it is needed to know which manifests to
        read, and again when they have been read."""
        asked = query, limit, within, learned
        last = self._last
        if last is None or last[0] != asked:
            paths = None if within is None else set(chain.from_iterable(self._paths(within)))
            self._last = last = asked, self.index.search(query, limit=limit, within=paths, learned=learned)
        return last[1]

    def _paths(self, within: frozenset[ServerTools]) -> Iterator[list[str]]:
        for number, span in enumerate(self.spans):
            if span in within:
                yield self.index.keys[self._starts[number] : self._starts[number + 1]]

    def place(self, hit: Hit) -> tuple[ServerTools, str]:
        """The server and the name of a tool that was found."""
        span = self.spans[bisect_right(self._starts, hit.position) - 1]
        return span, hit.key[len(span.toolbox) + len(span.server) + 2 :]


_decode_summaries: Final = Decoder(_StoredSummaries).decode
_decode_spans: Final = Decoder(tuple[ServerTools, ...]).decode
# The indexes of other users, by content: users who see the same tools share an index.
_indexes: WeakValueDictionary[str, Index] = WeakValueDictionary()


class ToolIndex:
    """All known tools, for listing, searching and introducing them."""

    def __init__(self, catalog: Catalog, store: ManifestStore) -> None:
        self.catalog = catalog
        self._store = store
        self._lock = Lock()
        self._latest: tuple[int, Indexed] | None = None
        catalog.on_replaced.append(self._on_replaced)

    def _on_replaced(self, plan: Plan) -> None:
        # These summaries are outdated; they are recomputed soon, as after every change of an offer.
        changed = plan.difference.toolboxes.changed
        if "_summaries" in self.__dict__:
            self._summaries = {name: each for name, each in self._summaries.items() if name not in changed}

    # ── tools ──

    def tools(self, entries: Iterable[ServerEntry]) -> list[Tool]:
        """The known and available tools of these servers."""
        return [tool for entry in entries if entry.failure is None for tool in _tools_of(entry)]

    # ── search ──

    @property
    def is_indexed(self) -> bool:
        """Whether the index is up to date."""
        return self._latest is not None and self._latest[0] == self.catalog.revision

    @property
    def latest(self) -> Indexed:
        """The latest index, even if the catalogue has changed since it was built."""
        if self._latest is None:
            self.index()
            assert self._latest is not None
        return self._latest[1]

    def index(self) -> Index:
        """The index of all known tools, including those of servers that are unavailable at the moment. Blocks."""
        while unread := self.prepare():
            self.catalog.load(unread)
        return self.latest.index

    def entry_of(self, span: ServerTools) -> ServerEntry | None:
        """The server that has these tools, unless it was removed meanwhile."""
        return self.catalog.toolboxes.get(span.toolbox, {}).get(span.server)

    def prepare(self, find: Callable[[], Sequence[ServerEntry]] = tuple) -> Sequence[ServerEntry]:
        """Build everything that a search needs, and `find` the servers whose manifests its result needs. Returns those
        that have to be read, before this is done again. Slow with thousands of tools, so not for the event loop."""
        with self._lock:
            revision = self.catalog.revision
            if self._latest is None or self._latest[0] != revision:
                unread = self._indexed_anew(revision)
                if unread:
                    return unread
            if self.is_summary_missing and not self.catalog.unread(self.catalog.entries()):
                self.summarise()
        return find()

    def _indexed_anew(self, revision: int) -> list[ServerEntry]:
        entries = list(self.catalog.entries())
        former = None if self._latest is None else self._latest[1]
        stored = self._stored_spans() if former is None else former.spans
        known = {(span.toolbox, span.server): span for span in stored}
        spans = [_span(entry, known.get((entry.toolbox, entry.name))) for entry in entries]
        unread = [entry for entry, span in zip(entries, spans, strict=True) if span is None]
        if unread:
            # Without an index, all of them are needed.
            return unread if stored else [entry for entry in entries if entry.is_stored]
        whole = [span for span in spans if span is not None]
        stamp = _stamp(whole)
        index = former.index if former is not None and former.index.stamp == stamp else self._found(stamp)
        if index is None:
            unread = [entry for entry in entries if entry.is_stored]
            if unread:
                return unread
            index = self._built(entries, stamp)
        if former is None or former.index is not index or former.spans != whole:
            former = Indexed(index, whole)
        self._latest = revision, former
        if not self.catalog.principal and tuple(stored) != tuple(whole):
            self._store.save_blob(self._stamp_name, encode(whole))
        return []

    def _found(self, stamp: str) -> Index | None:
        """The index of these tools, if there is one."""
        from mcp_workbench.engine.economy.index import Index

        if self.catalog.principal:
            # Not stored on disk, where each user's would take as much space again. Most users see the same tools.
            return _indexes.get(stamp)
        remembered = self._store.load_blob(self._index_name)
        index = None if remembered is None else Index.from_bytes(remembered)
        return index if index is not None and index.stamp == stamp else None

    def _built(self, entries: Sequence[ServerEntry], stamp: str) -> Index:
        from mcp_workbench.engine.economy.index import Index

        with _collector_aside():
            index = Index.build(_documents(entries), stamp=stamp)
            if self.is_summary_missing:
                self.summarise()
        if self.catalog.principal:
            _indexes[stamp] = index
        else:
            self._store.save_blob(self._index_name, index.to_bytes())
        return index

    def _stored_spans(self) -> tuple[ServerTools, ...]:
        """Whose tools are in the stored index."""
        data = None if self.catalog.principal else self._store.load_blob(self._stamp_name)
        try:
            return () if data is None else _decode_spans(data)
        except (DecodeError, ValidationError):
            return ()

    @cached_property
    def _stamp_name(self) -> str:
        return f"stamp-{crc32(os.fsencode(self.catalog.path)):08x}"

    @cached_property
    def _index_name(self) -> str:
        # One for each configuration; its stamp identifies the content.
        return f"index-{crc32(os.fsencode(self.catalog.path)):08x}"

    # ── introductions ──

    def load_summaries(self) -> None:
        """Read the last summaries of the toolboxes ahead of time, because reading them on demand would block."""
        _ = self._summaries

    def boxes(self) -> list[Box]:
        """All toolboxes for an introduction, from current knowledge or else the last summary."""
        return [
            Box(
                toolbox.name,
                toolbox.description,
                summary.tools if summary is not None else None,
                tuple(summary.words) if summary is not None else (),
                tuple(toolbox.servers),
                tuple(summary.words.values()) if summary is not None else (),
            )
            for toolbox in self.catalog.described.values()
            for summary in (self._summaries.get(toolbox.name),)
        ]

    @property
    def is_summary_missing(self) -> bool:
        """Whether the summary of a toolbox is missing or outdated, as far as its manifests have been read."""
        return any(
            (summary := self._summaries.get(name)) is None
            or summary.tools != sum(len(entry.tools) for entry in box.values())
            for name, box in self.catalog.toolboxes.items()
            if any(map(_is_known, box.values())) and all(entry.is_read for entry in box.values())
        )

    @cached_property
    def _summaries(self) -> dict[str, _Summary]:
        """The stored summaries if they were computed from the current manifests, else computed again, so that the same
        tools always have the same summary, whatever happened to the process that listed them."""
        data = self._store.load_blob(self._summary_name)
        try:
            found = None if data is None else _decode_summaries(data)
        except (DecodeError, ValidationError):
            found = None
        if found is not None and all(self._store.state(key) == state for key, state in found.manifests.items()):
            return found.toolboxes
        # Do not make other users wait for it: it is computed once the servers have listed their tools.
        if self.catalog.principal or (found is None and self._store.is_empty):
            return {}
        self.catalog.load(self.catalog.entries())
        return self._worked_out()

    @property
    def _summary_name(self) -> str:
        # Identifies the toolboxes and servers, so that each configuration has its own summary. A checksum suffices, and
        # needs no import of several milliseconds at start-up.
        if self.catalog.principal:
            # A cryptographic digest, so that no user gets another's by collision. The keys include the user.
            return f"{OF_USER}{_digest(self.catalog)}-summary"
        identity = [
            [entry.toolbox, entry.name, entry.config.tool_filters, *offer_identity(entry.config, entry.context.folder)]
            for entry in self.catalog.entries()
        ]
        return f"summary-{crc32(written_identity(identity)):08x}"

    def summarise(self) -> None:
        """Compute the summaries again. Slow with thousands of tools, so not for the event loop."""
        self._summaries = self._worked_out()

    def _worked_out(self) -> dict[str, _Summary]:
        """Computed from all known tools, including those of servers that are unavailable at the moment."""
        manifests = {entry.key: self._store.state(entry.key) for entry in self.catalog.entries()}
        known = {
            name: [(entry, entry.tools) for entry in servers.values()]
            for name, servers in self.catalog.toolboxes.items()
            if any(map(_is_known, servers.values()))
        }
        words: dict[str, dict[str, float]] = {}
        if known:
            from mcp_workbench.engine.economy.distinctive_words import distinctive_words

            groups = {name: _documents(entry for entry, _ in offered) for name, offered in known.items()}
            words = distinctive_words(groups, most=WORDS_OF_A_TOOLBOX)
        summaries = {
            name: _Summary(sum(len(tools) for _, tools in offered), words.get(name, {}))
            for name, offered in known.items()
        }
        self._store.save_blob(self._summary_name, encode(_StoredSummaries(manifests, summaries)))
        return summaries


@contextmanager
def _collector_aside() -> Iterator[None]:
    """Without the garbage collector. Thousands of tools are a million objects, none of them garbage: it would pause the
    process to scan them again and again, for longer each time, so they are frozen."""
    import gc

    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tool_of(entry: ServerEntry, name: str, definition: Raw) -> Tool:
    """Convert a tool for `economy`."""
    from mcp_workbench.engine.economy.tool import Tool

    shows_result = entry.context.shows_results
    return Tool(path_of(entry, name), entry.toolbox, entry.name, name, bytes(definition), shows_result)


def _tools_of(entry: ServerEntry) -> list[Tool]:
    # `tools` is replaced when the server lists again and never modified, so any thread may read it.
    return [tool_of(entry, name, definition) for name, definition in entry.tools.items()]


def _is_known(entry: ServerEntry) -> bool:
    return entry.offer is not None


def _documents(entries: Iterable[ServerEntry]) -> Iterator[SearchDocument]:
    """The tools of these servers to index, one at a time: all at once would take the memory of the catalogue again, and
    fragment it."""
    from mcp_workbench.engine.economy.fields import document

    return (document(tool_of(entry, *each)) for entry in entries for each in entry.tools.items())


def _digest(catalog: Catalog) -> str:
    import hashlib

    servers = [[entry.toolbox, entry.name, entry.config.tool_filters, entry.key] for entry in catalog.entries()]
    return hashlib.sha256(written_identity([catalog.principal, servers])).hexdigest()


def _span(entry: ServerEntry, former: ServerTools | None) -> ServerTools | None:
    """The tools of this server in the index, without looking at them if they are the former ones; None if its manifest
    has to be read first."""
    filters, withheld = entry.config.tool_filters, entry.withheld.get("tools")
    shown = "" if filters is None and not withheld else encode([filters, sorted(withheld or ())]).decode()
    # What the lock withholds is only known once the manifest has been read.
    can_tell = entry.stored_state and not (entry.is_stored and entry.judges)
    if former is not None and can_tell and (former.state, former.shown) == (entry.stored_state, shown):
        return former
    if entry.is_stored:
        return None
    return ServerTools(entry.toolbox, entry.name, entry.stored_state, shown, len(entry.tools), _digest_of(entry.tools))


def _digest_of(tools: Definitions) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, definition in tools.items():
        digest.update(name.encode())
        digest.update(definition)
    return digest.hexdigest()


def _stamp(spans: Iterable[ServerTools]) -> str:
    """Identifies the tools that are in an index, and their order."""
    import hashlib

    identity = [[span.toolbox, span.server, span.digest] for span in spans if span.tools]
    return hashlib.sha256(encode(identity)).hexdigest()
