"""The answer to a need: the best tools, ready to be called, and the names of what else is near.

Owns the shape of a search answer. Refuses to know how tools were ranked.

The first three come with their description, the next seven as signatures. Below them stand bare names: the next in
rank, and other tools of the servers that came first, because a need told in words often means a sibling of the tool
that has the words. A name costs about five tokens where a signature costs thirty, and the caller can ask for it.
The same tool in several toolboxes takes one place, with the other paths beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mcp_workbench.economy.prose import clip, one_line
from mcp_workbench.economy.signature import signature
from mcp_workbench.economy.tool import Tool, parts

LIMIT = 10
WITH_TEXT = 3
NEXT_IN_RANK = 20
SIBLINGS = 15
_SIBLINGS_OF = 3
# Bounds against manuals and hostile definitions; nine of ten real descriptions are shorter.
_LONGEST_TEXT = 800
_LONGEST_SIGNATURE = 300
_MOST_TWINS = 3


class Answer(msgspec.Struct, frozen=True):
    """`tools` are shown so that they can be called, except for those in `incomplete`; `near` are named only."""

    tools: tuple[Tool, ...]
    incomplete: tuple[Tool, ...]
    near: tuple[Tool, ...]
    matched: int
    text: str


def answer(
    ranked: Sequence[Tool],
    *,
    matched: int,
    siblings: Mapping[tuple[str, str], Sequence[Tool]],
    limit: int = LIMIT,
) -> Answer:
    """Show the first `limit` of `ranked`, which should hold `NEXT_IN_RANK` more, and name what is near.

    `siblings` has the tools of each (toolbox, server) that may be shown."""
    groups = list(_twins(ranked).values())
    tools = tuple(group[0] for group in groups[:limit])
    following = [group[0] for group in groups[limit : limit + NEXT_IN_RANK]]
    near = tuple(_near(tools, following, siblings)) if limit >= LIMIT else ()
    lines = []
    incomplete = []
    for place, (tool, *twins) in enumerate(groups[:limit]):
        known = parts(tool.definition)
        written, complete = signature(tool.path, known.schema())
        if place >= WITH_TEXT and len(written) > _LONGEST_SIGNATURE:
            written, complete = clip(written, _LONGEST_SIGNATURE), False
        lines.append(written + _also(twins))
        if not complete:
            incomplete.append(tool)
        if place < WITH_TEXT and known.description:
            lines.append("  " + clip(one_line(known.description), _LONGEST_TEXT))
    if near:
        lines.append("Near: " + _named(near))
    if incomplete or near:
        lines.append("Whole definitions, also of what has `…`: `open_toolbox` with `tools`.")
    head = f"{len(tools)} of {matched}" if tools else "Nothing matches. Try other words, or open a toolbox."
    return Answer(tools, tuple(incomplete), near, matched, "\n".join([head, *lines]))


def _twins(ranked: Iterable[Tool]) -> dict[tuple[str, bytes], list[Tool]]:
    groups: dict[tuple[str, bytes], list[Tool]] = {}
    for tool in ranked:
        groups.setdefault((tool.name, tool.definition), []).append(tool)
    return groups


def _also(twins: Sequence[Tool]) -> str:
    if not twins:
        return ""
    more = f" and {len(twins) - _MOST_TWINS} more" if len(twins) > _MOST_TWINS else ""
    return f" (same: {', '.join(twin.path for twin in twins[:_MOST_TWINS])}{more})"


def _near(
    tools: Sequence[Tool], following: Sequence[Tool], siblings: Mapping[tuple[str, str], Sequence[Tool]]
) -> Iterable[Tool]:
    seen = {tool.path for tool in tools}
    for tool in following:
        seen.add(tool.path)
        yield tool
    left = SIBLINGS
    for server in list(dict.fromkeys((tool.toolbox, tool.server) for tool in tools))[:_SIBLINGS_OF]:
        for tool in siblings.get(server, ()):
            if left and tool.path not in seen:
                seen.add(tool.path)
                left -= 1
                yield tool


def _named(tools: Iterable[Tool]) -> str:
    """`toolbox/server/ one, two; toolbox/other/ three`: what stands before the names belongs in front of each."""
    by_place: dict[str, list[str]] = {}
    for tool in tools:
        by_place.setdefault(tool.path.removesuffix(tool.name), []).append(tool.name)
    return "; ".join(f"{place} {', '.join(names)}" for place, names in by_place.items())
