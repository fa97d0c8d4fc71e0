"""The picture of `top`: fits 80 columns, whatever servers are called."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from mcp_workbench.cli.top_view import KEYS, log_picture, picture, rows_of


def server(name: str, state: str = "ready", busy: int = 0) -> dict[str, Any]:
    return {"toolbox": "box", "server": name, "state": state, "callsInFlight": busy}


def look(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {
        "pid": 9,
        "serving": "shared",
        "config": None,
        "uptimeSeconds": 3700.0,
        "clients": [1, 2],
        "servers": servers,
    }
    return {"status": status, "figures": {}, "processes": {}, "lastCalls": [], **more}


FIGURES = {"box/time": {"calls": 5, "errors": 2, "perSecond": 1.26, "p50": 0.0123, "p95": 2.5}}
CALLS = [
    {"at": 0.0, "toolbox": "box", "server": "time", "item": "now", "seconds": 0.25, "end": "ok"},
    {"at": 1.0, "toolbox": "box", "server": "time", "item": "then", "seconds": 0.25, "end": "error"},
    {"at": 2.0, "toolbox": "box", "server": "time", "item": "never", "seconds": None, "end": "no answer"},
]


def test_servers_with_their_figures_those_in_use_first() -> None:
    found = look(
        server("idle", "known"), server("time", busy=2), server("time", busy=1), figures=FIGURES,
        processes={"box/time": [4, 5]},
    )  # fmt: skip
    time, idle = rows_of(found, {4: 40 * 1024**2, 5: 2 * 1024**3})
    assert time.cells == ("2 ready", "2.0 GiB", "3", "1.3", "12.3 ms", "2.5 s", "2")
    assert idle.cells == ("unused", "", "0", "", "", "", "") and idle.label == "box/idle"


def test_a_picture_in_a_pipe_is_as_long_as_it_has_to_be() -> None:
    lines = picture([look(server("time"), figures=FIGURES, lastCalls=CALLS)], {}, 80, None, None)
    assert lines[0] == "process 9, shared, up 1 h 1 min: 2 clients"
    assert lines[1] == "  TOOLBOX/SERVER            STATE     MEMORY BUSY CALLS/S     P50     P95 ERRORS"
    assert lines[2] == "  box/time                  ready               0     1.3 12.3 ms   2.5 s      2"
    assert lines[4:6] == ["LAST CALLS", lines[5]] and lines[5].endswith("     250 ms  box/time/now")
    assert lines[6].endswith("box/time/then  error") and "no answer" in lines[7]
    assert "No workbench is running" in picture([], {}, 100, None, None)[0]


def test_a_state_is_whole_and_below_it_stands_why_a_server_does_not_work() -> None:
    broken = {"lastError": "the program exited with status 3\nstderr", "lastErrorSecondsAgo": 3.0}
    found = look(
        {**server("time"), **broken},
        {**server("files", "needs sign-in"), "lastError": "sign in first", "lastErrorSecondsAgo": None},
        {**server("time", "backoff"), **broken},
    )
    for width in (80, 200):
        lines = picture([found], {}, width, None, None)
        assert lines[2].split()[:5] == ["box/time", "1", "ready,", "1", "backoff"]
        assert lines[3] == "    the program exited with status 3 (3 s ago)"
        assert lines[4].split()[:3] == ["box/files", "needs", "sign-in"] and lines[5] == "    sign in first"
        assert all(cell_len(line) <= width for line in lines)
    # An error that is over is for `status`.
    assert len(picture([look({**server("time"), **broken})], {}, 80, None, None)) == 3


def test_a_long_name_leaves_a_long_state_half_of_the_room() -> None:
    many = [server("long" * 20, state) for state in ("ready", "backoff", "failed", "starting")]
    line = picture([look(*many)], {}, 80, None, None)[2]
    assert "… 1 ready, 1 star… " in line and len(line) == 80


def test_the_chosen_row_is_on_the_screen() -> None:
    many = [server(f"s{number}") for number in range(40)]
    for chosen in (0, 21, 30, 39):
        lines = picture([look(*many)], {}, 80, 24, chosen)
        assert len(lines) == 24 and lines[-1] == KEYS
        assert [line.split()[1] for line in lines if line.startswith(">")] == [f"box/s{chosen}"]


def test_wide_letters_take_two_cells() -> None:
    lines = picture([look(server("\u6642\u8a08" * 20), server("time"))], {}, 80, 24, 0)
    assert cell_len(lines[2]) == cell_len(lines[3]) == 80 and "\u6642\u8a08\u2026" in lines[2].replace(" ", "")


def test_on_a_terminal_it_fills_the_screen_and_no_more() -> None:
    many = [server(f"{number}-{'long' * 30}\x1b[2J", "needs sign-in") for number in range(50)]
    lines = picture([look(*many, lastCalls=CALLS), look(server("x"))], {}, 80, 24, 1)
    assert len(lines) == 24 and lines[-1] == KEYS and all(len(line) <= 80 for line in lines)
    assert lines[3].startswith("> box/1-") and "\x1b" not in "".join(lines) and " sign-in " in lines[3]
    short = picture([look(server("x"), lastCalls=CALLS)], {}, 80, 24, 0)
    assert len(short) == 24 and "LAST CALLS" in short


def test_a_log_shows_its_end() -> None:
    lines = log_picture("box/s", [f"line {number}" for number in range(100)], 80, 24)
    assert len(lines) == 24 and lines[0] == "box/s" and lines[-2:] == ["line 99", "q back"]
    assert log_picture("box/s", [], 80, 24)[2] == "It has written nothing to stderr."


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, ""),
        (999 * 1024**2, "999 MiB"),
        (1000 * 1024**2, "1.0 GiB"),
        (1023 * 1024**2, "1.0 GiB"),
        (int(9.96 * 1024**3), "10 GiB"),
        (240 * 1024**3, "240 GiB"),
    ],
)
def test_memory_of_any_size_fits_its_column(size: int, shown: str) -> None:
    found = look(server("time"), processes={"box/time": [4]})
    (row,) = rows_of(found, {4: size})
    assert row.cells[1] == shown
    assert shown in picture([found], {4: size}, 80, None, None)[2]
