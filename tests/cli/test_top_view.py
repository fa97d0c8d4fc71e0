"""The pictures of `top`: they fit 80 columns, whatever servers are called."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from mcp_workbench.cli import top_view
from mcp_workbench.cli.top_view import Line, ServerRow, Tab, painted, plain, rows_of
from mcp_workbench.engine.observe.day_ring import OUTLINE_STEP_SECONDS

NOW = 1000 * OUTLINE_STEP_SECONDS + 60.0


def server(name: str, state: str = "ready", busy: int = 0) -> dict[str, Any]:
    return {"toolbox": "box", "server": name, "state": state, "callsInFlight": busy}


def look(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {
        "pid": 9,
        "serving": "shared",
        "config": None,
        "uptimeSeconds": 3700.0,
        "clients": [{"pid": 1, "name": "cursor"}, {"pid": 2, "name": "codex"}],
        "servers": servers,
    }
    return {"status": status, "now": NOW, "figures": {}, "processes": {}, "lastCalls": [], **more}


def call(item: str, **more: Any) -> dict[str, Any]:
    found = {"toolbox": "box", "server": "time", "item": item, "method": "tools/call", "client": "", "end": "ok"}
    return {"at": NOW - 5, "principal": "local", "state": "ended", "seconds": 0.25, "rule": "", **found, **more}


FIGURES = {"box/time": {"calls": 1205, "errors": 2, "p50": 0.0123, "p95": 2.5}}


def picture(looks: list[dict[str, Any]], width: int = 80, height: int | None = None, **more: Any) -> list[str]:
    memory, chosen = more.pop("memory", {}), more.pop("chosen", None)
    return [plain(line) for line in top_view.picture(looks, memory, width, height, chosen, **more)]


def row_of(found: dict[str, Any]) -> ServerRow:
    return rows_of(found, {})[0]


def server_picture(found: dict[str, Any], tab: Tab, *log: str, scroll: int = 0, text: str = "") -> list[str]:
    lines: list[Line] = top_view.server_picture(found, row_of(found), tab, log, 80, 24, scroll, text)
    return [plain(line).rstrip() for line in lines]


def test_a_row_has_the_figures_of_all_copies_and_those_in_use_come_first() -> None:
    found = look(
        server("idle", "known"), server("time", busy=2), server("time", busy=1), figures=FIGURES,
        processes={"box/time": [4, 5]}, perSecond={"box/time": 1.26},
    )  # fmt: skip
    time, idle = rows_of(found, {4: 40 * 1024**2, 5: 2 * 1024**3})
    assert list(time.cells.values()) == ["2 ready", "1.3", "1,205", "2", "12.3 ms", "2.5 s", "3", "2.0 GiB"]
    assert idle.label == "box/idle" and list(idle.cells.values()) == ["unused", *[""] * 7]


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    lines = picture([look(server("time"), server("idle", "known"), figures=FIGURES)])
    assert lines[:3] == [
        "process 9, shared, up 1 h 1 min: 2 clients",
        "  1,205 calls, 2 errors",
        "  SERVER   STATE  CALLS ERRORS     P50   P95",
    ]
    assert lines[3].rstrip() == "  box/time ready  1,205      2 12.3 ms 2.5 s"
    assert "No workbench is running" in picture([])[0]


def test_where_not_all_columns_fit_the_less_important_ones_go_before_a_word_is_cut() -> None:
    name = "a-server-with-a-name-of-35-letters"
    figures = {f"box/{name}": FIGURES["box/time"]}
    found = look(server(name, busy=1), figures=figures, processes={f"box/{name}": [4]}, perSecond={f"box/{name}": 9.0})
    narrow, wide = (picture([found], width, memory={4: 1024**2})[2].split() for width in (80, 120))
    assert narrow == ["SERVER", "STATE", "CALLS/S", "CALLS", "ERRORS", "P95", "BUSY"]
    assert wide == ["SERVER", "STATE", "CALLS/S", "CALLS", "ERRORS", "P50", "P95", "BUSY", "MEMORY"]
    assert f"  box/{name} ready" in picture([found])[3]


def test_since_when_calls_are_counted_stands_above_them() -> None:
    def said(ago: float) -> str:
        return picture([look(server("time"), figures=FIGURES, since=NOW - ago)])[1]

    assert " since " in said(3600) and len(said(3600)) < len(said(90_000)), "a day ago it is with its date"


def test_the_last_day_is_plotted_for_all_and_where_there_is_room_for_each() -> None:
    day = {"box/time": [[1000, 8, 0], [999, 4, 1]], "box/other": [[1000, 8, 0], [900, 99, 0]]}
    found = look(server("time"), server("other"), day=day)
    narrow, wide = picture([found]), picture([found], 160)
    assert narrow[1].endswith("  last day " + "▁" * 47 + "█")
    assert wide[3].endswith("▁▅█") and wide[4].endswith("▁▁█") and len(wide[3]) > 100
    (line,) = (line for line in top_view.picture([found], {}, 160, None, None) if "box/time" in plain(line))
    assert painted(line).endswith("\x1b[1;31m▅\x1b[m\x1b[32m█\x1b[m"), "of a time with errors the bar stands out"
    assert "last day" not in "".join(picture([look(server("time"))])), "nothing was called"


def test_the_plot_of_the_day_begins_when_counting_began() -> None:
    # Half of the day.
    since = NOW - 48 * OUTLINE_STEP_SECONDS
    (line, *_) = picture([look(server("time"), day={"box/time": [[1000, 8, 0]]}, since=since)], 160)[1:]
    assert line.endswith("last day " + " " * 23 + "▁" * 24 + "█"), line


def test_a_state_is_whole_and_below_it_stands_why_a_server_does_not_work() -> None:
    broken = {"lastError": "the program exited with status 3\nstderr", "lastErrorSecondsAgo": 3.0}
    found = look(
        {**server("time"), **broken},
        {**server("files", "needs sign-in"), "lastError": "sign in " * 12, "lastErrorSecondsAgo": None},
        {**server("time", "backoff"), **broken},
    )
    for width in (80, 200):
        lines = picture([found], width)
        assert lines[3].split()[:5] == ["box/time", "1", "ready,", "1", "backoff"]
        assert lines[4] == "    the program exited with status 3 (3 s ago)"
        assert lines[5].split()[:3] == ["box/files", "needs", "sign-in"]
        assert "".join(lines[6:]).split() == ["sign", "in"] * 12, "it goes on in the next line"
        assert all(cell_len(line) <= width for line in lines)
    # An error that is over is for `status`.
    assert len(picture([look({**server("time"), **broken})])) == 4


def test_calls_that_wait_for_approval_are_announced() -> None:
    found = look(server("time"))
    found["status"]["approvals"] = [{}, {}]
    assert picture([found])[1] == "  2 calls wait for your approval: mcp-workbench team approve"


def test_a_call_has_its_client_its_user_and_why_it_failed() -> None:
    calls = [
        call("now", client="cursor"),
        call("then", client="codex", principal="bob", end="tool_error", reason="no such\nzone"),
        call("drop", end="refused", rule="policy[2]"),
        call("never", end="cancelled", seconds=None),
    ]
    running = [call("slow", state="sent", seconds=None, at=NOW - 3)]
    lines = picture([look(server("time"), lastCalls=calls, running=running)])[-6:]
    assert lines[0] == "LAST CALLS"
    assert [line.split(maxsplit=1)[1] for line in lines[1:]] == [
        "250 ms  cursor       box/time/now",
        "250 ms  codex   bob  box/time/then  failed: no such\\nzone",
        "250 ms               box/time/drop  refused by policy[2]",
        "box/time/never  cancelled",
        "3.0 s               box/time/slow  running",
    ]
    nobody = picture([look(server("time"), lastCalls=[call("now"), call("then")])])[-1]
    assert nobody.endswith("  250 ms  box/time/then"), "without users and clients there are no columns for them"


def test_filter_keeps_servers_and_calls_that_contain_it() -> None:
    calls = [call("now", server="other"), call("then", reason="a Broken pipe", end="error")]
    found = look(server("time"), {**server("other", "failed"), "lastError": "Broken"}, lastCalls=calls)
    assert [row.server for row in rows_of(found, {}, "broken")] == ["other"]
    lines = picture([found], text="broken")
    assert "box/time/then" in lines[-1] and "box/other/now" not in "".join(lines)
    assert "  no server" in picture([found], text="nothing like that")


def test_a_server_that_is_looked_at_has_its_calls_newest_last() -> None:
    calls = [call(f"t{number}") for number in range(40)] + [call("elsewhere", server="other")]
    found = look(server("time"), lastCalls=calls, figures=FIGURES, day={"box/time": [[1000, 8, 0]]})
    lines = server_picture(found, "calls")
    assert lines[0] == "box/time  ready" and lines[1] == "  1,205 calls, 2 errors, p50 12.3 ms, p95 2.5 s"
    assert lines[2].startswith("  last day ▁") and lines[4] == "  [calls]   log    copies"
    assert lines[-1].endswith("250 ms  t39") and lines[5].endswith("  t22") and len(lines) == 23
    assert server_picture(found, "calls", scroll=3)[-1].endswith("  t36")
    assert server_picture(found, "calls", scroll=999)[5].endswith("  t0"), "not beyond the first"
    assert [line.split()[-1] for line in server_picture(found, "calls", text="T3")[5:16]] == [
        "t3", *(f"t3{number}" for number in range(10))
    ]  # fmt: skip
    times = {"box/time": {"p50": 0.02, "p95": None}, "box/other": {"p50": 9.0}}
    lines = server_picture({**found, "dayTimes": times}, "calls")
    assert lines[2].startswith("  last day ▁") and lines[2].endswith("  p50 20.0 ms") and len(lines[2]) <= 80
    assert "  None since top looks." in server_picture(look(server("time")), "calls")


def test_a_reason_that_does_not_fit_beside_its_call_stands_below_it() -> None:
    failed = call("then", end="error", reason="the zone is not known " * 4)
    lines = server_picture(look(server("time"), lastCalls=[call("now"), failed]), "calls")
    at = next(number for number, line in enumerate(lines) if line.endswith("  then"))
    assert lines[at + 1].startswith("    error: the zone") and lines[at + 2].startswith("    ")


def test_a_log_shows_its_end() -> None:
    lines = server_picture(look(server("time")), "log", *(f"line {number}" for number in range(100)))
    assert lines[3] == "   calls   [log]   copies" and lines[-1] == "  line 99"
    assert "  It has written nothing to stderr." in server_picture(look(server("time")), "log")
    found = server_picture(look(server("time")), "log", "one", "TWO \x1b[2J", text="two")
    assert "  TWO \\x1b[2J" in found and "  one" not in found


def test_copies_name_their_owner_and_problem() -> None:
    mine = {**server("time"), "users": [1], "folder": "/a", "starts": 1, "uptimeSeconds": 75.0}
    other = {**server("time", "failed"), "user": "bob", "starts": 2, "failures": 2, "lastError": "no program\nmore"}
    assert server_picture(look(mine, other), "copies")[5:10] == [
        "  ready in /a: used by cursor (1)",
        "    up 1 min, 1 start",
        "  failed for bob",
        "    2 starts, 2 failures",
        "    no program",
    ]
    assert "  None: it has not been used." in server_picture(look(server("time", "known")), "copies")


def test_a_long_name_leaves_a_long_state_half_of_the_room() -> None:
    many = [server("long" * 20, state) for state in ("ready", "backoff", "failed", "starting")]
    line = picture([look(*many)])[3]
    assert "… 1 ready, 1 starting, 1 backoff, 1 fai…" in line and len(line) == 80


def test_the_chosen_row_is_on_the_screen() -> None:
    many = [server(f"s{number}") for number in range(40)]
    for chosen in (0, 21, 30, 39):
        lines = picture([look(*many)], 80, 24, chosen=chosen)
        assert len(lines) == 23
        assert [line.split()[1] for line in lines if line.startswith(">")] == [f"box/s{chosen}"]


def test_wide_letters_take_two_cells() -> None:
    many = [server("\u6642\u8a08" * 20), server("time")]
    lines = picture([look(*many, figures=FIGURES)], 80, 24, chosen=0)
    assert cell_len(lines[3]) == cell_len(lines[4]) == 80 and "\u6642\u8a08\u2026" in lines[3].replace(" ", "")


def test_on_a_terminal_it_fills_the_screen_and_no_more() -> None:
    many = [server(f"{number}-{'long' * 30}\x1b[2J", "needs sign-in") for number in range(50)]
    found = [look(*many, lastCalls=[call("now")]), look(server("x"))]
    lines = picture(found, 80, 24, chosen=1)
    assert len(lines) == 23 and all(len(line) <= 80 for line in lines)
    assert lines[4].startswith("> box/1-") and "\x1b" not in "".join(lines) and " sign-in" in lines[4]
    short = picture([look(server("x"), lastCalls=[call("now")])], 80, 24, chosen=0)
    assert len(short) == 23 and "LAST CALLS" in short


@pytest.mark.parametrize("width", [80, 200])
def test_keys_are_explained_in_whole_words(width: int) -> None:
    lines = [plain(line) for line in top_view.help_picture(width, 24)]
    assert len(lines) == 23 and "…" not in "".join(lines) and any("restart the server" in line for line in lines)
    assert len(top_view.LIST_KEYS) <= 80 and len(top_view.SERVER_KEYS) <= 80


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (999 * 1024**2, "999 MiB"),
        (1000 * 1024**2, "1.0 GiB"),
        (1023 * 1024**2, "1.0 GiB"),
        (int(9.96 * 1024**3), "10 GiB"),
        (240 * 1024**3, "240 GiB"),
    ],
)
def test_memory_of_any_size_is_short(size: int, shown: str) -> None:
    found = look(server("time"), processes={"box/time": [4]})
    assert rows_of(found, {4: size})[0].cells["MEMORY"] == shown
    assert picture([found], memory={4: size})[3].endswith(shown)


def test_missing_sandbox_features_are_shown_below_the_server_and_in_its_view() -> None:
    lacking = server("b") | {"sandbox": {"profile": "contained", "missing": ["cannot limit its files (no Landlock)"]}}
    usual = server("a") | {"sandbox": {"profile": "guard", "missing": ["cannot filter"]}}
    found = look(lacking, usual)
    said = "sandbox: this machine cannot limit its files (no Landlock)"
    lines = picture([found])
    assert [line.strip() for line in lines if "sandbox" in line] == [said]
    assert lines[next(n for n, line in enumerate(lines) if said in line) - 1].strip().startswith("box/b")
    assert f"  {said}" in server_picture(found, "calls")
    assert [row.label for row in rows_of(found, {}, "landlock")] == ["box/b"]
