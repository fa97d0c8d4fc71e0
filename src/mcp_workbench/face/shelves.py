"""The catalogue as `economy` sees it: tools to be listed within a budget, searched, and told apart.

Owns the index, built at the first search after the catalogue changed and remembered beside the manifests, and the
summary that instructions are written from, remembered too so that starting up need not read a single tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.manifests import ManifestStore
from mcp_workbench.economy.instructions import Box
from mcp_workbench.face.paths import path_of
from mcp_workbench.jsonrpc.messages import encode

if TYPE_CHECKING:
    from mcp_workbench.economy.fields import Entry
    from mcp_workbench.economy.index import Index
    from mcp_workbench.economy.tool import Tool

WORDS_OF_A_TOOLBOX: Final = 8


class _Summary(Struct):
    """What is told of a toolbox beside what the configuration says."""

    tools: int
    words: tuple[str, ...] = ()


_decode_summaries: Final = Decoder(dict[str, _Summary]).decode


class Shelves:
    """Everything that is known of all tools, for those who list, search and introduce them."""

    def __init__(self, catalog: Catalog, store: ManifestStore) -> None:
        self._catalog = catalog
        self._store = store
        self._index: Index | None = None
        self._index_revision = -1

    # ── tools ──

    def tools(self, entries: Iterable[ServerEntry]) -> list[Tool]:
        """The tools of these servers that are known and available."""
        from mcp_workbench.economy.tool import Tool

        return [
            Tool(path_of(entry, name), entry.toolbox, entry.name, name, bytes(definition))
            for entry in entries
            if entry.failure is None
            for name, definition in entry.tools.items()
        ]

    # ── search ──

    def index(self) -> Index:
        """The index over everything that is known now."""
        from mcp_workbench.economy.index import Index

        if self._index is None or self._index_revision != self._catalog.revision:
            tools = self.tools(self._catalog.entries())
            stamp = _stamp(tools)
            if self._index is None or self._index.stamp != stamp:
                remembered = self._store.load_blob("index")
                index = None if remembered is None else Index.from_bytes(remembered)
                if index is None or index.stamp != stamp:
                    index = Index.build([_indexed(tool) for tool in tools], stamp=stamp)
                    self._store.save_blob("index", index.to_bytes())
                self._index = index
            self._index_revision = self._catalog.revision
        return self._index

    # ── introductions ──

    def boxes(self) -> list[Box]:
        """Every toolbox, introduced: from what is known now, else from what was known last time."""
        return [
            Box(
                toolbox.name,
                toolbox.description,
                summary.tools if summary is not None else None,
                summary.words if summary is not None else (),
                tuple(toolbox.servers),
            )
            for toolbox in self._catalog.config.toolboxes.values()
            for summary in (self._summaries.get(toolbox.name),)
        ]

    @cached_property
    def _summaries(self) -> dict[str, _Summary]:
        remembered = self._store.load_blob(self._summary_name)
        try:
            return {} if remembered is None else _decode_summaries(remembered)
        except (DecodeError, ValidationError):
            return {}

    @cached_property
    def _summary_name(self) -> str:
        # Of these toolboxes with these servers: another configuration has another summary. A checksum will do, and is
        # there without an import that takes milliseconds: this is needed to start.
        identity = [
            [entry.toolbox, entry.name, entry.config.command, entry.config.url] for entry in self._catalog.entries()
        ]
        return f"summary-{crc32(encode(identity)):08x}"

    def summarise(self) -> None:
        """Work out anew what tells toolboxes apart. Takes a moment with thousands of tools: not for the event loop."""
        from mcp_workbench.economy.words import distinctive_words

        known = {name: list(servers.values()) for name, servers in self._catalog.toolboxes.items()}
        groups = {name: [_indexed(tool) for tool in self.tools(entries)] for name, entries in known.items()}
        described = {each.name: each.description for each in self._catalog.config.toolboxes.values()}
        words = distinctive_words(groups, most=WORDS_OF_A_TOOLBOX, besides=described)
        self._summaries.update(
            {
                name: _Summary(len(entries), words.get(name, ()))
                for name, entries in groups.items()
                if any(entry.offer is not None for entry in known[name])
            }
        )
        self._store.save_blob(self._summary_name, encode(self._summaries))


def _indexed(tool: Tool) -> Entry:
    from mcp_workbench.economy.fields import Entry
    from mcp_workbench.economy.tool import parts

    known = parts(tool.definition)
    return Entry(
        key=tool.path,
        name=tool.name,
        description=known.description,
        title=known.title,
        server=tool.server,
        toolbox=tool.toolbox,
        schema=bytes(known.input_schema),
    )


def _stamp(tools: Iterable[Tool]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for tool in tools:
        digest.update(tool.path.encode())
        digest.update(tool.definition)
    return digest.hexdigest()
