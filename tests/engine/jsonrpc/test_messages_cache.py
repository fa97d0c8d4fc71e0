"""What short pieces say is worked out once; what is remembered is bounded."""

from __future__ import annotations

import pytest
from msgspec import Raw

from mcp_workbench.engine.jsonrpc.messages import MAX_CACHED_PIECE_BYTES, MAX_CACHED_PIECES, remembered_if_short


class Reader:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, piece: bytes) -> int:
        self.asked.append(piece)
        if piece == b"bad":
            raise ValueError("bad")
        return len(piece)


def test_the_same_piece_is_read_once_however_it_is_given() -> None:
    reader = Reader()
    read = remembered_if_short(reader)
    assert [read(b"abc"), read(Raw(b"abc")), read(b"abc"), read(b"other")] == [3, 3, 3, 5]
    assert reader.asked == [b"abc", b"other"]


def test_a_long_piece_is_read_each_time() -> None:
    reader = Reader()
    read = remembered_if_short(reader)
    for size, times in ((MAX_CACHED_PIECE_BYTES, 1), (MAX_CACHED_PIECE_BYTES + 1, 2)):
        reader.asked.clear()
        assert read(b"x" * size) == read(b"x" * size) == size
        assert len(reader.asked) == times


def test_least_recently_requested_entry_is_evicted() -> None:
    reader = Reader()
    read = remembered_if_short(reader)
    for number in range(MAX_CACHED_PIECES + 1):
        read(b"%d" % number)
    reader.asked.clear()
    read(b"1")
    read(b"0")
    assert reader.asked == [b"0"]


def test_a_failure_is_not_remembered() -> None:
    reader = Reader()
    read = remembered_if_short(reader)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            read(b"bad")
    assert len(reader.asked) == 2
