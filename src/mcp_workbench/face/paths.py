"""`toolbox/server/tool`, and `toolbox/tool` or `server/tool` where only one can be meant: paths that a model writes.

Looked up among what exists, never cut blindly, because any of the names may hold a slash. Owns what a path can mean.
Refuses to guess between two meanings, and to start servers: it says who would have to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.names import path_of

ToolPlace = tuple[ServerEntry, str]


class ResolvedPath(Struct, frozen=True):
    """One tool of one server; it may turn out that the server does not have it."""

    entry: ServerEntry
    tool: str

    @property
    def is_known(self) -> bool:
        """Whether the server is known to have it."""
        return self.tool in self.entry.tools


class Ambiguous(Struct, frozen=True):
    """Several tools can be meant: their whole paths."""

    paths: tuple[str, ...]


class NotListed(Struct, frozen=True):
    """No known tool is meant, but these servers have not said yet what they offer."""

    entries: tuple[ServerEntry, ...]


def find(catalog: Catalog, path: str) -> ResolvedPath | Ambiguous | NotListed | None:
    """What a path means, from what is known now; None when nothing can be meant.

    Known tools come first: by their whole path, then within a toolbox, then on a server. Then a server with a name
    behind it that is unknown, because only the server itself can say no. Then servers that have not spoken, then
    what filters hide, so that it can be said."""
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
    """The servers that have to be looked at to know what a path means: those of its toolbox, else all."""
    toolbox, _, rest = path.partition("/")
    servers = catalog.toolboxes.get(toolbox)
    if servers is None:
        return list(catalog.entries())
    server = servers.get(rest.partition("/")[0])
    return (server,) if server is not None and "/" in rest else list(servers.values())


def related(catalog: Catalog, path: str) -> list[ServerEntry]:
    """The servers that a path can lead to, whatever they offer."""
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
