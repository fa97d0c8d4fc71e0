"""Paths of tools, `toolbox/server/tool`, and what may have been meant if a part is missing.

Paths are looked up among what is configured rather than split, because any of the names may contain a slash. What a
path names depends on the configuration alone, never on what has been opened or listed. Nothing incomplete names a tool:
known tools that fit are only suggested.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry

ToolPlace = tuple[ServerEntry, str]
# Toolbox, server and tool; empty where missing.
Parts = tuple[str, str, str]


def named(catalog: Catalog, path: str) -> list[ToolPlace]:
    """The server and tool that a full path names; several if names with slashes allow it, none if a part is missing or
    wrong. Whether the server has the tool is another question."""
    toolbox, _, rest = path.partition("/")
    server, _, tool = rest.partition("/")
    if "/" not in tool:
        entry = catalog.toolboxes.get(toolbox, {}).get(server)
        return [(entry, tool)] if entry is not None and tool else []
    return [
        (entry, path[len(entry.label) + 1 :])
        for entry in catalog.entries()
        if path.startswith(f"{entry.label}/") and len(path) > len(entry.label) + 1
    ]


def readings(catalog: Catalog, path: str) -> Iterator[Parts]:
    """What is given of an identity in a path that names no tool, likeliest first."""
    path = path.rstrip("/")
    for toolbox, servers in catalog.toolboxes.items():
        if path == toolbox:
            yield toolbox, "", ""
        elif path.startswith(f"{toolbox}/"):
            rest = path[len(toolbox) + 1 :]
            yield (toolbox, rest, "") if rest in servers else (toolbox, "", rest)
    for server in dict.fromkeys(entry.name for entry in catalog.entries()):
        if path.startswith(f"{server}/"):
            yield "", server, path[len(server) + 1 :]
    if "/" not in path:
        yield "", "", path


def places_of(catalog: Catalog, parts: Parts) -> list[ServerEntry]:
    """The servers that fit what is given of an identity."""
    toolbox, server, _ = parts
    return [each for each in catalog.entries() if toolbox in ("", each.toolbox) and server in ("", each.name)]


def fitting(catalog: Catalog, parts: Parts) -> list[ToolPlace]:
    """The known tools that fit what is given of an identity. The name of a tool may begin with the parts that are
    missing, as in a path."""
    given = parts[2]
    return [
        (entry, tool)
        for entry in places_of(catalog, parts)
        for tool in entry.tools
        if given in ("", tool) or f"{entry.label}/{tool}" == given or f"{entry.name}/{tool}" == given
    ]
