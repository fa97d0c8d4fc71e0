"""The views of `top`: the state of workbenches as lines that fit a terminal. Pure.

The list has a row for each server, a server's own view its calls, its log or its copies. A column in which nothing
stands is left out, and so are the less important ones where the others would have to be cut.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from mcp_workbench.cli.screen import Part, Style
from mcp_workbench.cli.server_copies import BROKEN, UNUSED, grouped, lacking_in, place_of
from mcp_workbench.engine.observe.day_ring import HOURS, OUTLINE_STEP_SECONDS
from mcp_workbench.engine.printable import one_line, plural
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL

Line = Sequence[Part]
Look = dict[str, Any]
Tab = Literal["calls", "log", "copies"]
TABS: Final[tuple[Tab, ...]] = ("calls", "log", "copies")

_SERVER_COLUMN: Final = "SERVER"
_STATE: Final = "STATE"
_DAY_COLUMN: Final = "LAST DAY"
# Which columns go first where there is no room for all of them; the name and the state never do.
_DROPPED_COLUMNS: Final = (_DAY_COLUMN, "P50", "MEMORY", "CALLS", "CALLS/S", "P95", "BUSY", "ERRORS")
_MIN_NAME_WIDTH: Final = 12
# Of the plot of a day: fewer columns say nothing, more than one for a quarter of an hour nothing new.
_MIN_PLOT_WIDTH: Final = 12
_MAX_PLOT_WIDTH: Final = HOURS * 3600 // OUTLINE_STEP_SECONDS
# From this width on, columns are set apart by more than one space.
_WIDE: Final = 100
LAST_CALLS: Final = 8
_BARS: Final = "▁▂▃▄▅▆▇█"
_MAX_REASONS: Final = 3
# Lines of one reason.
_MAX_WRAPPED_LINES: Final = 3
LIST_KEYS: Final = "up/down choose  enter look  / filter  s stop  r restart  ? keys  q quit"
SERVER_KEYS: Final = "tab calls, log, copies  up/down scroll  / filter  s stop  r restart  q back"
KEYS_HELP: Final = (
    ("up, down, j, k", "choose a server; scroll"),
    ("page up, page down", "the same by a screen"),
    ("enter", "look at the chosen server: its calls, its log, its copies"),
    ("tab, left, right", "the next of these"),
    ("l", "the log of the chosen server"),
    ("s", "stop the server; the next call starts it again"),
    ("r", "restart the server"),
    ("/", "show only what contains a text, until escape"),
    ("q, escape", "back; quit"),
)
# As a terminal understands them.
_ANSI: Final[dict[Style, str]] = {
    "plain": "", "strong": "1", "name": "1;36", "dim": "2", "good": "32", "bad": "1;31", "warn": "33", "code": "32"
}  # fmt: skip
_ENDS: Final = {
    "tool_error": "failed",
    "cancelled": "cancelled",
    "timeout": "timed out",
    "needs_approval": "needs approval",
}
_CALL_STATES: Final = {"held": "waits for a person or a limit", "waiting": "waits for its server", "sent": "running"}


# How often a server was called in each quarter of an hour of the last day, the latest last, and whether calls failed;
# None before calls were counted.
Day = tuple[tuple[int | None, bool], ...]


class ServerRow(Struct, frozen=True):
    """A server of one workbench. `pid` is the workbench's process id."""

    pid: int
    toolbox: str
    server: str
    # By the title of the column; what is not known has none.
    cells: dict[str, str]
    # Why it does not work, if it does not.
    reasons: tuple[str, ...] = ()
    # What its sandbox lacks on this machine.
    lacking: tuple[str, ...] = ()
    day: Day = ()

    @property
    def label(self) -> str:
        return f"{self.toolbox}/{self.server}"

    def contains(self, text: str) -> bool:
        return any(text in part.casefold() for part in (self.label, self.cells[_STATE], *self.reasons, *self.lacking))


def rows_of(look: Look, memory: dict[int, int], text: str = "") -> list[ServerRow]:
    """One row for each server that contains the text, those in use first. A server with several processes is one."""
    status = look["status"]
    rows = []
    for copies in grouped(status["servers"]):
        figures = look["figures"].get(copies.label, {})
        size = sum(memory.get(pid, 0) for pid in look["processes"].get(copies.label, ()))
        rate, busy = look.get("perSecond", {}).get(copies.label), copies.total("callsInFlight")
        cells = {
            _STATE: copies.state,
            "CALLS/S": f"{rate:.1f}" if rate else "",
            "CALLS": f"{figures['calls']:,}" if figures.get("calls") else "",
            "ERRORS": f"{figures['errors']:,}" if figures.get("errors") else "",
            "P50": duration(figures.get("p50")),
            "P95": duration(figures.get("p95")),
            "BUSY": str(busy) if busy else "",
            "MEMORY": _size(size),
        }
        day = day_of(look.get("day", {}).get(copies.label, ()), look.get("now", 0.0), look.get("since"))
        reasons = tuple(copies.reasons(BROKEN))
        lacking = tuple(f"sandbox: {each}" for each in lacking_in(copies))
        rows.append(ServerRow(status["pid"], copies.toolbox, copies.server, cells, reasons, lacking, day))
    shown = [row for row in rows if row.contains(text.casefold())]
    return sorted(shown, key=lambda row: row.cells[_STATE] == UNUSED)


def picture(
    looks: list[Look], memory: dict[int, int], width: int, height: int | None, chosen: int | None, text: str = ""
) -> list[Line]:
    """The list: at most `height` lines of at most `width` characters. `chosen` is the row with the cursor; only what
    contains `text` is shown."""
    lines: list[Line] = []
    number = at = 0
    for look in looks:
        rows = rows_of(look, memory, text)
        lines += [[""]] if lines else []
        lines += _about(look, rows, width)
        table, places = _table(rows, width, None if chosen is None else chosen - number)
        at = next((len(lines) + place for place, row in places.items() if number + row == chosen), at)
        lines += table
        number += len(rows)
    if not looks:
        lines.append(["No workbench is running. Clients start one; mcp-workbench up starts one for all of them."])
    calls = [call for look in looks for call in calls_of(look, text=text)]
    last = _calls(sorted(calls, key=lambda call: float(call["at"]))[-LAST_CALLS:], width)
    if last:
        last = [[""], [("LAST CALLS", "dim")], *last]
    if height is None:
        return [fitted(line, width) for line in lines + last]
    # Rows of servers take precedence over past calls.
    last = last[: max(0, height - len(lines) - 1)]
    # Scrolled until the chosen row is on the screen.
    above = max(0, at - (height - 2))
    return _screen((lines + last)[above:], width, height)


def server_picture(
    look: Look, row: ServerRow, tab: Tab, log: Sequence[str], width: int, height: int, scroll: int, text: str
) -> list[Line]:
    """One server: figures, the plot of its day, and its calls, log or copies. `scroll`: how many lines were scrolled
    from where one begins to read: the end of calls and of the log."""
    figures, state = row.cells, row.cells[_STATE]
    parts = [f"{name} {figures[title]}" for name, title in _FIGURES if figures[title]]
    head: list[Line] = [
        [(row.label, "strong"), "  ", (state, _style_of(state))],
        *(line for reason in row.reasons[:_MAX_REASONS] for line in _wrapped(reason, width, 2, "bad")),
        *(line for lacking in row.lacking for line in _wrapped(lacking, width, 2, "warn")),
        *_wrapped(", ".join([_counted(look, [row]), *parts]), width, 2),
    ]
    times = look.get("dayTimes", {}).get(row.label, {})
    shown = ", ".join(f"{name} {duration(times[name])}" for name in ("p50", "p95") if times.get(name) is not None)
    if plot := _plot(row.day, min(_MAX_PLOT_WIDTH, width - 14 - len(shown))):
        head.append(["  last day ", *plot, f"  {shown}" if shown else ""])
    head += [[""], [(f"  [{each}]", "strong") if each == tab else f"   {each} " for each in TABS]]
    body = {"calls": _server_calls, "log": _server_log, "copies": _server_copies}[tab](look, row, log, text, width)
    room = max(1, height - 1 - len(head))
    furthest = max(0, len(body) - room)
    start = min(scroll, furthest) if tab == "copies" else furthest - min(scroll, furthest)
    return _screen(head + body[start : start + room], width, height)


_FIGURES: Final = (("p50", "P50"), ("p95", "P95"), ("busy", "BUSY"), ("calls/s", "CALLS/S"), ("memory", "MEMORY"))


def help_picture(width: int, height: int) -> list[Line]:
    longest = max(len(keys) for keys, _ in KEYS_HELP)
    lines: list[Line] = [
        [("Keys", "strong")],
        [""],
        *([f"  {keys.ljust(longest)}  {what}"] for keys, what in KEYS_HELP),
    ]
    lines += [[""], ["Figures count from the time above them; CALLS/S is of the last ten seconds."]]
    return _screen(lines, width, height)


def _server_calls(look: Look, row: ServerRow, log: Sequence[str], text: str, width: int) -> list[Line]:
    lines = _calls(calls_of(look, row, text), width, is_of_one=True)
    return lines or [["  None" + (" like that." if text else " since top looks.")]]


def _server_log(look: Look, row: ServerRow, log: Sequence[str], text: str, width: int) -> list[Line]:
    lines: list[Line] = [[f"  {one_line(line)}"] for line in log if text.casefold() in line.casefold()]
    return lines or [["  It has written nothing" + (" like that." if text else " to stderr.")]]


def _server_copies(look: Look, row: ServerRow, log: Sequence[str], text: str, width: int) -> list[Line]:
    copies = next((each for each in grouped(look["status"]["servers"]) if each.label == row.label), None)
    clients = {client["pid"]: client["name"] or "" for client in look["status"].get("clients") or ()}
    lines: list[Line] = []
    for report in () if copies is None or not copies.is_used else copies.started:
        place = place_of(report, clients) or str(report["state"])
        if text.casefold() not in place.casefold():
            continue
        up = report.get("uptimeSeconds")
        said = [*([] if up is None else [f"up {duration(up)}"]), plural(report.get("starts", 0), "start")]
        said += [plural(report["failures"], "failure")] if report.get("failures") else []
        lines += [[f"  {place}"], [(f"    {', '.join(said)}", "dim")]]
        if report.get("lastError"):
            lines += _wrapped(report["lastError"].splitlines()[0], width, 4)
    return lines or [["  None: it has not been used."]]


# ── parts of them ──


def _about(look: Look, rows: list[ServerRow], width: int) -> list[Line]:
    status = look["status"]
    serving, clients = status.get("serving") or "stdio", status.get("clients")
    whose = plural(len(clients), "client") if clients is not None else status["config"]
    lines: list[Line] = [[f"process {status['pid']}, {serving}, up {duration(status['uptimeSeconds'])}: {whose}"]]
    if waiting := len(status.get("approvals") or ()):
        calls = "1 call waits" if waiting == 1 else f"{waiting} calls wait"
        lines.append([(f"  {calls} for your approval: mcp-workbench team approve", "warn")])
    counted = f"  {_counted(look, rows)}"
    # All are counted since the same time.
    day = tuple(
        (None if step[0][0] is None else sum(calls or 0 for calls, _ in step), any(failed for _, failed in step))
        for step in zip(*_days(rows), strict=True)
    )
    plot = _plot(day, min(_MAX_PLOT_WIDTH // 2, width - len(counted) - 11))
    lines.append([counted, *(["  last day ", *plot] if plot else [])])
    return lines


def _days(rows: list[ServerRow]) -> list[Day]:
    return [row.day for row in rows if row.day]


def _counted(look: Look, rows: list[ServerRow]) -> str:
    """`12 calls, 1 error since 09:12`."""
    figures = [look["figures"].get(row.label, {}) for row in rows]
    calls, errors = (sum(each.get(name, 0) for each in figures) for name in ("calls", "errors"))
    failed = f", {plural(errors, 'error')}" if errors else ""
    since = look.get("since")
    if since is None:
        return f"{plural(calls, 'call')}{failed}"
    is_recent = look["now"] - since < HOURS * 3600
    when = time.strftime("%H:%M" if is_recent else "%Y-%m-%d %H:%M", time.localtime(since))
    return f"{plural(calls, 'call')}{failed} since {when}"


def _table(rows: list[ServerRow], width: int, chosen: int | None) -> tuple[list[Line], dict[int, int]]:
    """The table of servers, and which of its lines has which row."""
    if not rows:
        return [["  no server"]], {}
    gap = " " if width < _WIDE else "  "
    widths = {
        title: max(len(title), *(cell_len(row.cells[title]) for row in rows))
        for title in rows[0].cells
        if any(row.cells[title] for row in rows)
    }
    if any(row.day for row in rows):
        widths[_DAY_COLUMN] = _MIN_PLOT_WIDTH
    longest = max(len(_SERVER_COLUMN), *(cell_len(one_line(row.label)) for row in rows))
    # One long name is no reason to take the figures of all.
    names = min(longest, max(_MIN_NAME_WIDTH, width // 2))

    def spare() -> int:
        return width - 2 - names - sum(widths.values()) - len(gap) * len(widths)

    for title in _DROPPED_COLUMNS:
        if spare() >= 0:
            break
        widths.pop(title, None)
    if spare() < 0:
        # Names and states share what there is.
        room = width - 2 - sum(widths.values()) - len(gap) * len(widths) + widths[_STATE]
        widths[_STATE] = min(widths[_STATE], max(room - names, room // 2))
        names = max(_MIN_NAME_WIDTH, room - widths[_STATE])
    names = min(longest, names + max(0, spare()))
    if _DAY_COLUMN in widths:
        widths[_DAY_COLUMN] = min(_MAX_PLOT_WIDTH, _MIN_PLOT_WIDTH + spare())
    titles = gap.join(_padded(title, widths[title], is_text=title in (_STATE, _DAY_COLUMN)) for title in widths)
    lines: list[Line] = [[(f"  {_padded(_SERVER_COLUMN, names)}{gap}{titles}".rstrip(), "dim")]]
    places = {}
    for number, row in enumerate(rows):
        places[len(lines)] = number
        is_chosen = number == chosen
        line: list[Part] = [
            "> " if is_chosen else "  ",
            (_padded(one_line(row.label), names), "strong" if is_chosen else "plain"),
        ]
        for title, each in widths.items():
            line.append(gap)
            if title == _DAY_COLUMN:
                line += _plot(row.day, each)
            else:
                cell = _padded(row.cells[title], each, is_text=title == _STATE)
                line.append((cell, _style_of(row.cells[_STATE])) if title == _STATE else cell)
        lines.append(line)
        for reason in row.reasons:
            lines += _wrapped(reason, width, 4, "bad")
        for lacking in row.lacking:
            lines += _wrapped(lacking, width, 4, "warn")
    return lines, places


def calls_of(look: Look, row: ServerRow | None = None, text: str = "") -> list[dict[str, Any]]:
    """The latest calls and those under way that contain the text, of one server or of all."""
    found = []
    for call in (*look["lastCalls"], *look.get("running", ())):
        path = f"{call['toolbox']}/{call['server']}"
        words = (path, call["item"], call.get("client", ""), call.get("principal", ""), call.get("reason", ""))
        if (row is None or path == row.label) and any(text.casefold() in word.casefold() for word in words):
            found.append(call | {"now": look.get("now", call["at"])})
    return found


def _calls(calls: list[dict[str, Any]], width: int, *, is_of_one: bool = False) -> list[Line]:
    rows = []
    for call in calls:
        item = call["item"] or call.get("method", "")
        is_under_way = call.get("state", "ended") != "ended"
        seconds = call["now"] - call["at"] if is_under_way else call["seconds"]
        principal = call.get("principal", "")
        rows.append(
            (
                time.strftime("%H:%M:%S", time.localtime(call["at"])),
                duration(max(0.0, seconds)) if seconds is not None else "",
                one_line(call.get("client", "")),
                "" if principal == LOCAL_PRINCIPAL else one_line(principal),
                one_line(item if is_of_one else f"{call['toolbox']}/{call['server']}/{item}"),
                _outcome(call),
            )
        )
    widths = [max((cell_len(row[column]) for row in rows), default=0) for column in range(5)]
    lines: list[Line] = []
    for row in rows:
        # Nobody's user or client takes no room.
        cells = [
            _padded(cell, each, is_text=number != 1)
            for number, (cell, each) in enumerate(zip(row, widths, strict=False))
            if each
        ]
        said = "  " + "  ".join(cells).rstrip()
        if is_of_one and cell_len(said) + 2 + cell_len(row[5]) > width:
            lines += [[said], *_wrapped(row[5], width, 4, "bad")]
        else:
            lines.append([said, ("  " + row[5] if row[5] else "", "bad")])
    return lines


def _outcome(call: dict[str, Any]) -> str:
    """How it ended, if not well, and why; or what it waits for."""
    if call.get("state", "ended") != "ended":
        return _CALL_STATES.get(call["state"], "")
    if call["end"] == "ok":
        return ""
    said = _ENDS.get(call["end"], call["end"])
    if call["end"] == "refused" and call.get("rule"):
        said += f" by {call['rule']}"
    return one_line(f"{said}: {call['reason']}" if call.get("reason") else said)


def day_of(outline: Iterable[Sequence[int]], now: float, since: float | None) -> Day:
    """What was called in each quarter of an hour of the last day; empty if nothing was."""
    last = int(now) // OUTLINE_STEP_SECONDS
    first = 0 if since is None else int(since) // OUTLINE_STEP_SECONDS
    steps = {number: (calls, bool(errors)) for number, calls, errors in outline}
    found = tuple(
        steps.get(number, (0 if number >= first else None, False))
        for number in range(last - _MAX_PLOT_WIDTH + 1, last + 1)
    )
    return found if any(calls for calls, _ in found) else ()


def _plot(day: Day, width: int) -> Line:
    """The day as bars, one for each column, from when calls were counted; those of times with failed calls stand
    out."""
    if not day or width < _MIN_PLOT_WIDTH:
        return []
    edges = [len(day) * column // width for column in range(width + 1)]
    steps = [day[first : max(last, first + 1)] for first, last in pairwise(edges)]
    heights = [max((calls for calls, _ in step if calls is not None), default=None) for step in steps]
    most = max(height or 0 for height in heights)
    parts: list[Part] = []
    for height, step in zip(heights, steps, strict=True):
        # The smallest number of calls is still something.
        bar = _BARS[max(1, -(-height * (len(_BARS) - 1) // most))] if height else " " if height is None else _BARS[0]
        style: Style = "bad" if any(failed for _, failed in step) else "good" if height else "dim"
        parts.append((bar, style))
    return parts


def _style_of(state: str) -> Style:
    if any(each in state for each in BROKEN):
        return "bad"
    return "dim" if state == UNUSED else "good" if state.endswith("ready") else "warn"


# ── lines ──


def _screen(lines: list[Line], width: int, height: int) -> list[Line]:
    """As many lines as fit above the last, which is for keys."""
    shown = lines[: height - 1]
    return [fitted(line, width) for line in (*shown, *([[""]] * (height - 1 - len(shown))))]


def _wrapped(text: str, width: int, indent: int, style: Style = "plain") -> list[Line]:
    """A text on as many lines as it needs, and a few at most."""
    shown = textwrap.wrap(one_line(text), max(20, width - indent), max_lines=_MAX_WRAPPED_LINES, placeholder=" …")
    return [[(" " * indent + line, style)] for line in shown]


def fitted(line: Line, width: int) -> Line:
    """A line cut to this many cells, with nothing in it that a terminal would carry out."""
    found: list[Part] = []
    left = width
    total = sum(cell_len(one_line(text_of(part))) for part in line)
    for part in line:
        text, style = one_line(text_of(part)), _style(part)
        if total > width and cell_len(text) >= left:
            found.append((set_cell_size(text, max(0, left - 1)) + "…", style))
            break
        found.append((text, style))
        left -= cell_len(text)
    return found


def text_of(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _style(part: Part) -> Style:
    return "plain" if isinstance(part, str) else part[1]


def plain(line: Line) -> str:
    return "".join(map(text_of, line))


def painted(line: Line) -> str:
    """With the colours of a terminal."""
    found = ""
    for part in line:
        text, style = text_of(part), _style(part)
        found += f"\x1b[{_ANSI[style]}m{text}\x1b[m" if _ANSI[style] and text else text
    return found


def _padded(text: str, width: int, *, is_text: bool = True) -> str:
    cut = text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
    return set_cell_size(cut, width) if is_text else " " * (width - cell_len(cut)) + cut


def _size(count: int) -> str:
    if not count:
        return ""
    # Half a unit is no unit.
    if count < 1000 * 1024**2:
        return f"{count // 1024**2} MiB"
    size = count / 1024**3
    return f"{size:.1f} GiB" if size < 9.95 else f"{size:.0f} GiB"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
