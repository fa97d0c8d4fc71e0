"""On a terminal lines are broken between words, never within them; in a pipe they stay whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.usage import COMMANDS
from mcp_workbench.cli.wrapping import beside, folded, paragraphs, tilde
from tests.cli.in_process import command
from tests.cli.shell import on_terminal, run

WORDS = st.lists(st.text("abcxyz-/`", min_size=1, max_size=12), min_size=1, max_size=60)


@given(WORDS, st.integers(30, 120), st.integers(0, 10))
def test_no_word_is_broken_and_no_line_is_too_long(words: list[str], width: int, before: int) -> None:
    shown = folded(" ".join(words), width, before=before)
    assert shown.split() == words
    first, *rest = shown.split("\n")
    assert before + len(first) <= width
    assert all(len(line) <= width for line in rest)


def test_a_word_that_is_too_long_stays_whole_and_lines_keep_their_indentation() -> None:
    assert folded("a " + "x" * 50, 30) == "a\n" + "x" * 50
    assert folded("one\n  hint: " + "word " * 8, 30) == "one\n  hint: word word word word\n  word word word word"
    assert folded("a b", None) == "a b"


def test_prose_is_rewrapped_and_examples_stay() -> None:
    text = "one two\nthree\n\n    an example that is longer than the width is left as it is"
    assert paragraphs(text, 30) == text.replace("two\nthree", "two three")
    assert beside("left", "right " * 8, 6, 40).split("\n")[1].startswith(" " * 8 + "right")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_says_the_same_as_in_a_pipe(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = command(monkeypatch, name, "--help").stdout
    status, shown, _ = command(monkeypatch, name, "--help", width=80)
    assert status == 0
    assert shown != whole or max(map(len, whole.splitlines())) <= 80, "it takes stdout for a terminal"
    assert shown.split() == whole.split()
    assert not [line for line in shown.splitlines() if len(line) > 80]


def test_an_error_fits_a_terminal(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"toolboxes": {"a": {"mcpServers": {"b": {"comand": "x"}}}}}')
    status, shown = on_terminal("check", config, width=80)
    assert status == 2
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert plain.split() == run("check", config).stderr.split()
    # The path is one word, which cannot be broken, and may be longer than a line by itself.
    assert not [line for line in plain.splitlines() if len(line.replace(f"{config}:", "")) > 80]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me", "~"),
        ("/home/me/x.json:1:2: found", "~/x.json:1:2: found"),
        ("in `/home/me/x` (/home/me/y), /home/me: no", "in `~/x` (~/y), ~: no"),
        ("--config /home/me/x", "--config ~/x"),
        # Somebody else's, somewhere else, and where it would not be taken for the home folder.
        ("/home/mega/x /srv/home/me/x", "/home/mega/x /srv/home/me/x"),
        ("KEY=/home/me/x '/home/me/x' \"/home/me/x\"", "KEY=/home/me/x '/home/me/x' \"/home/me/x\""),
    ],
)
def test_the_home_folder_is_written_as_people_do(monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert tilde(text) == shown
    monkeypatch.setenv("HOME", "/")
    assert tilde(text) == text
