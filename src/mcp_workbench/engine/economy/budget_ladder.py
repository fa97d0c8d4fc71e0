"""Opening a toolbox within a budget: the first form that fits.

Owns the choice of form, the pages, and the note that says what was left out and how to get more. Knows nothing about
toolboxes or the tokenizer of any model: a token is four bytes.

The policy was measured on the tools of 89 real servers. Definitions with schemas save the caller a second request, so
they may use the whole budget. Shorter forms are overviews from which the caller picks tools and then requests their
definitions, so they get a quarter of the budget. The shortest forms and pages get half of it, for toolboxes with so
many tools that searching is the better way. Simply taking the first form that fits the budget would cost 2,600 tokens
for an average toolbox, most of it for long descriptions of tools that are not used; this policy costs 1,800, and
returns full schemas exactly as often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mcp_workbench.engine.economy.forms import DESCRIBED, Form, Shown, common_arguments, is_input_alone, show
from mcp_workbench.engine.economy.prose import ELLIPSIS, cut
from mcp_workbench.engine.economy.shared_arguments import legend
from mcp_workbench.engine.economy.tokens import BYTES_PER_TOKEN, MIN_TOKEN_BUDGET, tokens
from mcp_workbench.engine.economy.tool import Tool

# Shares of the budget; the reasons are above.
_OVERVIEW_SHARE = 4
_LAST_RESORT_SHARE = 2
_INPUT_SAVES_AT_MOST = 4  # The omitted parts of a definition (output schema, annotations) can be most of it.
_LEAN_SAVES_AT_MOST = 6
# Reserved for the note when a page is filled: about 330 bytes, and the cursor.
_MAX_PLACE_BYTES = 200
_LIST_NOTE_BYTES = 340 + _MAX_PLACE_BYTES
_SIGNATURES = (Form.TEXT, Form.CLIPPED, Form.SENTENCE)


class Listing(msgspec.Struct, frozen=True):
    """Tools in the form that fits. `note` explains the form to the caller; `cursor` is set if more tools follow."""

    form: Form
    shown: tuple[Shown, ...]
    total: int
    note: str
    cursor: str | None = None
    # For each server, the arguments that `+` represents below its heading.
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
    spend: bool = False,
) -> Listing:
    """The tools of one toolbox, sorted by server and name, in the first form that fits `budget` tokens.

    `form` requests a specific form, which is split into pages if it does not fit. `limit` is the number of tools on a
    page. `budget=None` means no limit; a budget too small for a note and a name is raised to `MIN_TOKEN_BUDGET`.
    `beside` is how many bytes of it the caller needs for itself, with JSON and with text. `spend` lets every form use
    the whole budget, for callers that chose the budget for this one listing."""
    # The same page for the same toolbox: agents page with a cursor, and prompt caches live on equal bytes.
    ordered = sorted(tools, key=_place)
    most = None if budget is None else max(budget, MIN_TOKEN_BUDGET) * BYTES_PER_TOKEN
    if form is None and cursor is None and most is not None:
        fitting = next(_attempts(ordered, most, beside, limit, spend=spend), None)
        last_resort = most if spend else max(most // _LAST_RESORT_SHARE, MIN_TOKEN_BUDGET * BYTES_PER_TOKEN)
        return fitting or _page(ordered, 0, Form.NAMES, (last_resort - beside[1], last_resort - beside[0]), limit, most)
    start, form = (0, form or Form.FULL) if cursor is None else _after(ordered, cursor)
    room = None if most is None else (most - beside[0 if form.is_json else 1], most - beside[0])
    return _page(ordered, start, form, room, limit)


def _attempts(
    tools: list[Tool], budget: int, beside: tuple[int, int], limit: int | None, *, spend: bool
) -> Iterator[Listing]:
    """Listings of all tools, or of the first `limit`, that fit the share of their form; longest form first."""
    wanted = tools[:limit]
    for form, share in _steps(sum(len(tool.definition) for tool in wanted), budget):
        most = min(budget if spend else share, budget - beside[0 if form.is_json else 1])
        if form is Form.INPUT and all(map(is_input_alone, wanted)):
            form = Form.FULL
        common = _Common(tools, form)
        shown = _shown_within(wanted, form, most, common)
        if shown is not None:
            cursor = _cursor(form, wanted[-1], len(wanted)) if len(wanted) < len(tools) else None
            made = _noted(form, shown, len(tools), cursor, common, shortened_to=budget)
            # Clients that show only the structure pay for that.
            if len(render(made).encode()) <= most and structured_size(made.shown) <= min(most, budget - beside[0]):
                yield made


def _steps(raw: int, budget: int) -> Iterator[tuple[Form, int]]:
    """The forms to try, with the share of the budget for each. Forms that cannot fit for `raw` bytes of definitions are
    skipped: they would take longest to write for exactly the toolboxes where it is pointless."""
    if raw <= budget * _INPUT_SAVES_AT_MOST:
        yield Form.INPUT, budget
    if raw <= budget * _LEAN_SAVES_AT_MOST:
        yield Form.LEAN, budget
    for form in (Form.TEXT, Form.CLIPPED, Form.SENTENCE, Form.ARGUMENTS, Form.NAMES):
        yield form, budget // _OVERVIEW_SHARE
    for form in (Form.ARGUMENTS, Form.NAMES):
        yield form, budget // _LAST_RESORT_SHARE


class _Common(dict[str, tuple[str, ...]]):
    """The arguments that the tools of a server share in a form, computed when the first of them is shown."""

    def __init__(self, tools: Sequence[Tool], form: Form) -> None:
        self._tools = tools
        self._form = form

    def __missing__(self, server: str) -> tuple[str, ...]:
        own = (tool for tool in self._tools if tool.server == server)
        self[server] = common_arguments(own, self._form)
        return self[server]


def _shown_within(tools: Iterable[Tool], form: Form, most: int, common: _Common) -> list[Shown] | None:
    """All tools in `form`; None as soon as they exceed `most`."""
    left = most
    shown = []
    for tool in tools:
        shown.append(show(tool, form, common=common[tool.server]))
        left -= len(shown[-1].text.encode())
        if left < 0:
            return None
    return shown


def _page(
    tools: list[Tool],
    start: int,
    form: Form,
    budget: tuple[int, int] | None,
    limit: int | None = None,
    shortened_to: int | None = None,
) -> Listing:
    """As many tools as fit, with at least one; `budget` is how many bytes they may take as text, and as structure."""
    room, left = (None, None) if budget is None else (each - _LIST_NOTE_BYTES for each in budget)
    shown: list[Shown] = []
    servers: set[str] = set()
    common = _Common(tools, form)
    for tool in tools[start : None if limit is None else start + limit]:
        each = show(tool, form, common=common[tool.server])
        if room is not None and left is not None:
            heading = 0 if tool.server in servers else len(_heading(tool, common[tool.server]).encode()) + 1
            if len(each.text.encode()) + 1 + heading > room or structured_size([each]) > left:
                if shown:
                    break
                each = _squeezed(tool, form, min(room - heading - 1, left))
            room -= len(each.text.encode()) + 1 + heading
            left -= structured_size([each])
        servers.add(tool.server)
        shown.append(each)
    last = start + len(shown)
    cursor = _cursor(form, shown[-1].tool, last) if shown and last < len(tools) else None
    return _noted(form, shown, len(tools), cursor, common, shortened_to=shortened_to)


def _squeezed(tool: Tool, form: Form, room: int) -> Shown:
    """A tool that is too large for a page, in the first shorter form that fits, in the worst case its truncated
    name."""
    for shorter in list(Form)[list(Form).index(form) + 1 :]:
        each = show(tool, shorter)
        if max(len(each.text.encode()), structured_size([each])) <= room:
            return each
    return Shown(tool, Form.NAMES, cut(tool.name, room - len(ELLIPSIS.encode())) + ELLIPSIS, False)


def structured_size(shown: Iterable[Shown]) -> int:
    """How many bytes these tools take in structured content."""
    return sum(len(each.structured()) + 1 for each in shown)


def _place(tool: Tool) -> str:
    return f"{tool.server}/{tool.name}"


def _cursor(form: Form, last: Tool, position: int) -> str:
    """The last tool of a page, so that nothing is repeated or skipped if the list changes; for an overlong name, its
    position."""
    place = _place(last)
    return f"{form}:{place}" if len(place.encode()) <= _MAX_PLACE_BYTES else f"{form}#{position}"


def _after(tools: list[Tool], cursor: str) -> tuple[int, Form]:
    """Where the next page starts. An unknown cursor starts at the beginning."""
    word, _, place = cursor.partition(":")
    word, _, position = word.partition("#")
    form = Form(word) if word in list(Form) else Form.NAMES
    if position.isdecimal() and position.isascii():
        return int(position[:9]), form
    # By the name it stopped at: servers may have come or gone since the last page.
    return sum(_place(tool) <= place for tool in tools), form


def _noted(
    form: Form,
    shown: Sequence[Shown],
    total: int,
    cursor: str | None,
    common: Mapping[str, tuple[str, ...]],
    *,
    shortened_to: int | None = None,
) -> Listing:
    """`shortened_to` is the budget, in bytes, if it was that which chose the form."""
    count = f"{len(shown)} of {total} tools" if len(shown) < total else f"{total} tool{'s' * (total != 1)}"
    fitted = shortened_to is not None and form not in (Form.FULL, Form.INPUT)
    why = f", to fit {shortened_to // BYTES_PER_TOKEN:,} tokens" if fitted and shortened_to is not None else ""
    said = [f"{count}, {DESCRIBED[form]}{why}."]
    if form in _SIGNATURES and not all(each.complete for each in shown):
        said.append("`…` marks what is left out.")
    if any(each.form is not form for each in shown):
        said.append("One is shortened: it alone exceeds the budget (`budget: null` lifts it).")
    if form is Form.INPUT:
        said.append('With output schemas and whatever else servers sent: `detail: "full"`.')
    elif form is not Form.FULL:
        all_of_them = ', or `detail: "full"` for all, in pages' if fitted else ""
        said.append(f"Full definitions: `open_toolbox` with `tools`{all_of_them}.")
    if cursor is not None:
        said.append(f'More: `cursor: "{cursor}"`; or find one with `query`.')
    elif form in (Form.ARGUMENTS, Form.NAMES):
        said.append("Find one with `query`.")
    return Listing(form, tuple(shown), total, " ".join(said), cursor, dict(common))


def _heading(tool: Tool, common: Sequence[str]) -> str:
    """The path prefix of the names below it, and what `+` in their signatures stands for."""
    place = cut(tool.path.removesuffix(tool.name), _MAX_PLACE_BYTES)
    return f"{place} {legend(common)}" if common else place


def legends(made: Listing) -> dict[str, str]:
    """What `+` in signatures stands for, by server."""
    servers = {each.tool.server for each in made.shown if not each.form.is_json}
    return {server: legend(common) for server, common in made.common.items() if common and server in servers}


def render(made: Listing) -> str:
    """The listing as text: the note, then one JSON object per line, or lines grouped by server."""
    lines = [made.note]
    server = None
    for each in made.shown:
        if not each.form.is_json and each.tool.server != server:
            server = each.tool.server
            lines.append(_heading(each.tool, made.common.get(server, ())))
        lines.append(each.text)
    return "\n".join(lines)
