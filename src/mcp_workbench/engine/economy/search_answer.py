"""The result of a search: the best tools, ready to be called, and the names of related ones.

Owns its form. Knows nothing about how tools were ranked.

The first three tools have their description, the next seven are signatures. Below them are only names: the next in
rank, and other tools of the top servers, because the tool that the agent needs is often a sibling of the one that
matches its words. A name costs about five tokens and a signature thirty, and the caller can request it. The same tool
in several toolboxes takes one place, with its other paths.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from mcp_workbench.engine.economy.forms import DESCRIBED, Form, Shown, common_arguments, show
from mcp_workbench.engine.economy.prose import clip, one_line
from mcp_workbench.engine.economy.shared_arguments import legend
from mcp_workbench.engine.economy.signature import returned, signature
from mcp_workbench.engine.economy.tool import Tool, output_schema, parts

LIMIT = 10
WITH_TEXT = 3
NEXT_IN_RANK = 22
SIBLINGS = 15
_SIBLINGS_OF = 3
# Protects against manuals and hostile definitions; five of six real descriptions are shorter.
_MAX_DESCRIPTION_LENGTH = 600
_MAX_SIGNATURE_LENGTH = 300
# For the first tools, which the caller most likely wants; 1 in 50 signatures is longer.
_MAX_FIRST_SIGNATURE_LENGTH = 600
_MAX_TWINS = 3
# A weak match may be the right tool in other words.
WEAK_SHOWN = 5
NO_MATCH = "Nothing matches."
FULL_DEFINITIONS = "Full definitions, also of what has `…`: `open_toolbox` with `tools`."
MORE_BY_LIMIT = " More: `limit`."
_SHORTENED = "\nShortened to fit the budget; `budget: null` lifts it."
_WEAK = "\nWeak matches: no tool covers more than part of this. Try other words."


class SearchAnswer(msgspec.Struct, frozen=True):
    """`tools` are shown with everything needed to call them, except those in `incomplete`; `near` are only named."""

    tools: tuple[Tool, ...]
    incomplete: tuple[Tool, ...]
    near: tuple[Tool, ...]
    matched: int
    text: str
    # The same as structured content.
    content: Mapping[str, object] = {}

    def fits(self, most: int | None) -> bool:
        """Whether text and structured content each take at most `most` bytes."""
        return most is None or max(len(self.text.encode()), len(msgspec.json.encode(self.content))) <= most


def answer(
    ranked: Sequence[Tool],
    *,
    matched: int,
    siblings: Mapping[tuple[str, str], Sequence[Tool]],
    limit: int = LIMIT,
    form: Form | None = None,
    most: int | None = None,
    weak: Container[str] = (),
    instead: str = "",
) -> SearchAnswer:
    """Show the first `limit` of `ranked`, which should contain `NEXT_IN_RANK` more, and name related tools.

    `weak` has the paths of tools that hardly match the query: after the last strong match, they are shown only up to
    the fifth place, and if all are weak, the result says so. `instead` is said where nothing matches. `siblings` has
    the tools of each (toolbox, server) that may be shown. `form` shows all in the same form of text. If the result
    would exceed `most` bytes, names are dropped first, then tools from the end, then their text."""
    groups = list(_twins(ranked).values())
    if not groups and instead:
        made = _answer((), matched, {}, 0, form, next_in_rank=0, note=f"\n{instead}")
        if made.fits(most):
            return made
    # Everything up to the last strong match is shown, also weak ones in between: ranks are not skipped.
    strong = [place for place, group in enumerate(groups[:limit], 1) if group[0].path not in weak]
    shown = max(strong[-1] if strong else 0, min(WEAK_SHOWN, limit, len(groups))) if limit <= LIMIT else limit
    weak_only = bool(groups) and not strong
    note = _WEAK if weak_only else ""
    for few, one_form, with_names in _attempts(min(shown, len(groups)), form, limit >= LIMIT):
        around = siblings if with_names and not weak_only else {}
        made = _answer(groups, matched, around, few, one_form, next_in_rank=NEXT_IN_RANK * with_names, note=note)
        if made.fits(most):
            return made
        note = note if note.endswith(_SHORTENED) else note + _SHORTENED
    return _answer(groups, matched, {}, 0, form, next_in_rank=0)


def _attempts(limit: int, form: Form | None, with_names: bool) -> Iterator[tuple[int, Form | None, bool]]:
    """How many tools to show, in which form, and whether to name related ones, in decreasing detail."""
    if with_names:
        yield limit, form, True
    few = limit
    while few > WITH_TEXT:
        yield few, form, False
        # A quarter at a time: each attempt writes all signatures again.
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
    note: str = "",
) -> SearchAnswer:
    tools = tuple(group[0] for group in groups[:limit])
    following = [group[0] for group in groups[limit : limit + next_in_rank]]
    near = tuple(_near(tools, following, siblings))
    lines = []
    structured = []
    incomplete = []
    common = _common(tools, form)
    for place, (tool, *twins) in enumerate(groups[:limit]):
        shown = _shown(tool, place, form, common[tool.toolbox, tool.server])
        text = f"\n  {shown.description}" if form is None and shown.description else ""
        lines.append(shown.text + _also(twins) + text)
        same = [{"toolbox_name": twin.toolbox, "source_server": twin.server} for twin in twins[:_MAX_TWINS]]
        structured.append(shown.structured(**({"same": same} if same else {})))
        if not shown.complete:
            incomplete.append(tool)
    legends = {f"{toolbox}/{server}": legend(each) for (toolbox, server), each in common.items() if each}
    lines.extend(f"In {place}/: {each}" for place, each in legends.items())
    if near:
        lines.append("Near: " + _named(near))
    said = [_head(len(tools), matched, form) + note]
    if incomplete or near:
        said.append(FULL_DEFINITIONS + (MORE_BY_LIMIT if matched > len(tools) else ""))
    # By toolbox and server: fields of their own for each would cost more than the names themselves.
    places: dict[str, dict[str, object]] = {}
    for (toolbox, server), names in _by_place(near).items():
        places.setdefault(toolbox, {})[server] = names
    content = {
        "matched": matched,
        **({} if form is None else {"form": str(form)}),
        "note": "\n".join(said),
        "tools": [msgspec.Raw(each) for each in structured],
        **({"common": legends} if legends else {}),
        **({"near": places} if places else {}),
    }
    text = "\n".join([said[0], *lines, *said[1:]])
    return SearchAnswer(tools, tuple(incomplete), near, matched, text, content)


def _head(shown: int, matched: int, form: Form | None) -> str:
    if shown:
        own = "signatures, with text" if shown <= WITH_TEXT else f"signatures, the first {WITH_TEXT} with text"
        return f"{shown} of {matched}: {own if form is None else DESCRIBED[form]}"
    return f"{NO_MATCH} Try other words, or open a toolbox." if not matched else f"0 of {matched} fit the budget."


def _shown(tool: Tool, place: int, form: Form | None, common: Sequence[str]) -> Shown:
    if form is not None:
        return show(tool, form, label=tool.path, common=common)
    known = parts(tool.definition)
    longest = _MAX_FIRST_SIGNATURE_LENGTH if place < WITH_TEXT else _MAX_SIGNATURE_LENGTH
    written, complete = signature(tool.path, known.schema(), most=longest, common=common)
    written += returned(output_schema(tool.definition)) if tool.shows_result else ""
    text = clip(one_line(known.description), _MAX_DESCRIPTION_LENGTH) if place < WITH_TEXT else ""
    return Shown(tool, Form.SENTENCE, written, complete, written.removeprefix(tool.path), text)


def _common(tools: Iterable[Tool], form: Form | None) -> dict[tuple[str, str], tuple[str, ...]]:
    """The arguments that the shown tools of each server share."""
    by_server: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools:
        by_server.setdefault((tool.toolbox, tool.server), []).append(tool)
    return {server: common_arguments(own, form or Form.SENTENCE) for server, own in by_server.items()}


def _twins(ranked: Iterable[Tool]) -> dict[tuple[str, bytes], list[Tool]]:
    groups: dict[tuple[str, bytes], list[Tool]] = {}
    for tool in ranked:
        # By the bytes of the definition: the same program in two toolboxes, not two tools of one name.
        groups.setdefault((tool.name, tool.definition), []).append(tool)
    return groups


def _also(twins: Sequence[Tool]) -> str:
    if not twins:
        return ""
    more = f" and {len(twins) - _MAX_TWINS} more" if len(twins) > _MAX_TWINS else ""
    return f" (same: {', '.join(twin.path for twin in twins[:_MAX_TWINS])}{more})"


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
    """`toolbox/server/ one, two; toolbox/other/ three`: the prefix applies to each name after it."""
    return "; ".join(f"{place[0]}/{place[1]}/ {', '.join(names)}" for place, names in _by_place(tools).items())


def _by_place(tools: Iterable[Tool]) -> dict[tuple[str, str], list[str]]:
    """The names of tools, by toolbox and server."""
    found: dict[tuple[str, str], list[str]] = {}
    for tool in tools:
        found.setdefault((tool.toolbox, tool.server), []).append(tool.name)
    return found
