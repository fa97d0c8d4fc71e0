"""Paths that models write: `toolbox/server/tool`, and `toolbox/tool` or `server/tool` if they are unambiguous.

Paths are looked up among what exists rather than split, because any of the names may contain a slash. Owns what a path
can mean. Never guesses between two meanings, and starts no servers: it returns those that would have to be listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.names import path_of

ToolPlace = tuple[ServerEntry, str]


class ResolvedPath(Struct, frozen=True):
    """One tool of one server, which the server may turn out not to have."""

    entry: ServerEntry
    tool: str

    @property
    def is_known(self) -> bool:
        """Whether the server is known to have it."""
        return self.tool in self.entry.tools


class Ambiguous(Struct, frozen=True):
    """Several tools can be meant: their full paths."""

    paths: tuple[str, ...]


class NotListed(Struct, frozen=True):
    """No known tool matches, but these servers have not been listed yet."""

    entries: tuple[ServerEntry, ...]


def find(catalog: Catalog, path: str) -> ResolvedPath | Ambiguous | NotListed | None:
    """Resolve a path from what is known now; None if nothing matches.

    Known tools come first: by full path, then within a toolbox, then on a server. Next is a known server with an
    unknown tool, because only the server itself can say that it does not have it. Then servers that have not been
    listed, and finally filtered tools, so that the error can mention the filter."""
    meanings = (list(_named(catalog, path)), list(_in_toolbox(catalog, path)), list(_of_server(catalog, path)))
    for places in meanings:
        # Any of the names may hold a slash, so one path can be cut in several ways that all exist.
        known = [(entry, tool) for entry, tool in places if tool in entry.tools]
        if len(known) > 1:
            return Ambiguous(tuple(path_of(*place) for place in known))
        if known:
            return ResolvedPath(*known[0])
    named = meanings[0]
    # The server may have the tool by now: what is cached of it may be old.
    if len(named) == 1:
        return ResolvedPath(*named[0])
    every = [place for places in meanings for place in places]
    not_listed = {(entry.toolbox, entry.name): entry for entry, _ in every if not entry.is_available}
    if not_listed:
        return NotListed(tuple(not_listed.values()))
    # Last: whoever asks learns that it is there and is not to be used.
    return next((ResolvedPath(entry, tool) for entry, tool in every if tool in entry.hidden), None)


def concerned(catalog: Catalog, path: str) -> Iterable[ServerEntry]:
    """The servers that matter for a path: those of its toolbox, or else all."""
    toolbox, _, rest = path.partition("/")
    servers = catalog.toolboxes.get(toolbox)
    if servers is None:
        return list(catalog.entries())
    server = servers.get(rest.partition("/")[0])
    return (server,) if server is not None and "/" in rest else list(servers.values())


def related(catalog: Catalog, path: str) -> list[ServerEntry]:
    """The servers that a path may refer to, whatever they offer."""
    places = (*_in_toolbox(catalog, path), *_of_server(catalog, path))
    return list({(entry.toolbox, entry.name): entry for entry, _ in places}.values())


def _named(catalog: Catalog, path: str) -> Iterator[ToolPlace]:
    for entry, rest in _in_toolbox(catalog, path):
        if rest.startswith(entry.name + "/") and len(rest) > len(entry.name) + 1:
            yield entry, rest[len(entry.name) + 1 :]


def _in_toolbox(catalog: Catalog, path: str) -> Iterator[ToolPlace]:
    for toolbox, servers in catalog.toolboxes.items():
        if path.startswith(toolbox + "/") and len(path) > len(toolbox) + 1:
            for entry in servers.values():
                yield entry, path[len(toolbox) + 1 :]


def _of_server(catalog: Catalog, path: str) -> Iterator[ToolPlace]:
    for entry in catalog.entries():
        if path.startswith(entry.name + "/") and len(path) > len(entry.name) + 1:
            yield entry, path[len(entry.name) + 1 :]


def candidates(catalog: Catalog, path: str) -> Iterator[ToolPlace]:
    """What a path can mean, best first."""
    meant = find(catalog, path)
    if isinstance(meant, ResolvedPath):
        yield meant.entry, meant.tool
    elif isinstance(meant, NotListed):
        for entry in meant.entries:
            yield entry, path.removeprefix(f"{entry.toolbox}/").removeprefix(f"{entry.name}/")
