"""What servers write for people: the end of it is kept, whatever it is, and never more than that."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.transport.stderr import LONGEST_LINE, MOST_LINES, StderrRing


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
    assert fed(b"last words\n" + b"\n" * 2 * MOST_LINES).last(8) == ["last words"]


def test_what_is_no_utf8_is_shown_as_well_as_it_can_be() -> None:
    assert fed("é\n".encode("latin1")).last(1) == ["\N{REPLACEMENT CHARACTER}"]


def test_a_long_line_shows_its_start_and_that_it_was_cut() -> None:
    (line,) = fed(b"x" * 5000 + b"\n").last(8)
    assert line == "x" * LONGEST_LINE + "…"
    assert fed(b"x" * LONGEST_LINE + b"\n").last(8) == ["x" * LONGEST_LINE]


def test_every_line_is_told_when_somebody_listens() -> None:
    ring = StderrRing()
    told: list[str] = []
    ring.on_line = told.append
    lines = [f"line {number}" for number in range(3 * MOST_LINES)]
    ring.feed("\n".join(lines).encode())
    ring.finish()
    assert told == lines
    assert ring.last(1000) == lines[-MOST_LINES:]


@given(st.lists(st.binary(max_size=40) | st.just(b"x" * 1500 + b"\n"), max_size=10))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    whole, cut = fed(b"".join(pieces)), fed(*pieces)
    for ring in (whole, cut):
        ring.finish()
    assert whole.last(1000) == cut.last(1000)
    assert whole.total_bytes == cut.total_bytes == sum(map(len, pieces))


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
        assert held < 300_000
        assert ring.total_bytes == 60 * len(text)
