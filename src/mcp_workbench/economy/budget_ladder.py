"""Opening a toolbox within a budget: the first form that fits.

Owns the choice of form, pages, and the note that says what was left out and how to get more. Refuses to know what a
toolbox is, and tokens of any particular model: a token is four bytes.

The policy, measured on the tools of 89 real servers: definitions with schemas spare the caller a second request, so
they may take the whole budget. What comes after is an overview, from which a caller picks and then asks for the
definition, so it gets a quarter of the budget; the shortest forms and pages take half when there are too many tools
for that, where searching is the better way in. "The first form that fits the budget" alone would cost 2,600 tokens for
a mean toolbox, most of it for long descriptions of tools that are not used; this costs 1,800, and gives full schemas
exactly as often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mcp_workbench.economy.forms import DESCRIBED, Form, Shown, common_arguments, show
from mcp_workbench.economy.prose import ELLIPSIS, cut
from mcp_workbench.economy.shared_arguments import legend
from mcp_workbench.economy.tokens import BYTES_PER_TOKEN, LEAST_BUDGET, tokens
from mcp_workbench.economy.tool import Tool

_OVERVIEW_SHARE = 4
_LAST_RESORT_SHARE = 2
_FULL_SAVES_AT_MOST = 4  # What is not shown of a definition (output schema, annotations) can be most of it.
_LEAN_SAVES_AT_MOST = 6
# Kept free for the note when a page is filled: about 250 bytes, and the cursor.
_LONGEST_PLACE = 200
_NOTE_BYTES = 280 + _LONGEST_PLACE
_SIGNATURES = (Form.TEXT, Form.CLIPPED, Form.SENTENCE)


class Listing(msgspec.Struct, frozen=True):
    """Tools in the form that fits. `note` tells the caller about it; `cursor` is there when more tools follow."""

    form: Form
    shown: tuple[Shown, ...]
    total: int
    note: str
    cursor: str | None = None
    # By server, the arguments that `+` stands for below its heading.
    common: Mapping[str, tuple[str, ...]] = {}

    @property
    def tokens(self) -> int:
        return tokens(render(self))


def listing(
    tools: Sequence[Tool],
    *,
    budget: int | None,
    beside: tuple[int, int] = (0, 0),
    form: Form | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    extras: bool = False,
    spend: bool = False,
) -> Listing:
    """The tools of one toolbox, sorted by server and name, in the first form that fits `budget` tokens.

    `form` asks for one form: it is then shown in pages if it does not fit. `limit` is the most tools on a page.
    `budget=None` means there is none; one that is too small for a note and a name is taken for `LEAST_BUDGET`.
    `beside` is how many bytes of it the caller needs beside JSON, and beside text. `spend` lets every form take the
    whole budget, where the caller named it for this one listing."""
    ordered = sorted(tools, key=_place)
    most = None if budget is None else max(budget, LEAST_BUDGET) * BYTES_PER_TOKEN
    if form is None and cursor is None and most is not None:
        fitting = next(_attempts(ordered, most, beside, limit, extras=extras, spend=spend), None)
        last_resort = most if spend else max(most // _LAST_RESORT_SHARE, LEAST_BUDGET * BYTES_PER_TOKEN)
        return fitting or _page(ordered, 0, Form.NAMES, last_resort - beside[1], limit, extras=extras)
    start, form = (0, form or Form.FULL) if cursor is None else _after(ordered, cursor)
    room = None if most is None else most - beside[0 if form.is_json else 1]
    return _page(ordered, start, form, room, limit, extras=extras)


def _attempts(
    tools: list[Tool], budget: int, beside: tuple[int, int], limit: int | None, *, extras: bool, spend: bool
) -> Iterator[Listing]:
    """Listings of all tools, or of the first `limit`, that fit what their form may cost, longest form first."""
    wanted = tools[:limit]
    for form, share in _steps(sum(len(tool.definition) for tool in wanted), budget):
        most = min(budget if spend else share, budget - beside[0 if form.is_json else 1])
        common = _Common(tools, form)
        shown = _shown_within(wanted, form, most, common, extras=extras)
        if shown is not None:
            cursor = _cursor(form, wanted[-1], len(wanted)) if len(wanted) < len(tools) else None
            made = _noted(form, shown, len(tools), cursor, common)
            if len(render(made).encode()) <= most:
                yield made


def _steps(raw: int, budget: int) -> Iterator[tuple[Form, int]]:
    """The forms to try, each with what it may cost. Forms that cannot fit `raw` bytes of definitions are left out:
    writing them takes longest for exactly the toolboxes where it is in vain."""
    if raw <= budget * _FULL_SAVES_AT_MOST:
        yield Form.FULL, budget
    if raw <= budget * _LEAN_SAVES_AT_MOST:
        yield Form.LEAN, budget
    for form in (Form.TEXT, Form.CLIPPED, Form.SENTENCE, Form.ARGUMENTS, Form.NAMES):
        yield form, budget // _OVERVIEW_SHARE
    for form in (Form.ARGUMENTS, Form.NAMES):
        yield form, budget // _LAST_RESORT_SHARE


class _Common(dict[str, tuple[str, ...]]):
    """By server, what its tools share in a form: worked out when the first of them is shown."""

    def __init__(self, tools: Sequence[Tool], form: Form) -> None:
        self._tools = tools
        self._form = form

    def __missing__(self, server: str) -> tuple[str, ...]:
        own = (tool for tool in self._tools if tool.server == server)
        self[server] = common_arguments(own, self._form)
        return self[server]


def _shown_within(tools: Iterable[Tool], form: Form, most: int, common: _Common, *, extras: bool) -> list[Shown] | None:
    """All tools in `form`, or None as soon as they alone cost more than `most`."""
    left = most
    shown = []
    for tool in tools:
        shown.append(show(tool, form, extras=extras, common=common[tool.server]))
        left -= len(shown[-1].text.encode())
        if left < 0:
            return None
    return shown


def _page(
    tools: list[Tool], start: int, form: Form, budget: int | None, limit: int | None = None, *, extras: bool
) -> Listing:
    room = None if budget is None else budget - _NOTE_BYTES
    shown: list[Shown] = []
    servers: set[str] = set()
    common = _Common(tools, form)
    for tool in tools[start : None if limit is None else start + limit]:
        each = show(tool, form, extras=extras, common=common[tool.server])
        if room is not None:
            heading = 0 if tool.server in servers else len(_heading(tool, common[tool.server]).encode()) + 1
            if len(each.text.encode()) + 1 + heading > room:
                if shown:
                    break
                each = _squeezed(tool, form, room - heading - 1, extras=extras)
            room -= len(each.text.encode()) + 1 + heading
        servers.add(tool.server)
        shown.append(each)
    last = start + len(shown)
    cursor = _cursor(form, shown[-1].tool, last) if shown and last < len(tools) else None
    return _noted(form, shown, len(tools), cursor, common)


def _squeezed(tool: Tool, form: Form, room: int, *, extras: bool) -> Shown:
    """One tool that is too big for a whole page: in the first shorter form that fits, at worst its name, cut."""
    for shorter in list(Form)[list(Form).index(form) + 1 :]:
        each = show(tool, shorter, extras=extras)
        if len(each.text.encode()) <= room:
            return each
    return Shown(tool, Form.NAMES, cut(tool.name, room - len(ELLIPSIS.encode())) + ELLIPSIS, False)


def _place(tool: Tool) -> str:
    return f"{tool.server}/{tool.name}"


def _cursor(form: Form, last: Tool, position: int) -> str:
    """The tool that a page ended with, so that a list that has changed since neither repeats nor skips; for a name
    that is longer than names are, its number."""
    place = _place(last)
    return f"{form}:{place}" if len(place.encode()) <= _LONGEST_PLACE else f"{form}#{position}"


def _after(tools: list[Tool], cursor: str) -> tuple[int, Form]:
    """Where a page continues. A cursor that is none of ours starts at the beginning."""
    word, _, place = cursor.partition(":")
    word, _, position = word.partition("#")
    form = Form(word) if word in list(Form) else Form.NAMES
    if position.isdecimal() and position.isascii():
        return int(position[:9]), form
    return sum(_place(tool) <= place for tool in tools), form


def _noted(
    form: Form, shown: Sequence[Shown], total: int, cursor: str | None, common: Mapping[str, tuple[str, ...]]
) -> Listing:
    count = f"{len(shown)} of {total} tools" if len(shown) < total else f"{total} tool{'s' * (total != 1)}"
    said = [f"{count}, {DESCRIBED[form]}."]
    if form in _SIGNATURES and not all(each.complete for each in shown):
        said.append("`…` marks what is left out.")
    if any(each.form is not form for each in shown):
        said.append("One is shortened: it alone exceeds the budget (`budget: null` lifts it).")
    if form is not Form.FULL:
        said.append("Full definitions: `open_toolbox` with `tools`.")
    if cursor is not None:
        said.append(f'More: `cursor: "{cursor}"`; or find one with `query`.')
    elif form in (Form.ARGUMENTS, Form.NAMES):
        said.append("Find one with `query`.")
    return Listing(form, tuple(shown), total, " ".join(said), cursor, dict(common))


def _heading(tool: Tool, common: Sequence[str]) -> str:
    """What stands before the names below it, in the path of each, and what the sign in signatures stands for."""
    place = cut(tool.path.removesuffix(tool.name), _LONGEST_PLACE)
    return f"{place} {legend(common)}" if common else place


def render(made: Listing) -> str:
    """The listing as text: the note, then JSON objects line by line, or lines grouped by server."""
    lines = [made.note]
    server = None
    for each in made.shown:
        if not each.form.is_json and each.tool.server != server:
            server = each.tool.server
            lines.append(_heading(each.tool, made.common.get(server, ())))
        lines.append(each.text)
    return "\n".join(lines)
