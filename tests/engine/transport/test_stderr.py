"""What servers write for people: the end of it is kept, whatever it is, and never more than that."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.transport.stderr import (
    GAP,
    MAX_STDERR_LINE_LENGTH,
    MAX_STDERR_LINES,
    StderrRing,
    most_relevant_lines,
)


def fed(*pieces: bytes) -> StderrRing:
    ring = StderrRing()
    for piece in pieces:
        ring.feed(piece)
    return ring


def test_the_last_lines_come_oldest_first() -> None:
    ring = fed(b"one\ntwo\nthree\nfour\n")
    assert ring.last(2) == ["three", "four"]
    assert ring.last(100) == ["one", "two", "three", "four"]
    assert ring.last(0) == []


def test_an_unfinished_line_counts() -> None:
    ring = fed(b"done\nTraceback: bo", b"om")
    assert ring.last(8) == ["done", "Traceback: boom"]
    ring.finish()
    assert ring.last(8) == ["done", "Traceback: boom"]


def test_blank_lines_and_line_ends_of_windows_do_not_show() -> None:
    assert fed(b"one\r\n\r\n   \ntwo\n  ").last(8) == ["one", "two"]
    assert fed(b"last words\n" + b"\n" * 2 * MAX_STDERR_LINES).last(8) == ["last words"]


def test_invalid_utf8_is_shown_with_replacements() -> None:
    assert fed("é\n".encode("latin1")).last(1) == ["\N{REPLACEMENT CHARACTER}"]


def test_a_long_line_shows_its_start_and_that_it_was_cut() -> None:
    (line,) = fed(b"x" * 5000 + b"\n").last(8)
    assert line == "x" * MAX_STDERR_LINE_LENGTH + "…"
    assert fed(b"x" * MAX_STDERR_LINE_LENGTH + b"\n").last(8) == ["x" * MAX_STDERR_LINE_LENGTH]


def test_every_line_is_told_when_somebody_listens() -> None:
    told: list[str] = []
    ring = StderrRing(told.append)
    lines = [f"line {number}" for number in range(3 * MAX_STDERR_LINES)]
    ring.feed("\n".join(lines).encode())
    ring.finish()
    assert told == lines
    assert ring.last(1000) == lines[-MAX_STDERR_LINES:]


@given(st.lists(st.binary(max_size=40) | st.just(b"x" * 1500 + b"\n"), max_size=10))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    whole, cut = fed(b"".join(pieces)), fed(*pieces)
    for ring in (whole, cut):
        ring.finish()
    assert whole.last(1000) == cut.last(1000)


@pytest.mark.requirement("servers.stderr")
def test_memory_is_bounded_with_and_without_newlines() -> None:
    for text in (b"x" * 65536, b"a line\n" * 9000):
        tracemalloc.start()
        try:
            ring = StderrRing()
            for _ in range(60):  # 4 MB
                ring.feed(text)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        ring.finish()
        assert held < 300_000 and ring.last(1)


# What is quoted

USAGE = [
    "Usage:",
    "  prog serve [flags]",
    "Flags:",
    *(f"  --option-{number} string   what is required when the file is not found" for number in range(20)),
]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (["starting", 'Error: required flag(s) "token" not set', *USAGE], 1),
        (["API_KEY is required", *USAGE], 0),
        (["[ERROR] no config", "", *USAGE], 0),
        (["INFO one", "INFO two", "2026-01-01 12:00:00 ERROR no database", *["INFO closing"] * 20], 2),
        (["file.js:1", "throw x", "TypeError: x is not a function", *["    at f (file.js:1:2)"] * 30], 2),
        (["npm error code E404", *["a line of npm"] * 20], 0),
    ],
)
def test_the_line_that_names_the_cause_is_quoted_though_much_follows_it(said: list[str], cause: int) -> None:
    quoted = most_relevant_lines(said, 8)
    assert quoted[0] == said[cause]
    assert quoted[-4:] == said[-4:]
    assert quoted[4] == GAP and len(quoted) == 9


def test_causes_that_stand_together_are_quoted_together() -> None:
    said = ["starting", "Error: bad file:", "A is required", "B is required", *["and so on"] * 20]
    assert most_relevant_lines(said, 8)[:4] == [*said[1:4], "and so on"]


@pytest.mark.parametrize(
    "said",
    [
        [f"line {number}" for number in range(30)],
        [*["noise"] * 30, "Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: no"],
        ["ERROR an old one", *["noise"] * 30, "prog: error: the following arguments are required: --token"],
        [*USAGE, "prog: error: --token is required"],
    ],
)
def test_where_the_last_lines_name_it_or_none_does_they_are_quoted(said: list[str]) -> None:
    assert most_relevant_lines(said, 8) == said[-8:]


def test_few_lines_are_quoted_whole() -> None:
    assert most_relevant_lines(["Error: x", "Usage: y"], 8) == ["Error: x", "Usage: y"]
    assert most_relevant_lines([], 8) == []


@given(st.lists(st.sampled_from(["Error: x", "Usage:", "  -f", "plain", "    at f"]), max_size=40), st.integers(2, 10))
def test_no_more_is_quoted_than_asked_for_and_always_the_last_line(said: list[str], count: int) -> None:
    quoted = most_relevant_lines(said, count)
    assert len([line for line in quoted if line != GAP]) == min(count, len(said))
    assert quoted[-1:] == said[-1:]
