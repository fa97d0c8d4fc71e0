"""Pinned tools: tools that the face `proxy` shows in addition to its own two, for use in every conversation.

Owns their exposed names, which every client accepts, and the messages about pins that match no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import MAX_TOOL_NAME_LENGTH, Target, accepted, accepted_characters
from mcp_workbench.engine.face.paths import ToolPlace, named
from mcp_workbench.engine.face.renamed import renamed
from mcp_workbench.engine.face.wording import REVIEW
from mcp_workbench.engine.jsonrpc.messages import decode_object, encode

# Claude Code puts tools behind a search of its own unless they carry this in their `_meta`.
ALWAYS_LOAD: Final = "anthropic/alwaysLoad"

_HASH_LENGTH: Final = 16
# How much of a name stays if it ends with a hash.
_KEPT_CHARACTERS: Final = MAX_TOOL_NAME_LENGTH - _HASH_LENGTH - 1


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
            names = exposed_names(self._catalog)
            for path, (entry, tool) in self._places():
                if tool not in entry.tools:
                    self._say(path, entry, tool)
                elif entry.failure is None:
                    exposed = names.of(entry.toolbox, entry.name, tool)
                    found.setdefault(exposed, Target(entry, tool, entry.tools[tool]))
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


class ExposedNames:
    """`toolbox__server_tool` for tools of several servers, by which every client can call them.

    Where another server could have a tool of the same name (`one_x` + `y`, and `one` + `x_y`), the name ends with a
    hash of its parts. That depends on the configuration alone: whatever a server lists, it never gets calls of another.
    """

    def __init__(self, servers: Iterable[tuple[str, str]]) -> None:
        """`servers`: the toolbox and the name of all that are configured."""
        self._prefixes = [accepted_characters(_exposed(*each, ""))[:_KEPT_CHARACTERS] for each in servers]

    def of(self, toolbox: str, server: str, tool: str) -> str:
        wanted = _exposed(toolbox, server, tool)
        plain = accepted_characters(wanted)
        if sum(map(plain[:_KEPT_CHARACTERS].startswith, self._prefixes)) <= 1:
            return accepted(wanted, MAX_TOOL_NAME_LENGTH)
        # Rarely needed. Not the checksum of other names, for which a server could find another name.
        from hashlib import sha256

        mark = f"_{sha256(encode([toolbox, server, tool])).hexdigest()[:_HASH_LENGTH]}"
        return plain[:_KEPT_CHARACTERS] + mark


def exposed_names(catalog: Catalog) -> ExposedNames:
    """Of all servers, hidden or not, so that a tool has the same name for everyone."""
    return ExposedNames((entry.toolbox, entry.name) for entry in catalog.whole.entries())


def _exposed(toolbox: str, server: str, tool: str) -> str:
    return f"{toolbox}__{server}_{tool}"


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
