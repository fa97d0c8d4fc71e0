"""Marks in the `_meta` of tools, for clients that put tools behind their own search (face `auto`)."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.names import Target
from mcp_workbench.engine.economy.prose import clip, one_line
from mcp_workbench.engine.face.base import FaceSettings
from mcp_workbench.engine.face.paths import named
from mcp_workbench.engine.face.pins import ALWAYS_LOAD
from mcp_workbench.engine.face.renamed import with_members
from mcp_workbench.engine.jsonrpc.messages import decode_object, encode

SEARCH_HINT: Final = "anthropic/searchHint"
# Claude Code truncates hints before matching them; a sentence fits.
_LONGEST_HINT: Final = 120


class Marks:
    """The marks of each tool. Pinned tools are always loaded; others are found by the description of their toolbox."""

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        self._marks = settings.marks
        self._pinned = {place for path in settings.pin for place in named(catalog, path)}
        self._hints = {
            name: clip(one_line(each.description), _LONGEST_HINT) for name, each in catalog.described.items()
        }

    def marked(self, definition: bytes, target: Target) -> bytes:
        """Add the marks to a definition. The server's own `_meta` is kept and comes first."""
        added: dict[str, object] = {}
        if (target.entry, target.name) in self._pinned:
            if ALWAYS_LOAD in self._marks:
                added[ALWAYS_LOAD] = True
        elif SEARCH_HINT in self._marks and self._hints.get(target.entry.toolbox):
            added[SEARCH_HINT] = self._hints[target.entry.toolbox]
        if not added:
            return definition
        try:
            own = decode_object(decode_object(definition)["_meta"])
        except (KeyError, DecodeError, ValidationError):
            own = {}
        return with_members(definition, {"_meta": encode({**{k: Raw(encode(v)) for k, v in added.items()}, **own})})
