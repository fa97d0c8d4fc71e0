from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.screen import Part, Screen
from mcp_workbench.engine.printable import one_line, visible


def shown(draw: object) -> str:
    stream = io.StringIO()
    assert callable(draw)
    draw(Screen(stream))
    return stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_pipe_lines_are_whole_plain_and_without_trailing_blanks() -> None:
    long = "word " * 60
    assert shown(lambda screen: screen.line(("name", "name"), f"  {long}", indent=2)) == f"  name  {long.rstrip()}\n"
    assert shown(lambda screen: screen.line("one\n\ntwo", indent=4)) == "    one\n\n    two\n"


def test_continuation_lines_of_a_server_do_not_look_like_ours() -> None:
    forged: Part = ("a\nerror: forged", "name")
    assert shown(lambda screen: screen.line(forged, ": b\nnote: c")) == "a\n  error: forged: b\n  note: c\n"
    for wrap in (True, False):
        terminal = Terminal()
        Screen(terminal).line(forged, ": b", wrap=wrap)
        assert "\n  " in terminal.getvalue() and "\nerror" not in terminal.getvalue()


def test_in_a_pipe_a_table_is_aligned_and_nothing_is_cut() -> None:
    table = shown(lambda screen: screen.table(["a", "b"], [["x" * 100, ("1", "good")], ["y", "22"]], right=[1]))
    assert table == f"{'A':100}   B\n{'x' * 100}   1\n{'y':100}  22\n"
    assert shown(lambda screen: screen.table(["", ""], [["a", "b"]], indent=3)) == "   a  b\n"


def test_json_is_the_same_everywhere() -> None:
    terminal = Terminal()
    Screen(terminal).json({"a": ["ü"]})
    assert terminal.getvalue() == shown(lambda screen: screen.json({"a": ["ü"]})) == '{\n  "a": [\n    "ü"\n  ]\n}\n'


def test_data_in_a_pipe_is_not_touched_and_on_a_terminal_cannot_control_it() -> None:
    assert shown(lambda screen: screen.text("\x1b[31mred\n")) == "\x1b[31mred\n"
    terminal = Terminal()
    Screen(terminal).text("\x1b[31mred")
    assert terminal.getvalue() == "\\x1b[31mred\n"


def test_output_cannot_control_a_terminal_even_through_a_pipe() -> None:
    assert shown(lambda screen: screen.line("\x1b[2Jgone", indent=2)) == "  \\x1b[2Jgone\n"
    assert shown(lambda screen: screen.table(["", ""], [["a\x07", ("b\x9b31m", "bad")]])) == "a\\x07  b\\x9b31m\n"


@given(st.text())
def test_visible_text_has_no_control_characters_but_line_breaks_and_tabs(text: str) -> None:
    assert all(letter.isprintable() or letter in "\n\t\xa0" for letter in visible(text))


@given(st.text().filter(str.isprintable))
def test_printable_text_is_unchanged(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert all(letter.isprintable() or letter == "\xa0" for letter in one_line(text))


def test_a_cell_cannot_begin_a_row() -> None:
    row = ["memo://a\r\n00aa  bob", "x\ty"]
    assert shown(lambda screen: screen.table(["", ""], [row])) == "memo://a\\r\\n00aa  bob  x\\ty\n"
    terminal = Terminal()
    Screen(terminal).table(["", ""], [["a\nb", "c"]])
    assert terminal.getvalue().count("\n") == 1
