"""What to say about an identity that names no tool: which part is missing, and the full paths that may be meant. Pure.

Owns these texts and their bounds. The catalogue is the one that the client may see, so nothing else is suggested.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.names import path_of
from mcp_workbench.engine.economy.terms import Splitter, runs
from mcp_workbench.engine.face.identifier import EXAMPLE_CALL, IDENTIFIER_PARTS
from mcp_workbench.engine.face.paths import Parts, ToolPlace, fitting, places_of, readings
from mcp_workbench.engine.face.wording import no_such

# How many paths are suggested for an incomplete identity, and how many tools that share words with a wrong one.
MAX_SUGGESTED_PATHS: Final = 10
_MAX_SIMILAR_NAMES: Final = 5
_MAX_UNLISTED: Final = 5
_MAX_PATH_LENGTH: Final = 100
# Of a name, for the words it shares with others.
_MAX_SUGGESTION_CHARACTERS: Final = 400


class Advice(NamedTuple):
    """How to list the servers that have not been listed, how to find a tool, and how to name one."""

    listing: str = "open_toolbox with `query`"
    finding: str = 'open_toolbox {"query": "…"}'
    naming: str = f"\nExpected {EXAMPLE_CALL}"


TO_AGENTS: Final = Advice()


def about_path(catalog: Catalog, path: str, advice: Advice = TO_AGENTS) -> str:
    """About a path that names no tool of any server: a part is missing, or wrong."""
    known = [parts for parts in readings(catalog, path) if fitting(catalog, parts)]
    likeliest = known or [parts for parts in readings(catalog, path) if path.rstrip("/").count("/") < 2]
    if not likeliest:
        return no_such_path(catalog, path, advice)
    return about_parts(catalog, *likeliest, advice=advice, said=f"`{path[:_MAX_PATH_LENGTH]}` is not a full path: ")


def about_parts(catalog: Catalog, *possible: Parts, advice: Advice = TO_AGENTS, said: str = "") -> str:
    """About an identity that lacks a part, or about several ways to read one."""
    parts = [f"`{part}`" for part, given in zip(IDENTIFIER_PARTS, possible[0], strict=True) if not given]
    missing = f"{said}{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'}"
    candidates = paths_of(place for each in possible for place in fitting(catalog, each))
    if candidates:
        return f"{missing} missing; it can be {listed(candidates)}{advice.naming}"
    near = no_such_path(catalog, "/".join(filter(None, possible[0])), advice)
    unlisted = [entry.label for each in possible for entry in places_of(catalog, each) if entry.offer is None]
    if unlisted and "did you mean" not in near:
        few = ", ".join(f"`{each}`" for each in unlisted[:_MAX_UNLISTED])
        more = f" and {len(unlisted) - _MAX_UNLISTED} more" if len(unlisted) > _MAX_UNLISTED else ""
        near = f"what can be meant is not known: {few}{more} have not been listed yet, {advice.listing} lists them"
    return f"{missing} missing; {near}{advice.naming}"


def about_slashes(path: str, places: Sequence[ToolPlace]) -> str:
    """About a path that can be split in several ways, because names contain slashes."""
    shown = " or ".join(
        json.dumps(dict(zip(IDENTIFIER_PARTS, (entry.toolbox, entry.name, tool), strict=True)), ensure_ascii=False)
        for entry, tool in places[:MAX_SUGGESTED_PATHS]
    )
    return (
        f"`{path[:_MAX_PATH_LENGTH]}` can be split in several ways, because names contain slashes: name it as {shown}"
    )


def no_such_path(catalog: Catalog, path: str, advice: Advice = TO_AGENTS) -> str:
    """Say that there is no such tool, and suggest tools with a similar spelling, or else with the same words."""
    known = paths_of((entry, tool) for entry in catalog.entries() for tool in entry.tools)
    text = no_such("tool", path, known, most_others=0)
    if known and "did you mean" not in text:
        alike = with_words_of(path, known, limit=_MAX_SIMILAR_NAMES)
        similar = f"similar tools are {', '.join(f'`{each}`' for each in alike)}"
        text += f"; {similar}" if alike else f"; find one with {advice.finding}"
    if any(entry.offer is None for entry in catalog.entries()):
        text += f"\nNot all servers have been listed yet: {advice.listing} lists them"
    return text


def paths_of(places: Iterable[ToolPlace]) -> list[str]:
    """The full paths of these tools, each once."""
    return list(dict.fromkeys(path_of(entry, tool) for entry, tool in places))


def listed(paths: Sequence[str]) -> str:
    """As many as are worth reading, and the number of the others."""
    shown = [f"`{each}`" for each in paths[:MAX_SUGGESTED_PATHS]]
    if len(paths) > MAX_SUGGESTED_PATHS:
        return f"{', '.join(shown)} and {len(paths) - MAX_SUGGESTED_PATHS} more"
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def with_words_of(name: str, names: Iterable[str], *, limit: int) -> list[str]:
    """At most `limit` of `names`, ranked by the words they share with `name`; rare words count more."""
    split = Splitter()
    wanted = {term for run in runs(name[:_MAX_SUGGESTION_CHARACTERS]) for term in split[run]}
    found: list[tuple[str, set[str]]] = []
    having = dict.fromkeys(wanted, 0)
    for each in names:
        shared = {term for run in runs(each[:_MAX_SUGGESTION_CHARACTERS]) for term in split[run]} & wanted
        if shared:
            found.append((each, shared))
            for term in shared:
                having[term] += 1
    found.sort(key=lambda pair: -sum(1 / having[term] ** 0.5 for term in pair[1]))
    return [each for each, _ in found[:limit]]
