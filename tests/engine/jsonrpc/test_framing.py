"""Cutting a stream into lines gives the same lines however the stream arrives, in bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.jsonrpc.framing import BYTE_ORDER_MARK, KEPT_OF_OVERSIZED, LineSplitter

# As small as the configuration allows.
LIMIT = 1024
STREAM = (
    b'{"jsonrpc":"2.0","id":1}\n'
    b'{"jsonrpc":"2.0","id":2}\r\n'
    b"\n"
    b"Starting up...\n"
    b"\xff\xfe not UTF-8 \x00\n" + b"x" * (LIMIT + 1) + b"\n" + b"y" * LIMIT + b"\n" + b'{"unfinished":'
)
LINES = [
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":2}\r',
    b"",
    b"Starting up...",
    b"\xff\xfe not UTF-8 \x00",
    b"y" * LIMIT,
]

Outcome = tuple[list[bytes], list[tuple[bytes, bytes, int]], bytes | None]


def split(pieces: list[bytes], limit: int = LIMIT) -> Outcome:
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    last = splitter.finish()
    return lines, [(remains.head, remains.tail, remains.size) for remains in splitter.oversized], last


def pieces_of(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


@st.composite
def cut_up(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream of short and overlong lines, and the same stream in random pieces."""
    line = st.one_of(
        st.binary(max_size=12),
        st.integers(LIMIT - 2, LIMIT + 2).map(lambda size: b"a" * size),
        st.integers(3 * LIMIT, 4 * LIMIT).map(lambda size: bytes(65 + number % 26 for number in range(size))),
    )
    stream = draw(st.sampled_from([b"", BYTE_ORDER_MARK])) + b"\n".join(draw(st.lists(line, max_size=6)))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def test_lines_are_the_bytes_between_newlines() -> None:
    lines, oversized, last = split([STREAM])
    assert lines == LINES
    assert oversized == [(b"x" * KEPT_OF_OVERSIZED, b"x" * KEPT_OF_OVERSIZED, LIMIT + 1)]
    assert last == b'{"unfinished":'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 24, 25, LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_stream_in_pieces_gives_the_same_lines(size: int) -> None:
    assert split(pieces_of(STREAM, size)) == split([STREAM])


@given(cut_up())
def test_any_stream_in_random_pieces_equals_feeding_it_whole(cut: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = cut
    assert split(pieces) == split([stream])


@given(cut_up())
def test_a_piece_that_is_one_line_need_not_be_fed(cut: tuple[bytes, list[bytes]]) -> None:
    _, pieces = cut
    # Also those that end where a line does, as nearly all do.
    pieces += [line + b"\n" for piece in pieces for line in piece.split(b"\n")]
    splitter, lines = LineSplitter(LIMIT), []
    for piece in pieces:
        line = splitter.sole_line(piece)
        lines += splitter.feed(piece) if line is None else [line]
    oversized = [(remains.head, remains.tail, remains.size) for remains in splitter.oversized]
    assert (lines, oversized, splitter.finish()) == split(pieces)


@given(cut_up())
def test_every_line_is_either_returned_or_reported_as_too_long(cut: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = cut
    expected = stream.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    *complete, last = expected
    lines, oversized, rest = split(pieces)
    assert lines == [line for line in complete if len(line) <= LIMIT]
    too_long = [line for line in expected if len(line) > LIMIT]
    assert oversized == [(line[:KEPT_OF_OVERSIZED], line[-KEPT_OF_OVERSIZED:], len(line)) for line in too_long]
    assert rest == (last if 0 < len(last) <= LIMIT else None)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_byte_order_mark_at_the_start_is_dropped_and_only_there(size: int) -> None:
    stream = BYTE_ORDER_MARK + b"one\n" + BYTE_ORDER_MARK + b"two\n"
    assert split(pieces_of(stream, size))[0] == [b"one", BYTE_ORDER_MARK + b"two"]


def test_a_start_that_only_resembles_a_byte_order_mark_is_kept() -> None:
    for stream in (b"\xef\n", b"\xef\xbb\n", b"\xef\xbbx\n"):
        for size in (1, 100):
            assert split(pieces_of(stream, size))[0] == [stream[:-1]]


def test_two_messages_and_half_a_third_in_one_read() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"one\ntwo\nthr") == [b"one", b"two"]
    assert splitter.feed(b"ee\n") == [b"three"]
    assert splitter.finish() is None


def test_the_limit_itself_passes_and_one_byte_more_does_not() -> None:
    for size in (1, LIMIT, 10 * LIMIT):
        lines, oversized, _ = split(pieces_of(b"a" * LIMIT + b"\n" + b"b" * (LIMIT + 1) + b"\n", size))
        assert lines == [b"a" * LIMIT]
        assert [remains[2] for remains in oversized] == [LIMIT + 1]


def test_of_a_line_that_is_too_long_start_and_end_are_kept() -> None:
    line = b'{"id":7,' + b"x" * 5000 + b',"id":8}'
    for size in (1, 100, 10_000):
        splitter = LineSplitter(LIMIT)
        lines = [found for piece in pieces_of(line + b"\nnext\n", size) for found in splitter.feed(piece)]
        (remains,) = splitter.oversized
        assert remains.head.startswith(b'{"id":7,')
        assert remains.tail.endswith(b',"id":8}')
        assert lines == [b"next"]


def test_a_line_without_end_takes_no_memory_beyond_the_limit() -> None:
    limit = 64 * 1024
    splitter = LineSplitter(limit)
    piece = b"x" * 4096
    tracemalloc.start()
    try:
        for _ in range(4096):  # 16 MiB
            assert splitter.feed(piece) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit
    assert splitter.feed(b"\n") == []
    (remains,) = splitter.oversized
    assert (len(remains.head), len(remains.tail)) == (KEPT_OF_OVERSIZED, KEPT_OF_OVERSIZED)


class CountedBytes(bytes):
    """Bytes that count how often they are searched for newlines."""

    searched = 0

    def split(self, *arguments: object, **options: object) -> list[bytes]:
        CountedBytes.searched += len(self)
        return bytes(self).split(b"\n")


def test_each_byte_of_a_long_line_is_searched_once() -> None:
    """Searching what was searched before makes large messages quadratic."""
    splitter = LineSplitter(1 << 24)
    splitter.feed(b"first\n")
    CountedBytes.searched = 0
    for _ in range(500):
        splitter.feed(CountedBytes(b"x" * 1000))
    assert splitter.feed(CountedBytes(b"\n")) == [b"x" * 500_000]
    assert CountedBytes.searched == 500_001


def test_a_line_that_comes_byte_by_byte_takes_little_more_than_its_bytes() -> None:
    """Each byte is an object of its own; kept so, a line would take forty times its size."""
    count = 200_000
    splitter = LineSplitter(1 << 24)
    splitter.feed(b"first\n")
    tracemalloc.start()
    try:
        for number in range(count):
            # A new object each time, as a read makes one.
            splitter.feed(bytes((97 + number % 7, 98)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * (2 * count)
    (line,) = splitter.feed(b"\n")
    assert line == b"".join(bytes((97 + number % 7, 98)) for number in range(count))
