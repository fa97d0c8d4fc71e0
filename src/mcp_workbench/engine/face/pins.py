"""Pinned tools: tools that the face `proxy` shows in addition to its own two, for use in every conversation.

Owns their exposed names, which every client accepts, and the messages about pins that match no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import LONGEST_NAME, Target, accepted
from mcp_workbench.engine.face.paths import ToolPlace, named
from mcp_workbench.engine.face.renamed import renamed
from mcp_workbench.engine.face.wording import REVIEW
from mcp_workbench.engine.jsonrpc.messages import decode_object, encode

# Claude Code puts tools behind a search of its own unless they carry this in their `_meta`.
ALWAYS_LOAD: Final = "anthropic/alwaysLoad"


class Pins:
    """The tools that `pin` in the configuration names."""

    def __init__(self, catalog: Catalog, paths: Callable[[], Sequence[str]], report: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._paths = paths
        self._report = report
        self._kept: tuple[int, dict[str, Target]] = (-1, {})

    def __bool__(self) -> bool:
        return bool(self._paths())

    def servers(self) -> list[ServerEntry]:
        """The servers that have, or may have, pinned tools."""
        return list(dict.fromkeys(entry for _, (entry, _) in self._places()))

    def not_listed(self) -> list[ServerEntry]:
        """The servers that have to be listed before all pinned tools are known."""
        # The cached lists may be out of date.
        return list(
            dict.fromkeys(entry for _, (entry, tool) in self._places() if tool not in entry.tools and not entry.is_live)
        )

    def targets(self) -> dict[str, Target]:
        """The known pinned tools, by exposed name."""
        if self._kept[0] != self._catalog.revision:
            found: dict[str, Target] = {}
            for path, (entry, tool) in self._places():
                if tool not in entry.tools:
                    self._say(path, entry, tool)
                elif entry.failure is None:
                    # Of two with the same exposed name, the first pin counts.
                    found.setdefault(shown_as(entry, tool), Target(entry, tool, entry.tools[tool]))
            self._kept = self._catalog.revision, found
        return self._kept[1]

    def _places(self) -> Iterator[tuple[str, ToolPlace]]:
        for path in self._paths():
            places = named(self._catalog, path)
            if len(places) == 1:
                yield path, places[0]
            elif places:
                self._report(f"pinned tool `{path}` can be split in several ways, because names contain slashes")
            else:
                self._report(f"pinned tool `{path}` is not toolbox/server/tool; correct `pin` in the configuration")

    def definitions(self) -> list[bytes]:
        """The definitions of the pinned tools."""
        return [_pinned(target, name) for name, target in self.targets().items()]

    def _say(self, path: str, entry: ServerEntry, tool: str) -> None:
        if not entry.is_live:
            return
        if (reason := entry.why_withheld(tool)) is not None:
            self._report(f"pinned tool `{path}` is withheld: {reason}; {REVIEW}")
            return
        why = "is excluded by `toolFilters`" if tool in entry.hidden else "does not exist"
        self._report(f"pinned tool `{path}` {why}; correct `pin` in the configuration")


def shown_as(entry: ServerEntry, tool: str) -> str:
    """`toolbox__server_tool`, or a similar name with a checksum if a client would not accept that."""
    return accepted(f"{entry.toolbox}__{entry.name}_{tool}", LONGEST_NAME)


def _pinned(target: Target, name: str) -> bytes:
    members = decode_object(renamed(target.definition, name))
    try:
        own = decode_object(members["_meta"])
    except (KeyError, DecodeError, ValidationError):
        own = {}
    # Whatever the server says: to pin a tool is to say that it is always needed.
    members["_meta"] = Raw(encode({**own, ALWAYS_LOAD: True}))
    if target.entry.config.result_budget:
        # A shortened result has no structured content, which clients require if a schema for it is declared.
        members.pop("outputSchema", None)
    return encode(members)
