"""The view of `top`: turns the state of workbenches into lines that fit a terminal. Pure."""

from __future__ import annotations

import time
from typing import Any, Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from mcp_workbench.cli.server_copies import grouped
from mcp_workbench.engine.printable import one_line

HEADER: Final = ("STATE", "MEMORY", "BUSY", "CALLS/S", "P50", "P95", "ERRORS")
# Of the columns after the state, which is as wide as the longest state needs.
WIDTHS: Final = (7, 4, 7, 7, 7, 6)
# One space between columns: at 80 columns, names need the room.
_ROOM: Final = sum(WIDTHS) + len(WIDTHS)
_SHORTEST_NAME: Final = 12
_SHORTEST_STATE: Final = 8
_UNUSED: Final = "unused"
# In these, a server does not work until its error is dealt with.
_BROKEN: Final = ("backoff", "failed", "needs sign-in")
LAST_CALLS: Final = 8
KEYS: Final = "up/down choose  l log  s stop  r restart  q quit"


class ServerRow(Struct, frozen=True):
    """A server of one workbench. `pid` is the workbench's process id."""

    pid: int
    toolbox: str
    server: str
    cells: tuple[str, ...]
    # Why it does not work, if it does not.
    reasons: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.toolbox}/{self.server}"


def rows_of(look: dict[str, Any], memory: dict[int, int]) -> list[ServerRow]:
    """Return one row for each server, those in use first. A server with several processes is one row."""
    status = look["status"]
    rows = []
    for copies in grouped(status["servers"]):
        figures = look["figures"].get(copies.label, {})
        size = sum(memory.get(pid, 0) for pid in look["processes"].get(copies.label, ()))
        cells = (
            copies.state if copies.is_used else _UNUSED,
            _size(size),
            str(copies.total("callsInFlight")),
            f"{figures['perSecond']:.1f}" if figures.get("calls") else "",
            _duration(figures.get("p50")),
            _duration(figures.get("p95")),
            str(figures["errors"]) if figures.get("errors") else "",
        )
        reasons = tuple(copies.reasons(_BROKEN))
        rows.append(ServerRow(status["pid"], copies.toolbox, copies.server, cells, reasons))
    return sorted(rows, key=lambda row: row.cells[0] == _UNUSED)


def picture(
    looks: list[dict[str, Any]], memory: dict[int, int], width: int, height: int | None, chosen: int | None
) -> list[str]:
    """Return at most `height` lines of at most `width` characters. `chosen` is the row with the cursor."""
    lines: list[str] = []
    number = at = 0
    for look in looks:
        status = look["status"]
        lines += ["", _about(status)] if lines else [_about(status)]
        rows = rows_of(look, memory)
        state_width = _state_width(rows, width - _ROOM - 3)
        name_width = max(_SHORTEST_NAME, width - _ROOM - 3 - state_width)
        lines.append("  " + "TOOLBOX/SERVER".ljust(name_width) + _cells(HEADER, state_width))
        for row in rows:
            at = len(lines) if number == chosen else at
            mark = "> " if number == chosen else "  "
            lines.append(mark + _padded(one_line(row.label), name_width) + _cells(row.cells, state_width))
            lines += [f"    {reason}" for reason in row.reasons]
            number += 1
    if not looks:
        lines.append("No workbench is running. Clients start one; mcp-workbench up starts one for all of them.")
    calls = sorted((call for look in looks for call in look["lastCalls"]), key=lambda call: float(call["at"]))
    last = [_call(call) for call in calls[-LAST_CALLS:]]
    if last:
        last = ["", "LAST CALLS", *last]
    if height is not None:
        # Rows of servers take precedence over past calls.
        last = last[: max(0, height - len(lines) - 1)]
        # Scrolled until the chosen row is on the screen.
        above = max(0, at - (height - 2))
        lines = (lines + last)[above : above + height - 1]
        lines += [""] * (height - 1 - len(lines)) + [KEYS]
    else:
        lines += last
    return [_cut(one_line(line), width) for line in lines]


def log_picture(title: str, log: list[str], width: int, height: int) -> list[str]:
    shown = log[-(height - 3) :] or ["It has written nothing to stderr."]
    lines = [title, "", *shown]
    lines += [""] * (height - 1 - len(lines)) + ["q back"]
    return [_cut(one_line(line), width) for line in lines]


def _about(status: dict[str, Any]) -> str:
    serving = status.get("serving") or "stdio"
    clients = status.get("clients")
    whose = f"{len(clients)} clients" if clients is not None else status["config"]
    return f"process {status['pid']}, {serving}, up {_duration(status['uptimeSeconds'])}: {whose}"


def _call(call: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(call["at"]))
    took = call["end"] if call["seconds"] is None else _duration(call["seconds"])
    failed = "  error" if call["end"] == "error" else ""
    return f"  {at}  {took:>9}  {call['toolbox']}/{call['server']}/{call['item']}{failed}"


def _state_width(rows: list[ServerRow], room: int) -> int:
    """What the longest state needs, if the longest name leaves it that much of the room for both."""
    needed = max((len(row.cells[0]) for row in rows), default=0)
    longest_name = max((cell_len(one_line(row.label)) for row in rows), default=0)
    left = room - max(_SHORTEST_NAME, longest_name)
    return max(_SHORTEST_STATE, min(needed, max(left, room // 2)))


def _cells(cells: tuple[str, ...], state_width: int) -> str:
    state, *rest = cells
    figures = (_cut(cell, width).rjust(width) for cell, width in zip(rest, WIDTHS, strict=True))
    return " ".join(["", _padded(state, state_width), *figures])


def _cut(text: str, width: int) -> str:
    """Shorten to this many terminal cells; a Chinese character takes two."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _padded(text: str, width: int) -> str:
    return set_cell_size(_cut(text, width), width)


def _size(count: int) -> str:
    if not count:
        return ""
    # Never wider than its column: half a unit is no unit.
    if count < 1000 * 1024**2:
        return f"{count // 1024**2} MiB"
    size = count / 1024**3
    return f"{size:.1f} GiB" if size < 9.95 else f"{size:.0f} GiB"


def _duration(seconds: float | None) -> str:
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
