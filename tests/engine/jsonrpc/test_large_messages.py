"""A message read in pieces is what it is as a whole: the same members, and nothing passes that is no JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from mcp_workbench.engine.jsonrpc import large_messages, messages
from mcp_workbench.engine.jsonrpc.large_messages import read_large
from mcp_workbench.engine.jsonrpc.messages import INVALID_REQUEST, PARSE_ERROR, Envelope, Malformed
from mcp_workbench.engine.nesting import MAX_NESTING

texts = st.text(st.sampled_from('ab",{}[]:\\ \n\u20ac\ud83d\ude00'), max_size=40)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)
written = st.tuples(st.sampled_from([None, 1]), st.booleans()).map(
    lambda how: {"indent": how[0], "ensure_ascii": how[1]}
)


def members_of(message: Envelope) -> dict[str, Any]:
    return {
        name: bytes(value) if name != "method" else value
        for name in ("method", "id", "params", "result", "error")
        if (value := getattr(message, name)) is not UNSET
    }


def outcome(read: Any, *arguments: Any) -> dict[str, Any] | None:
    try:
        return members_of(read(*arguments))
    except Malformed:
        return None


@st.composite
def lines(draw: Any) -> bytes:
    message = {
        "jsonrpc": "2.0",
        "id": draw(st.integers(0, 9)),
        draw(st.sampled_from(["result", "params"])): draw(values),
    }
    if draw(st.booleans()):
        message = dict(reversed(message.items()))
    text: str = json.dumps(message, **draw(written))
    return text.encode("utf-8", "surrogatepass")


@given(lines(), st.integers(16, 80))
def test_it_has_the_members_that_it_has_as_a_whole(line: bytes, size: int) -> None:
    assert outcome(read_large, line, size) == outcome(messages.read, line)


@given(lines(), st.integers(16, 80), st.data())
def test_altered_lines_are_refused_wherever_the_whole_reader_refuses_them(line: bytes, size: int, data: Any) -> None:
    """One byte more, less, or another one."""
    at = data.draw(st.integers(0, len(line) - 1))
    put = data.draw(st.sampled_from([b"", b",", b"{", b"}", b"[", b"]", b'"', b"\\", b":", b"1", b" "]))
    broken = line[:at] + put + line[at + data.draw(st.integers(0, 1)) :]
    found, expected = outcome(read_large, broken, size), outcome(messages.read, broken)
    # Of a member that appears twice the whole takes the last one; piece by piece that is refused.
    assert found == expected or (found is None and expected is not None and is_repeated(broken))


def is_repeated(line: bytes) -> bool:
    names: list[str] = []

    def take(pairs: list[tuple[str, Any]]) -> None:
        names.clear()
        names.extend(name for name, _ in pairs)

    json.loads(line, object_pairs_hook=take)
    return len(set(names)) < len(names)


@pytest.mark.parametrize(
    "rest",
    [
        b'{}},"id":7,"result":{"forged":[1]}',
        b"[,1]}",
        b"[1,]}",
        b"[1,,2]}",
        b'{"a":1,}}',
        b'{"a":1,2}}',
        b'["a" "b"]}',
        b"[1]]}",
        b'["never ends}',
        b'{"a":"\x01"}}',
        b"[1 2]}",
        b'"x"',
        b"1}}",
    ],
)
@pytest.mark.parametrize("size", [16, 32, 1 << 18])
def test_nothing_passes_that_a_client_could_take_for_another_answer(rest: bytes, size: int) -> None:
    filling = b"[%b]" % (b'{"type":"text","text":"filling"},' * 20 + b"{}")
    assert outcome(read_large, b'{"jsonrpc":"2.0","id":1,"x":%b,"result":%b' % (filling, rest), size) is None


def test_payloads_are_views_of_the_line() -> None:
    """Nothing of a large message is copied to be passed on."""
    line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[%b{}]}}' % (b"{}," * 10_000)
    result = memoryview(read_large(line, 64).result)  # type: ignore[arg-type]
    assert bytes(result) == line[line.index(b'{"content') : -1]


@pytest.mark.parametrize(
    "payload",
    [
        b'{"text":"%b"}' % (b"word " * 200_000),
        b'{"text":"%b"}' % (rb"\n\"\u20ac" * 100_000),
        b'{"content":[%b{}]}' % (b"{}," * 300_000),
        b'{"content":[%b1]}' % (b"1," * 500_000),
        b'{"content":[%b{}]}' % (b'{"type":"text","text":""},' * 40_000),
        b'{"content":[%b{}]}' % (b'{"a":{"b":[[1,2],{"c":"}"}]}},' * 30_000),
    ],
    ids=["string", "escapes", "empty blocks", "numbers", "blocks", "nested"],
)
def test_no_step_looks_at_more_than_a_few_pieces(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec holds the interpreter for as long as one step takes: how much it is given at once decides it."""
    largest = 0

    def check(text: bytes) -> object:
        nonlocal largest
        largest = max(largest, len(text))
        return original(text)

    original = large_messages._check
    monkeypatch.setattr(large_messages, "_check", check)
    decoded: list[int] = []

    def decode_object(text: bytes) -> object:
        decoded.append(len(text))
        return messages.decode_object(text)

    monkeypatch.setattr(large_messages, "decode_object", decode_object)
    line = b'{"jsonrpc":"2.0","id":1,"result":%b}' % payload
    size = 1 << 14
    assert bytes(read_large(line, size).result) == payload  # type: ignore[arg-type]
    assert len(line) > 40 * size
    assert largest <= 2 * size and max(decoded) <= 4 * size


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"a":1,"text":"%b"}' % (b"word " * 200_000),
        b'{"a":1,"text":"%b"}' % (rb"\n\\" * 250_000),
        b'{"a":1,"rows":[%b{}]}' % (b'{"type":"text","text":"[{"},' * 40_000),
    ],
    ids=["string", "escapes", "rows"],
)
def test_valid_message_is_validated_once_and_its_members_are_found(
    arguments: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `params` and what is in them are looked into again, to find their members."""
    checked: list[int] = []

    def check(text: bytes) -> object:
        checked.append(len(text))
        return original(text)

    original = large_messages._check
    monkeypatch.setattr(large_messages, "_check", check)
    params = b'{"_meta":{},"arguments":%b}' % arguments
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params
    message = read_large(line)
    assert isinstance(message, large_messages.LargeEnvelope) and message.members is not None
    inner = message.members.inner["arguments"]
    assert list(inner) == list(json.loads(arguments)) and bytes(message.members["arguments"]) == arguments
    assert [json.loads(bytes(each)) for each in inner.values()] == list(json.loads(arguments).values())
    assert sum(checked) < 1.1 * len(line)


def test_members_with_invalid_unicode_are_withheld_though_the_message_is_read() -> None:
    """A lone surrogate, which JavaScript writes: in front of a large string that was read as it is."""
    params = rb'{"name":"\ud800","arguments":{"text":"%b"}}' % (b"word " * 40_000)
    message = read_large(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params)
    assert isinstance(message, large_messages.LargeEnvelope) and message.method == "tools/call"
    assert message.members is None


def test_a_message_with_too_much_beside_its_payload_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "MAX_OUTLINE_BYTES", 1000)
    many = b",".join(b'"key-%d":1' % number for number in range(1000))
    assert outcome(read_large, b'{"id":1,%b,"result":{}}' % many, 64) is None


@pytest.mark.parametrize(
    "broken", [b"[1,]", b"[,1]", b"[1,,2]", b"[ , ]", b'{"a":1,}', b'{"a":1,2}', b'{,"a":1}', b"[1}", b'{"a":[1],"b"}']
)
def test_commas_deep_inside_are_looked_at_wherever_a_piece_ends(broken: bytes) -> None:
    """What is left out of the outline is checked by its pieces alone."""
    filling = b'{"type":"text","text":"filling"},' * 20
    for size in range(16, 64):
        for inner in (broken, b'{"deep":[%b]}' % broken):
            line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[%b%b,%b{}]}}' % (filling, inner, filling)
            assert outcome(read_large, line, size) is None


@pytest.mark.parametrize("size", [64, 1 << 18])
def test_nesting_beyond_the_limit_is_refused_as_in_a_small_one(size: int) -> None:
    for levels in (MAX_NESTING - 1, MAX_NESTING):
        nested = b'[1,{"a":' * (levels // 2) + b"[]" * (levels % 2) + b"1" * (1 - levels % 2) + b"}]" * (levels // 2)
        line = b'{"jsonrpc":"2.0","id":7,"result":%b}' % nested
        if levels < MAX_NESTING:
            assert bytes(read_large(line, size).result) == nested  # type: ignore[arg-type]
        else:
            with pytest.raises(Malformed, match="nested more than 512 levels deep") as caught:
                read_large(line, size)
            assert caught.value.id == b"7"


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=40), lambda inner: st.lists(inner, max_size=6)),
    st.sampled_from([b"", b" ", b"]", b",", b',"":1', b',"b":1', b"}", b'"', b"\xff"]),
    st.integers(16, 80),
)
def test_a_large_line_without_a_brace_is_json_or_not_as_a_small_one_is(value: Any, more: bytes, size: int) -> None:
    line = json.dumps(value, ensure_ascii=False).encode() + more
    with pytest.raises(Malformed) as caught:
        read_large(line, size)
    assert caught.value.code == (INVALID_REQUEST if messages.is_json(line) else PARSE_ERROR)


@pytest.mark.parametrize("twice", [b'"id":1,"id":2', b'"id":10,"id":1', b'"id":12.5,"id":12', b'"id":1,"id":10'])
def test_a_member_that_appears_twice_is_refused_even_if_one_value_begins_with_the_other(twice: bytes) -> None:
    with pytest.raises(Malformed, match="a member appears twice"):
        read_large(b'{"jsonrpc":"2.0",%b,"result":{}}' % twice, 64)
    with pytest.raises(Malformed, match="a member appears twice"):
        read_large(b'{"jsonrpc":"2.0","result":{},%b}' % twice, 64)
