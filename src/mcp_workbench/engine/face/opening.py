"""The result of `open_toolbox` in the face `proxy`, and the index of all toolboxes. Pure.

Owns that the result stays within its budget: everything besides the tools is bounded and subtracted before tools are
listed. Everything about tools is returned as text and as structured content, for clients that show only one of them,
and for programs. Each stays within the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import MAX_NAMED_WITHHELD_ITEMS, about_oversized
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.economy.instructions import Box, described_within
from mcp_workbench.engine.economy.prose import clip, cut, one_line
from mcp_workbench.engine.economy.tokens import BYTES_PER_TOKEN, MIN_TOKEN_BUDGET
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.errors import DownstreamError, StillStarting, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.budget_ladder import Listing

Failures = dict[tuple[str, str], WorkbenchError]
# The maximum length of one server's instructions in the result for a whole toolbox.
MAX_SHOWN_INSTRUCTIONS_LENGTH: Final = 600
REVIEW_THEM: Final = "the user can review them with `mcp-workbench team lock diff` and accept them"
NO_RETRY_ADVICE: Final = "call open_toolbox again to try once more"
# The fractions of a budget (one in this many) for what is shown besides the tools.
_SHARE_OF_FAILURES: Final = 4
_SHARE_OF_DESCRIPTION: Final = 8
# Space for the names of members, the form, a cursor twice, and the escapes in a note.
_FRAME_BYTES: Final = 340
_MAX_REASON_LENGTH: Final = 160
_MAX_NOTICE_LENGTH: Final = 600
_STARTING: Final = " still starting"
# The reason for a server that is only slow.
_IS_STARTING: Final = f"is{_STARTING}"
_ASK_AGAIN: Final = "ask again in a moment"
_MAX_SHOWN_NAME_LENGTH: Final = 200
_UNLIMITED: Final = 1 << 62


# ── toolboxes ──


def index_result(
    boxes: Sequence[Box],
    budget: int | None,
    cursor: str | None = None,
    broken: Mapping[str, str] | None = None,
    notice: str | None = None,
) -> bytes:
    """The toolboxes, one line each, in as much detail as fits, else only names, else in pages.

    `broken` has the reasons why toolboxes could not be opened last time; `notice` comes first."""
    total = len(boxes)
    if cursor is not None:
        boxes = boxes[next((at + 1 for at, box in enumerate(boxes) if box.name == cursor), 0) :]
    said = {name: f"\n  not available: {clip(why, _MAX_REASON_LENGTH)}" for name, why in (broken or {}).items()}
    head = f"{total} toolbox{'' if total == 1 else 'es'}:" if total else "No toolbox is configured."
    if notice:
        head = f"{clip(one_line(notice), _MAX_NOTICE_LENGTH)}\n{head}"
    room = _UNLIMITED if budget is None else _bytes(budget) - len(head.encode())
    for reasons in (said, {}):
        lines = described_within(boxes, room - sum(len(each.encode()) for each in reasons.values()))
        if lines is not None:
            described = (line + reasons.get(box.name, "") for line, box in zip(lines, boxes, strict=True))
            return text_result("\n".join([head, *described]))
    shown = _page_of_names(boxes, room - _FRAME_BYTES)
    left = len(boxes) - len(shown)
    lines = [f"- {cut(box.name, _MAX_SHOWN_NAME_LENGTH)}" for box in shown]
    lines.append(
        f"{left} more follow: the same with `cursor: {encode(shown[-1].name).decode()}`; or find a tool with `query`."
    )
    return text_result("\n".join([head, *lines]))


def _page_of_names(boxes: Sequence[Box], room: int) -> list[Box]:
    shown: list[Box] = []
    for box in boxes:
        room -= len(cut(box.name, _MAX_SHOWN_NAME_LENGTH).encode()) + 3
        if room < 0 and shown:
            break
        shown.append(box)
    return shown


def why_not(entries: Iterable[ServerEntry]) -> str | None:
    """Why no server of a toolbox could be used last time; None if one could, or none was tried."""
    reasons = [entry.trouble_for_all for entry in entries]
    if not reasons or any(reason is None for reason in reasons):
        return None
    return "; ".join(one_line(reason) for reason in reasons if reason is not None)


# ── one toolbox ──


def opened_result(
    catalog: Catalog,
    tool_index: ToolIndex,
    request: OpenRequest,
    failures: Failures,
    changed: list[str],
) -> bytes:
    """The tools of one toolbox in the longest form that fits the budget, and what is unavailable and why."""
    return opened(catalog, tool_index, request, failures, changed)[1]


def opened(
    catalog: Catalog,
    tool_index: ToolIndex,
    request: OpenRequest,
    failures: Failures,
    changed: list[str],
) -> tuple[Listing, bytes]:
    """Like `opened_result`, and also returns the listing."""
    from mcp_workbench.engine.economy.budget_ladder import listing, render, structured_size
    from mcp_workbench.engine.economy.forms import Form

    assert request.toolbox_name is not None
    toolbox = catalog.described[request.toolbox_name]
    entries = catalog.toolboxes[toolbox.name]
    # What is remembered of a server that has just failed could not be called.
    available = [entry for entry in entries.values() if (toolbox.name, entry.name) not in failures]
    budget = budget_of(catalog, request)
    beside: dict[str, object] = {
        "toolbox": toolbox.name,
        "description": _within_share(toolbox.description, budget, _SHARE_OF_DESCRIPTION),
        "unavailable": unavailable({**left_out(available), **failures}, budget),
    }
    if changed:
        beside["changed"] = changed
    form = None if request.detail is None else Form(request.detail)
    wanted = request.cursor is None and (form is None or form.is_json)
    instructions = _server_instructions(available) if wanted else {}
    notes = _sign_in_notes(available)
    if said := [*notes, *_without_instructions(instructions)]:
        beside["notes"] = said
    tools = tool_index.tools(available)

    made = listing(
        tools,
        budget=budget,
        beside=(len(encode(beside)) + _FRAME_BYTES, len(_as_text(beside, "").encode())),
        form=form,
        limit=request.limit,
        cursor=request.cursor,
        spend=request.budget is not UNSET,
    )
    if instructions and made.form.is_json:
        most = bytes_of(budget)
        tools_take = _FRAME_BYTES + max(len(render(made).encode()), structured_size(made.shown))
        # Included only if there is space left, so that it costs no tool its schema.
        for shown in range(len(instructions), 0, -1):
            said = [*notes, *_without_instructions([*instructions][shown:])]
            more = {**beside, "instructions": dict([*instructions.items()][:shown]), "notes": said}
            if most is None or len(encode(more)) + tools_take <= most:
                beside = more if said else {name: value for name, value in more.items() if name != "notes"}
                break
    return made, _opened(made, beside, is_error=len(failures) == len(entries))


def _opened(made: Listing, beside: dict[str, object], *, is_error: bool) -> bytes:
    from mcp_workbench.engine.economy.budget_ladder import legends, render
    from mcp_workbench.engine.economy.forms import Form

    content = {
        "toolbox": beside["toolbox"],
        "description": beside["description"],
        "form": str(made.form),
        **({"note": made.note} if made.form is not Form.FULL or made.cursor is not None else {}),
        "tools": [Raw(each.structured()) for each in made.shown],
        **({} if made.cursor is None else {"cursor": made.cursor}),
        **({"common": common} if (common := legends(made)) else {}),
        **{name: value for name, value in beside.items() if name not in ("toolbox", "description")},
    }
    if all(each.form.is_json for each in made.shown):
        text = encode({**content, "tools": [Raw(each.text.encode()) for each in made.shown]}).decode()
    else:
        text = _as_text(beside, render(made))
    return tool_result(text, content, is_error=is_error)


def _as_text(beside: dict[str, object], listed: str) -> str:
    changed, notes = beside.get("changed"), beside.get("notes")
    said = f"\nAlso changed: {', '.join(changed)}" if isinstance(changed, list) else ""
    said += "".join(f"\nNote: {note}" for note in notes) if isinstance(notes, list) else ""
    return f"{beside['toolbox']}: {listed}{unavailable_text(beside['unavailable'])}{said}"


def _sign_in_notes(entries: Iterable[ServerEntry]) -> list[str]:
    """Warnings about sign-ins that expire soon."""
    return [
        f"{entry.name}: {said}" for entry in entries if entry.sign_in is not None and (said := entry.sign_in.note())
    ]


def _server_instructions(entries: Iterable[ServerEntry]) -> dict[str, str]:
    return {
        entry.name: clip(entry.instructions, MAX_SHOWN_INSTRUCTIONS_LENGTH) for entry in entries if entry.instructions
    }


def _without_instructions(servers: Collection[str]) -> list[str]:
    """A note that the instructions of these servers were left out, and how to get them."""
    if not servers:
        return []
    named = clip(", ".join(servers), _MAX_REASON_LENGTH)
    return [f'instructions of servers left out ({named}); `detail: "full", limit: 1` shows them']


# ── what is not available ──


def left_out(entries: Iterable[ServerEntry]) -> Failures:
    """The tools of these servers that are too large to be shown, or are withheld."""
    withheld: Failures = {
        (entry.toolbox, entry.name): DownstreamError(_about_withheld(entry.withheld["tools"]), hint=REVIEW_THEM)
        for entry in entries
        if entry.withheld.get("tools")
    }
    return withheld | {
        (entry.toolbox, entry.name): DownstreamError(
            about_oversized("tools", entry.offer.oversized["tools"]),
            hint="raise `maxDefinitionBytes` in the configuration, or shorten the descriptions in the server",
        )
        for entry in entries
        if entry.offer is not None and entry.offer.oversized.get("tools")
    }


def _about_withheld(tools: Mapping[str, str]) -> str:
    named = ", ".join(f"`{name}`" for name in sorted(tools)[:MAX_NAMED_WITHHELD_ITEMS])
    more = f" and {len(tools) - MAX_NAMED_WITHHELD_ITEMS} more" if len(tools) > MAX_NAMED_WITHHELD_ITEMS else ""
    return f"withheld, because the user has not accepted what they are now: {named}{more}"


def unavailable(failures: Failures, budget: int | None = None) -> list[dict[str, str]]:
    """The servers that are unavailable, with reasons, truncated if they would take too much of the budget."""
    described = list(_described(failures, None))
    if budget is not None:
        most = _bytes(budget) // _SHARE_OF_FAILURES
        for longest in (400, 160, 60):
            if len(encode(described)) <= most:
                break
            described = list(_described(failures, longest))
        if len(encode(described)) > most:
            slow = {place: error for place, error in failures.items() if isinstance(error, StillStarting)}
            failed = {place: error for place, error in failures.items() if place not in slow}
            described = [
                {"server": cut(", ".join(map("/".join, places)), most // 3), "reason": reason, "retry": retry}
                for places, reason, retry in (
                    (failed, f"{_servers(failed)} cannot be used", NO_RETRY_ADVICE),
                    (slow, f"{_servers(slow)}{_STARTING}", _ASK_AGAIN),
                )
                if places
            ]
    return described


def _servers(places: Sized) -> str:
    return f"{len(places)} server{'s' * (len(places) != 1)}"


def _described(failures: Failures, longest: int | None) -> Iterator[dict[str, str]]:
    several = len({toolbox for toolbox, _ in failures}) > 1
    for (toolbox, server), error in failures.items():
        reason, retry = error.message, error.hint or NO_RETRY_ADVICE
        if longest is not None:
            reason, retry = clip(one_line(reason), longest), clip(one_line(retry), longest)
        yield {"server": f"{toolbox}/{server}" if several else server, "reason": reason, "retry": retry}


def unavailable_text(described: object) -> str:
    """The same as lines of text. Servers that are only slow share one line."""
    assert isinstance(described, list)
    waiting = [each["server"] for each in described if each["reason"] == _IS_STARTING]
    lines = [
        f"\n{'Still starting' if each['reason'].endswith(_STARTING) else 'Not available'}: "
        f"{each['server']}: {each['reason']} ({each['retry']})"
        for each in described
        if each["reason"] != _IS_STARTING
    ]
    if waiting:
        lines.append(f"\nStill starting: {', '.join(waiting)} ({_ASK_AGAIN})")
    return "".join(lines)


# ── budgets ──


def budget_of(catalog: Catalog, request: OpenRequest) -> int | None:
    """The budget of this result in tokens: the request's, else the toolbox's, else the file's. None: no limit."""
    if request.budget is not UNSET:
        return request.budget if isinstance(request.budget, int) else None
    return catalog.budget_of(request.toolbox_name)


def bytes_of(budget: int | None) -> int | None:
    return None if budget is None else _bytes(budget)


def _bytes(budget: int | None) -> int:
    return (MIN_TOKEN_BUDGET if budget is None else max(budget, MIN_TOKEN_BUDGET)) * BYTES_PER_TOKEN


def _within_share(text: str, budget: int | None, share: int) -> str:
    return text if budget is None else clip(text, _bytes(budget) // share)


# ── results ──


def tool_result(text: str, content: dict[str, object], *, is_error: bool = False) -> bytes:
    """A tool result as text, and as structured content that says the same."""
    error = b',"isError":true' if is_error else b""
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (encode(text), encode(content), error)


def text_result(text: str, *, is_error: bool = False) -> bytes:
    """A tool result in plain text."""
    error = b',"isError":true' if is_error else b""
    return b'{"content":[{"type":"text","text":%b}]%b}' % (encode(text), error)
