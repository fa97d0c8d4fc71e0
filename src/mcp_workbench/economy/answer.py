"""The answer to a need: the best tools, ready to be called, and the names of what else is near.

Owns the shape of a search answer. Refuses to know how tools were ranked.

The first three come with their description, the next seven as signatures. Below them stand bare names: the next in
rank, and other tools of the servers that came first, because a need told in words often means a sibling of the tool
that has the words. A name costs about five tokens where a signature costs thirty, and the caller can ask for it.
The same tool in several toolboxes takes one place, with the other paths beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mcp_workbench.economy.forms import DESCRIBED, Form, show
from mcp_workbench.economy.prose import clip, one_line
from mcp_workbench.economy.signature import signature
from mcp_workbench.economy.tool import Tool, parts

LIMIT = 10
WITH_TEXT = 3
NEXT_IN_RANK = 22
SIBLINGS = 15
_SIBLINGS_OF = 3
# Bounds against manuals and hostile definitions; five of six real descriptions are shorter.
_LONGEST_TEXT = 600
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
    form: Form | None = None,
    most: int | None = None,
) -> Answer:
    """Show the first `limit` of `ranked`, which should hold `NEXT_IN_RANK` more, and name what is near.

    `siblings` has the tools of each (toolbox, server) that may be shown. `form` shows all of them in one form of text.
    Where the answer would take more than `most` bytes, names go first, then tools from the end, then their text."""
    groups = list(_twins(ranked).values())
    for few, one_form, with_names in _attempts(min(limit, len(groups)), form, limit >= LIMIT):
        around = siblings if with_names else {}
        made = _answer(groups, matched, around, few, one_form, next_in_rank=NEXT_IN_RANK * with_names)
        if most is None or len(made.text.encode()) <= most:
            return made
    return _answer(groups, matched, {}, 0, form, next_in_rank=0)


def _attempts(limit: int, form: Form | None, with_names: bool) -> Iterator[tuple[int, Form | None, bool]]:
    """How many tools to show, in which form, and whether to name what is near: less and less."""
    if with_names:
        yield limit, form, True
    few = limit
    while few > WITH_TEXT:
        yield few, form, False
        few = min(few - 1, few * 3 // 4)
    for shorter in (form, Form.SENTENCE, Form.ARGUMENTS, Form.NAMES):
        for fewer in range(few, 0, -1):
            yield fewer, shorter, False


def _answer(
    groups: Sequence[Sequence[Tool]],
    matched: int,
    siblings: Mapping[tuple[str, str], Sequence[Tool]],
    limit: int,
    form: Form | None,
    *,
    next_in_rank: int,
) -> Answer:
    tools = tuple(group[0] for group in groups[:limit])
    following = [group[0] for group in groups[limit : limit + next_in_rank]]
    near = tuple(_near(tools, following, siblings))
    lines = []
    incomplete = []
    for place, (tool, *twins) in enumerate(groups[:limit]):
        written, complete = _written(tool, place, _also(twins), form)
        lines.append(written)
        if not complete:
            incomplete.append(tool)
    if near:
        lines.append("Near: " + _named(near))
    if incomplete or near:
        more = " More: `limit`." if matched > len(tools) else ""
        lines.append(f"Whole definitions, also of what has `…`: `open_toolbox` with `tools`.{more}")
    return Answer(tools, tuple(incomplete), near, matched, "\n".join([_head(len(tools), matched, form), *lines]))


def _head(shown: int, matched: int, form: Form | None) -> str:
    if shown:
        own = "signatures, with text" if shown <= WITH_TEXT else f"signatures, the first {WITH_TEXT} with text"
        return f"{shown} of {matched}: {own if form is None else DESCRIBED[form]}"
    return "Nothing matches. Try other words, or open a toolbox." if not matched else f"0 of {matched} fit the budget."


def _written(tool: Tool, place: int, also: str, form: Form | None) -> tuple[str, bool]:
    if form is not None:
        shown = show(msgspec.structs.replace(tool, name=tool.path), form)
        return shown.text + also, shown.complete
    known = parts(tool.definition)
    written, complete = signature(tool.path, known.schema())
    if place >= WITH_TEXT and len(written) > _LONGEST_SIGNATURE:
        written, complete = clip(written, _LONGEST_SIGNATURE), False
    written += also
    if place < WITH_TEXT and known.description:
        written += "\n  " + clip(one_line(known.description), _LONGEST_TEXT)
    return written, complete


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
