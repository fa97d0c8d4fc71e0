"""Pieces of any size: joined they are what came, and they take no more room than that."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.sse import SseParser
from mcp_workbench.engine.transport.pieces import SMALL_PIECE, Pieces

SIZES = st.integers(0, 3) | st.integers(SMALL_PIECE - 2, SMALL_PIECE + 2)


@given(st.lists(SIZES))
def test_a_message_sent_in_pieces_arrives_unchanged(sizes: list[int]) -> None:
    sent = [bytes([97 + index % 26]) * size for index, size in enumerate(sizes)]
    pieces = Pieces()
    for _ in range(2):
        for piece in sent:
            pieces.add(piece)
        assert pieces.size == sum(sizes)
        whole = pieces.take()
        assert whole == b"".join(sent) and isinstance(whole, bytes)
        assert pieces.size == 0 and pieces.take() == b""


def test_one_piece_is_not_copied() -> None:
    pieces, piece = Pieces(), b"x" * 100_000
    pieces.add(piece)
    assert pieces.take() is piece


def _body() -> Callable[[], int]:
    pieces = Pieces()

    def feed() -> int:
        for _ in range(50_000):
            pieces.add(bytes((1, 2)))
        return pieces.size

    return feed


def _events() -> Callable[[], int]:
    parser, lines = SseParser(1_000_000), b"data:ab\n" * 50_000

    def feed() -> int:
        assert parser.feed(lines) == [] and not parser.overflowed
        return 150_000

    return feed


def _line_of_an_event() -> Callable[[], int]:
    parser = SseParser(1_000_000)
    parser.feed(b"data:")

    def feed() -> int:
        for _ in range(50_000):
            parser.feed(bytes((97, 98)))
        return 100_000

    return feed


@pytest.mark.parametrize("made", [_body, _events, _line_of_an_event])
def test_small_pieces_take_no_more_memory_than_their_content(made: Callable[[], Callable[[], int]]) -> None:
    feed = made()
    tracemalloc.start()
    try:
        size = feed()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * size
