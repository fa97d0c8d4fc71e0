"""Events, fed whole, byte by byte, and in random pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.sse import KEEP_ALIVE, ServerSentEvent, SseParser, encode_event

LIMIT = 1000


def parse(*chunks: bytes, limit: int = LIMIT) -> list[ServerSentEvent]:
    parser = SseParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def message(data: bytes, id: str = "", type: str = "message") -> ServerSentEvent:
    return ServerSentEvent(data, type, id)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [message(b"a")]),
        (b"data:a\n\n", [message(b"a")]),
        (b"data:  a\n\n", [message(b" a")]),
        (b"data: a\r\ndata: b\r\n\r\n", [message(b"a\nb")]),
        (b"data: a\rdata: b\r\r", [message(b"a\nb")]),
        (b"data: a\r\n\ndata: b\n\r\n", [message(b"a"), message(b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [message(b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b": comment\n:\ndata: a\n\n", [message(b"a")]),
        (b"data\n\n", [message(b"")]),
        (b"data:\ndata\n\n", [message(b"\n")]),
        (b"id: 7\ndata:\n\n", [message(b"", "7")]),
        (b"id: 7\n\ndata: a\n\n", [message(b"a", "7")]),
        (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [message(b"a", "7"), message(b"b", "")]),
        (b"id: 7\nid: a\0b\ndata: a\n\n", [message(b"a", "7")]),
        (b"event: endpoint\ndata: /x\n\ndata: y\n\n", [message(b"/x", type="endpoint"), message(b"y")]),
        (b"event: x\n\ndata: y\n\n", [message(b"y")]),
        (b"dataa: a\n DATA: b\nwhatever\n\n", []),
        (b"data: unfinished\n", []),
        (b"data: unfinished", []),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_streams_are_read_as_the_standard_says(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert parse(stream) == events
    assert parse(*(stream[index : index + 1] for index in range(len(stream)))) == events


@pytest.mark.parametrize(
    ("line", "retry"),
    [(b"retry: 250", 250), (b"retry: -1", None), (b"retry: 1s", None), (b"retry: " + b"9" * 10, None)],
)
def test_retry_is_a_number_or_nothing(line: bytes, retry: int | None) -> None:
    parser = SseParser(LIMIT)
    assert parser.feed(line + b"\n\n") == []
    assert parser.retry == retry


LINES = st.sampled_from(
    [b"data: a", b"data", b"data:", b"id: 1", b"id", b"event: x", b"retry: 5", b": c", b"", b"", b"nonsense", b"\xff"]
)
BREAKS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    start = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    lines = draw(st.lists(st.tuples(LINES | st.binary(max_size=30), BREAKS), max_size=20))
    return start + b"".join(line + end for line, end in lines)


@given(streams(), st.data())
@example(b"data: a\r\n\r\n", None)
def test_pieces_do_not_matter(stream: bytes, data: st.DataObject | None) -> None:
    limit = 1000 if data is None else data.draw(st.integers(1, 60))
    whole = SseParser(limit)
    events = whole.feed(stream)
    cuts = [0, 8] if data is None else sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    for feeding in (pieces, [stream[index : index + 1] for index in range(len(stream))]):
        parser = SseParser(limit)
        assert [event for piece in feeding for event in parser.feed(piece)] == events
        assert (parser.overflowed, parser.retry) == (whole.overflowed, whole.retry)
        if not parser.overflowed:
            assert parser.last_id == whole.last_id


@given(st.lists(st.binary().filter(lambda data: b"\r" not in data), max_size=5), st.data())
def test_encoding_round_trips(messages: list[bytes], data: st.DataObject) -> None:
    ids = [data.draw(st.none() | st.from_regex(r"[0-9]{1,3}-[0-9]{1,3}", fullmatch=True)) for _ in messages]
    stream = b"".join(encode_event(each, id=id) + KEEP_ALIVE for each, id in zip(messages, ids, strict=True))
    assert [event.data for event in parse(stream, limit=10_000)] == messages


def test_an_id_and_the_time_to_wait_are_encoded() -> None:
    parser = SseParser(LIMIT)
    assert parser.feed(encode_event(b"", id="1-1", retry=500)) == [message(b"", "1-1")]
    assert parser.retry == 500


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 1001 + b"\n\n",
        b"data: " + b"x" * 5000,
        b": " + b"x" * 5000,
        b"data: x\n" * 600 + b"\n",
        b"data\n" * 1002 + b"\n",
    ],
)
def test_an_event_beyond_the_limit_ends_the_parsing(stream: bytes) -> None:
    parser = SseParser(LIMIT)
    assert parser.feed(b"data: before\n\n") == [message(b"before")]
    assert parser.feed(stream) == []
    assert parser.overflowed
    assert parser.feed(b"data: after\n\n") == []


def test_an_event_of_exactly_the_limit_passes() -> None:
    assert parse(b"data: " + b"x" * LIMIT + b"\n\n") == [message(b"x" * LIMIT)]


def test_a_long_line_in_small_pieces_is_held_once() -> None:
    parser = SseParser(10_000_000)
    assert parser.feed(b"data: ") == []
    for _ in range(10_000):
        assert parser.feed(b"x" * 100) == []
    assert parser._held.size == 1_000_006, "pieces are joined when the line is whole, not before"
    assert parser.feed(b"\n\n") == [message(b"x" * 1_000_000)]
