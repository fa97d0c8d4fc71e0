"""`toolbox/server/tool` and `toolbox/tool`: paths that a model writes. Looked up among what exists, never cut blindly,
because any of the three names may hold a slash."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry


def path_of(entry: ServerEntry, tool: str) -> str:
    """The whole path of a tool."""
    return f"{entry.toolbox}/{entry.name}/{tool}"


def candidates(catalog: Catalog, path: str) -> Iterator[tuple[ServerEntry, str]]:
    """What a path can mean, most exact first: a tool that is known, then a server with a name behind it."""
    named = list(_servers_in(catalog, path))
    for entry, tool in named:
        if tool in entry.tools:
            yield entry, tool
    for toolbox, servers in catalog.toolboxes.items():
        if path.startswith(toolbox + "/"):
            tool = path[len(toolbox) + 1 :]
            having = [entry for entry in servers.values() if tool in entry.tools]
            if len(having) == 1:
                yield having[0], tool
    yield from named


def _servers_in(catalog: Catalog, path: str) -> Iterator[tuple[ServerEntry, str]]:
    for toolbox, servers in catalog.toolboxes.items():
        if path.startswith(toolbox + "/"):
            rest = path[len(toolbox) + 1 :]
            for name, entry in servers.items():
                if rest.startswith(name + "/") and len(rest) > len(name) + 1:
                    yield entry, rest[len(name) + 1 :]
