from __future__ import annotations

import base64
import json
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy import result_pieces
from mcp_workbench.engine.economy.result_pieces import Reading, by_line, grep, lines, overview, page, reading
from mcp_workbench.engine.slices import SLICE_BYTES

POEM = "\n".join(f"line {number} of Many" for number in range(1, 101))


def result(*content: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"content": list(content), **rest}).encode()


def test_structured_content_is_the_value() -> None:
    read = reading(result({"type": "text", "text": "see below"}, structuredContent={"a": 1}))
    assert read == Reading("see below", {"a": 1}, True, is_structured=True)


def test_a_value_that_its_text_only_mentions_is_read_with_it() -> None:
    value = {"a": list(range(20))}
    read = reading(result({"type": "text", "text": "see"}, structuredContent=value))
    assert read.text == "see\n\n" + json.dumps(value)
    assert f"Full result: {len(read.text)} bytes, 3 lines." in overview(read, 500)


def test_a_value_is_not_read_twice_where_the_text_is_the_same_with_fewer_spaces() -> None:
    value = {"a": list(range(20))}
    written = json.dumps(value, separators=(",", ":"))
    assert reading(result({"type": "text", "text": written}, structuredContent=value)).text == written


def test_json_on_one_long_line_is_read_by_line() -> None:
    rows = [{"name": f"City {number}"} for number in range(100)]
    text = by_line("Found:\n" + json.dumps(rows))
    found = grep(text, "City 4|City 99", room=2_000)
    assert found.note == "12 matching lines"
    assert found.text.startswith('16:   "name": "City 4"\n')


@pytest.mark.parametrize("text", ["a\nb", "[" + "x" * 500, '{"a": 1}', "[" * 100_000])
def test_any_other_line_stays_as_it_is(text: str) -> None:
    assert by_line(text) == text


@pytest.mark.parametrize(("text", "shown"), [("a\nb\n", 2), ("a\nb", 2), ("a\n\n", 2), ("a", 1), ("\n", 1)])
def test_a_line_break_at_the_end_begins_no_further_line(text: str, shown: int) -> None:
    said = f"{shown} line{'s' * (shown > 1)}."
    assert overview(reading(result({"type": "text", "text": text})), 500).splitlines()[0].endswith(f"bytes, {said}")
    part = lines(text, 1, 9, 500)
    assert part.note == f"lines 1 to {shown} of {shown}" and part.text.count("\n") == shown - 1
    assert grep("a\n" * shown, "a", room=500, around=5).text.count("\n") == shown - 1


def test_a_result_without_text_says_only_what_it_has() -> None:
    image = {"type": "image", "data": base64.b64encode(b"x" * 90).decode(), "mimeType": "image/png"}
    assert overview(reading(result(image)), 500) == "Full result: image."


def test_a_line_that_is_cut_is_marked() -> None:
    assert lines("x" * 900, 1, 1, 100).text.endswith("x…")


def test_text_that_is_json_is_a_value_too() -> None:
    assert reading(result({"type": "text", "text": ' {"a": [1]} '})).value == {"a": [1]}


@pytest.mark.parametrize("text", ["plain", '{"a": ', "[1] and more", "12"])
def test_other_text_is_only_text(text: str) -> None:
    assert reading(result({"type": "text", "text": text})) == Reading(text, None, False, ())


def test_blocks_that_are_not_text_are_counted_and_not_read() -> None:
    read = reading(result({"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "text", "text": "a"}))
    assert read == Reading("a", None, False, ("image",))


@pytest.mark.parametrize("stored", [b"", b"not json", b"\xff\xfe", b"[]"])
def test_a_result_that_cannot_be_read_is_text(stored: bytes) -> None:
    assert not reading(stored).is_json


def test_an_overview_has_size_shape_and_head() -> None:
    value = {"items": [{"id": number} for number in range(500)]}
    text = overview(reading(result({"type": "text", "text": json.dumps(value, indent=1)})), 600)
    assert text.startswith("Full result: ")
    assert "Shape: {items: 500 × {id: integer}}" in text
    assert '\n\n{\n "items": [\n' in text
    assert len(text.encode()) <= 600


@given(st.text(max_size=400), st.integers(0, 500))
def test_an_overview_keeps_to_its_limit(text: str, room: int) -> None:
    for stored in (result({"type": "text", "text": text}), result({"type": "text", "text": json.dumps([text] * 3)})):
        assert len(overview(reading(stored), room).encode()) <= room


@given(st.text(max_size=300), st.integers(4, 100))
def test_pages_put_together_are_the_text(text: str, room: int) -> None:
    pieces, start = [], 0
    while True:
        part = page(text, start, room)
        pieces.append(part.text)
        assert len(part.text.encode()) <= room
        if part.following is None:
            break
        assert part.following > start
        start = part.following
    assert "".join(pieces) == text


def test_a_page_ends_with_a_line_where_it_can() -> None:
    assert page(POEM, 0, 40).text == "line 1 of Many\nline 2 of Many\n"


def test_lines_are_numbered_and_counted_from_one() -> None:
    part = lines(POEM, 99, 200, 1_000)
    assert part.text == "99: line 99 of Many\n100: line 100 of Many"
    assert part.note == "lines 99 to 100 of 100"
    assert part.following is None


def test_lines_that_do_not_fit_are_read_on_from_the_next() -> None:
    part = lines(POEM, 1, 100, 45)
    assert part.text == "1: line 1 of Many\n2: line 2 of Many"
    assert part.following == 3


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("line 42 ", [42]),
        ("LINE 42", []),
        ("many", list(range(1, 101))),
        ("Many", list(range(1, 101))),
        ("line*9 of", [9, 19, 29, 39, 49, 59, 69, 79, 89, 99]),
        ("of*line", []),
        ("line 7 |line 8 ", [7, 8]),
        (".*", []),
        ("*", []),
        ("", []),
    ],
)
def test_grep_finds_plain_text_with_gaps_and_alternatives(pattern: str, numbers: list[int]) -> None:
    part = grep(POEM, pattern, room=10_000)
    assert [int(line.partition(":")[0]) for line in part.text.split("\n") if line] == numbers


def test_grep_shows_lines_around_and_reads_on() -> None:
    part = grep(POEM, "line 5 ", room=1_000, around=1)
    assert [line.partition(":")[0] for line in part.text.split("\n")] == ["4", "5", "6"]
    first = grep(POEM, "many", room=40)
    assert first.following == 3
    assert grep(POEM, "many", room=40, first=3).text.startswith("3: ")


def test_grep_cuts_long_lines_to_the_match() -> None:
    part = grep("x" * 100_000 + "NEEDLE" + "y" * 100_000, "needle", room=2_000)
    assert "NEEDLE" in part.text
    assert len(part.text) < 500


def test_grep_is_linear_on_pathological_patterns() -> None:
    # A backtracking engine would need some 10**15 steps for this.
    assert grep("a" * 100_000, "a*a*a*b", room=100).text == ""


class Steps:
    """What is decoded, step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        decode = result_pieces._decode_blocks

        def counted(data: bytes) -> Any:
            self.sizes.append(len(data))
            return decode(data)

        monkeypatch.setattr(result_pieces, "_decode_blocks", counted)


def test_a_result_of_very_many_blocks_is_decoded_in_pieces_and_not_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    stored = b'{"content":[' + b'{"type":"text","text":""},' * 1_000_000 + b'{"type":"text","text":"end"}]}'
    read = reading(stored)
    assert read.text == "\n" * (result_pieces.MAX_RESULT_BLOCKS - 1)
    assert read.others == ("what follows the first 100,000 blocks",)
    assert max(steps.sizes) <= 2 * SLICE_BYTES
    assert sum(steps.sizes) < len(stored) / 4


def test_very_many_blocks_without_text_are_counted() -> None:
    read = reading(b'{"content":[' + b'{"type":"audio"},' * 50_000 + b'{"type":"text","text":"end"}]}')
    assert read.text == "end"
    assert read.others == (*["audio"] * result_pieces.MAX_OTHER_BLOCKS, "49,980 more")


@pytest.mark.parametrize("where", ["structured", "text"])
def test_a_value_of_very_many_values_is_never_decoded(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_pieces, "_decoded", lambda raw: pytest.fail("decoded"))
    value = "[" + "[]," * 500_000 + "1]"
    stored = (
        b'{"content":[],"structuredContent":' + value.encode() + b"}"
        if where == "structured"
        else result({"type": "text", "text": value})
    )
    read = reading(stored)
    assert (read.text, read.value, read.is_json, read.is_too_large) == (value, None, False, True)


def test_a_line_that_is_too_long_to_be_laid_out_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_pieces, "MAX_LAID_OUT_BYTES", 1_000)
    short, long = json.dumps(["x" * 5] * 90), json.dumps(["x" * 5] * 200)
    assert by_line(f"{short}\n{long}").endswith(f"]\n{long}")


CITIES = [{"name": f"City {n}", "people": 1000 * n} for n in range(3)]
CITIES_TEXT = json.dumps(CITIES)


def text_blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        pytest.param(text_blocks(CITIES_TEXT), None, id="text"),
        pytest.param(text_blocks(CITIES_TEXT + "\n"), {"content": CITIES_TEXT + "\n"}, id="text, as files are read"),
        pytest.param(text_blocks(CITIES_TEXT), {"result": CITIES_TEXT}, id="text of a function"),
        pytest.param(text_blocks(json.dumps(CITIES, indent=2)), {"result": CITIES}, id="a list of a function"),
        pytest.param(text_blocks(*map(json.dumps, CITIES)), {"result": CITIES}, id="a list with a block for each item"),
    ],
)
def test_a_value_is_the_same_however_it_is_wrapped(blocks: list[object], structured: object) -> None:
    members = {"content": blocks} if structured is None else {"content": blocks, "structuredContent": structured}
    read = reading(json.dumps(members).encode())
    assert read.value == CITIES and read.is_json
    assert read.text == "\n".join(block["text"] for block in blocks)  # type: ignore[index]


@pytest.mark.parametrize("largest", [None, 100])
def test_a_text_that_is_repeated_in_an_object_is_counted_once(largest: int | None) -> None:
    text = "\n".join(f"line {n}" for n in range(263))
    read = reading(
        json.dumps({"content": text_blocks(text), "structuredContent": {"content": text}}).encode(),
        largest_value=largest,
    )
    assert (read.text, read.is_json) == (text, False)


@pytest.mark.parametrize(
    "structured", [{"result": "else"}, {"result": "the text", "more": 1}, {}, {"result": {"a": 1}}]
)
def test_an_object_that_says_more_than_the_text_stays_whole(structured: dict[str, object]) -> None:
    read = reading(json.dumps({"content": text_blocks("the text"), "structuredContent": structured}).encode())
    assert read.value == structured


def test_binary_data_is_never_shown_as_text() -> None:
    data = base64.b64encode(random.Random(7).randbytes(3000)).decode()
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    page = f"data:image/png;base64,{data}"
    for members in (
        {"content": [image], "structuredContent": {"result": image, "page": page}},
        {"content": text_blocks(json.dumps({"result": image, "page": page}))},
    ):
        read = reading(json.dumps(members).encode())
        assert data[:40] not in read.text
        assert read.value == {
            "result": {**image, "data": "(binary data, 3000 bytes)"},
            "page": "data:image/png;base64,(binary data, 3000 bytes)",
        }


@pytest.mark.parametrize("word", ["a" * 300, "Word" * 100, "0123456789abcdef" * 4, "A-9" * 70])
def test_long_words_and_hashes_are_no_binary_data(word: str) -> None:
    assert reading(json.dumps({"content": [], "structuredContent": {"a": word, "b": 1}}).encode()).value == {
        "a": word,
        "b": 1,
    }


def test_search_for_binary_data_allocates_only_for_matches() -> None:
    """A group that is repeated for each character would keep 170 times the text."""
    written = b'["%b", "%b"]' % (b"x" * (1 << 20), b"aB1\\/" * (1 << 18))
    tracemalloc.start()
    try:
        found = bytes(result_pieces.without_base64(written)[0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.endswith(b'", "(binary data, 786432 bytes)"]')
    assert peak < 8 * len(written)


def test_a_long_word_with_escape_sequences_is_no_binary_data() -> None:
    for written in (b'{"a": "%b"}' % (b"aB1\\n" * 100), b'{"a": "%b\\"b"}' % (b"aB1" * 100)):
        assert result_pieces.without_base64(written) == (written, 0)


def test_only_replaced_strings_count_as_binary_data() -> None:
    written = b'["%b", "%b", "%b"]' % (b"a" * 300, b"aB1/" * 100, b"B" * 300)
    found, count = result_pieces.without_base64(written)
    assert b"(binary data, 300 bytes)" in found and count == 1
