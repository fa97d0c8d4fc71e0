"""The catalogue as `economy` sees it: tools to list within a budget, to search, and to summarise.

Owns the search index, which is built at the first search after a change and cached with the manifests, and the summary
that instructions are written from, cached as well so that start-up need not read a single tool. `index` and `summarise`
take long and may be called from another thread; they work on a snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
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
from mcp_workbench.engine.economy.instructions import Box
from mcp_workbench.engine.jsonrpc.messages import encode

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.economy.fields import SearchDocument
    from mcp_workbench.engine.economy.index import Index
    from mcp_workbench.engine.economy.tool import Tool

WORDS_OF_A_TOOLBOX: Final = 8


class _Summary(Struct):
    """What instructions say about a toolbox in addition to its configuration."""

    tools: int
    words: tuple[str, ...] = ()


class _StoredSummaries(Struct):
    """The summaries of all toolboxes, and the state of the manifests they were computed from."""

    manifests: dict[str, str]
    toolboxes: dict[str, _Summary]


class _StoredStamp(Struct):
    """The hash of all tools, and what it was computed from."""

    states: str
    stamp: str


_decode_summaries: Final = Decoder(_StoredSummaries).decode
_decode_stamp: Final = Decoder(_StoredStamp).decode
# The indexes of other users, by content: users who see the same tools share an index.
_indexes: WeakValueDictionary[str, Index] = WeakValueDictionary()


class ToolIndex:
    """All known tools, for listing, searching and introducing them."""

    def __init__(self, catalog: Catalog, store: ManifestStore) -> None:
        self.catalog = catalog
        self._store = store
        self._lock = Lock()
        self._index: tuple[int, Index] | None = None
        self._places: tuple[int, dict[str, tuple[ServerEntry, str]]] | None = None
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

    def places(self) -> dict[str, tuple[ServerEntry, str]]:
        """The server and name of every known tool, by path."""
        revision = self.catalog.revision
        if self._places is None or self._places[0] != revision:
            entries = self.catalog.entries()
            self._places = revision, {path_of(entry, name): (entry, name) for entry in entries for name in entry.tools}
        return self._places[1]

    # ── search ──

    @property
    def is_indexed(self) -> bool:
        """Whether the index is up to date."""
        return self._index is not None and self._index[0] == self.catalog.revision

    def prepare(self) -> None:
        """Build everything that a search needs. Slow with thousands of tools, so not for the event loop."""
        import gc

        # Thousands of tools are a million objects, none of them garbage. The collector would pause the process to scan
        # them again and again, for longer each time, so they are frozen.
        gc.collect(1)
        gc.disable()
        try:
            self.index()
            if self.is_summary_missing:
                self.summarise()
        finally:
            gc.freeze()
            gc.enable()

    def latest_index(self) -> Index:
        """The latest index, even if the catalogue has changed since it was built."""
        return self.index() if self._index is None else self._index[1]

    def index(self) -> Index:
        """The index of all known tools, including those of servers that are unavailable at the moment."""
        with self._lock:
            revision = self.catalog.revision
            if self._index is None or self._index[0] != revision:
                entries = list(self.catalog.entries())
                stamp = self._stamp_of(entries)
                former = None if self._index is None else self._index[1]
                index = former if former is not None and former.stamp == stamp else self._found_or_built(entries, stamp)
                self._index = revision, index
            return self._index[1]

    def _found_or_built(self, entries: Sequence[ServerEntry], stamp: str) -> Index:
        from mcp_workbench.engine.economy.index import Index

        # One tool at a time: all at once would take the memory of the catalogue again.
        documents = (_indexed(tool_of(entry, *each)) for entry in entries for each in entry.tools.items())
        if self.catalog.principal:
            # Not stored on disk, where each user's would take as much space again. Most users see the same tools.
            index = _indexes.get(stamp)
            if index is None:
                index = _indexes[stamp] = Index.build(documents, stamp=stamp)
            return index
        remembered = self._store.load_blob(self._index_name)
        index = None if remembered is None else Index.from_bytes(remembered)
        if index is None or index.stamp != stamp:
            index = Index.build(documents, stamp=stamp)
            self._store.save_blob(self._index_name, index.to_bytes())
        return index

    def _stamp_of(self, entries: Sequence[ServerEntry]) -> str:
        """A hash of all tools; the one of last time if they are those of the same manifests, as after a restart."""
        states = None if self.catalog.principal else _states(entries)
        if states is None:
            return _stamp(entries)
        data = self._store.load_blob(self._stamp_name)
        try:
            found = None if data is None else _decode_stamp(data)
        except (DecodeError, ValidationError):
            found = None
        if found is None or found.states != states:
            found = _StoredStamp(states, _stamp(entries))
            self._store.save_blob(self._stamp_name, encode(found))
        return found.stamp

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
                summary.words if summary is not None else (),
                tuple(toolbox.servers),
            )
            for toolbox in self.catalog.described.values()
            for summary in (self._summaries.get(toolbox.name),)
        ]

    @property
    def is_summary_missing(self) -> bool:
        """Whether the summary of a toolbox is missing or outdated."""
        return any(
            (summary := self._summaries.get(name)) is None
            or summary.tools != sum(len(entry.tools) for entry in box.values())
            for name, box in self.catalog.toolboxes.items()
            if any(map(_is_known, box.values()))
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
        words: dict[str, tuple[str, ...]] = {}
        if known:
            from mcp_workbench.engine.economy.distinctive_words import distinctive_words

            # One tool at a time: all at once would take twice the memory of the catalogue and fragment it.
            groups = {
                name: (_indexed(tool_of(entry, *each)) for entry, tools in offered for each in tools.items())
                for name, offered in known.items()
            }
            words = distinctive_words(groups, most=WORDS_OF_A_TOOLBOX)
        summaries = {
            name: _Summary(sum(len(tools) for _, tools in offered), words.get(name, ()))
            for name, offered in known.items()
        }
        self._store.save_blob(self._summary_name, encode(_StoredSummaries(manifests, summaries)))
        return summaries


def tool_of(entry: ServerEntry, name: str, definition: Raw) -> Tool:
    """Convert a tool for `economy`."""
    from mcp_workbench.engine.economy.tool import Tool

    return Tool(path_of(entry, name), entry.toolbox, entry.name, name, bytes(definition))


def _tools_of(entry: ServerEntry) -> list[Tool]:
    # `tools` is replaced when the server lists again and never modified, so any thread may read it.
    return [tool_of(entry, name, definition) for name, definition in entry.tools.items()]


def _is_known(entry: ServerEntry) -> bool:
    return entry.offer is not None


def _indexed(tool: Tool) -> SearchDocument:
    from mcp_workbench.engine.economy.fields import SearchDocument
    from mcp_workbench.engine.economy.tool import parts

    known = parts(tool.definition)
    return SearchDocument(
        key=tool.path,
        name=tool.name,
        description=known.description,
        title=known.title,
        server=tool.server,
        toolbox=tool.toolbox,
        schema=bytes(known.input_schema),
    )


def _digest(catalog: Catalog) -> str:
    import hashlib

    servers = [[entry.toolbox, entry.name, entry.config.tool_filters, entry.key] for entry in catalog.entries()]
    return hashlib.sha256(written_identity([catalog.principal, servers])).hexdigest()


def _stamp(entries: Iterable[ServerEntry]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for entry in entries:
        for name, definition in entry.tools.items():
            digest.update(path_of(entry, name).encode())
            digest.update(definition)
    return digest.hexdigest()


def _states(entries: Iterable[ServerEntry]) -> str | None:
    """Identifies the tools of these servers by the manifests that they were read from, and by which of them are shown;
    None if a server has listed its tools itself."""
    import hashlib

    digest = hashlib.sha256()
    for entry in entries:
        if entry.offer is not None and not entry.stored_state:
            return None
        shown = [entry.toolbox, entry.name, entry.stored_state, list(entry.tools)]
        digest.update(written_identity(shown))
    return digest.hexdigest()
