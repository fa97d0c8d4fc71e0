"""Foreign text: shown without the power over a terminal, and quoted as a terminal would show it."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.printable import in_unicode, indented, plain, plural, report_json, visible


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;208mbold\x1b[m", "red and bold"),
        ("\x1b]0;a title\x07shown", "shown"),
        ("\x1b]8;;https://example.test\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("\x1b[2K\x1b[1Gdone", "done"),
        ("10 %\r50 %\r100 %", "100 %"),
        ("100 %\r", "100 %"),
        ("a\x07bell", "a\\x07bell"),
        ("half an escape \x1b[", "half an escape \\x1b["),
    ],
)
def test_a_line_is_quoted_as_a_terminal_would_show_it(written: str, quoted: str) -> None:
    assert plain(written) == quoted


@given(st.text())
def test_output_never_controls_a_terminal(text: str) -> None:
    assert all(letter.isprintable() or letter in "\n\t\xa0" for letter in visible(text))
    assert all(letter.isprintable() or letter in "\n\t\xa0" for letter in plain(text))


def test_only_our_own_lines_begin_at_the_margin() -> None:
    assert indented("one") == "one"
    assert indented("one\nerror: forged\n\n  deeper") == "one\n  error: forged\n\n    deeper"
    assert indented("one:\n  two\n\tthree") == "one:\n  two\n\tthree"


@given(st.text())
def test_continuation_lines_are_always_indented(text: str) -> None:
    _, *rest = indented(visible(text)).split("\n")
    assert all(not line or line[0] in " \t" for line in rest)


def test_counted_things_are_named_as_people_say() -> None:
    assert [plural(count, "tool") for count in (0, 1, 2, 1234)] == ["0 tools", "1 tool", "2 tools", "1,234 tools"]


def test_report_is_valid_json_for_any_path() -> None:
    path = os.fsdecode(b"/caf\xe9")
    assert in_unicode(path) == "/caf\\udce9" and in_unicode("/café") == "/café"
    report = {path: ("/café", [path]), "number": 1, "nothing": None}
    assert json.loads(report_json(report)) == {
        "/caf\\udce9": ["/café", ["/caf\\udce9"]],
        "number": 1,
        "nothing": None,
    }
