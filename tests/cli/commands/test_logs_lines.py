"""Lines of a log by server and level."""

from __future__ import annotations

import pytest

from mcp_workbench.cli.commands.logs import LineFilter

AT = b"2026-11-17 01:02:03"
LINES = [
    b"from before the log was rotated",
    AT + b" INFO    [box/git] ready",
    AT + b" ERROR   [box/other] failed",
    b"Traceback (most recent call last):",
    b"  [box/git] is only mentioned here",
    AT + b" CRITICAL [box/git] worse",
    b'{"time":"2026-11-17T01:02:03.000Z","level":"warning","logger":"x","message":"[box/git] as JSON"}',
    b'{"time": cut',
]


@pytest.mark.parametrize(
    ("server", "level", "taken"),
    [
        (None, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("git", None, [1, 5, 6, 7]),
        ("box/git", "warning", [5, 6, 7]),
        (None, "error", [2, 3, 4, 5]),
        ("other", "error", [2, 3, 4]),
        ("it", None, []),
    ],
)
def test_lines_that_continue_an_entry_go_with_it(server: str | None, level: str | None, taken: list[int]) -> None:
    meant = LineFilter(server, level)
    assert [number for number, line in enumerate(LINES) if meant.takes(line)] == taken
