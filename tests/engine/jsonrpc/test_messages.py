"""Envelopes: what is a message is read without touching its payload, what is not is refused without harm."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.json import decode

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Envelope, Malformed, find_id, read, read_error
from mcp_workbench.engine.nesting import MAX_NESTING

PAYLOADS = ("id", "params", "result", "error")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


def payload(message: Envelope, name: str) -> bytes:
    raw = getattr(message, name)
    assert isinstance(raw, Raw)
    return bytes(raw)


def malformed(line: bytes) -> Malformed:
    with pytest.raises(Malformed) as caught:
        read(line)
    return caught.value


@pytest.mark.parametrize(
    ("line", "present"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}', {"method", "id", "params"}),
        (b'{"jsonrpc":"2.0","method":"m"}', {"method"}),
        (b'{"jsonrpc":"2.0","id":"a","result":{}}', {"id", "result"}),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}', {"id", "error"}),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}', {"id", "error"}),
        (b"{}", set()),
    ],
)
def test_present_fields_determine_the_kind_of_message(line: bytes, present: set[str]) -> None:
    message = read(line)
    assert {name for name in ("method", *PAYLOADS) if getattr(message, name) is not UNSET} == present


@pytest.mark.parametrize(
    "value",
    [
        rb'{"b":1,"a":2,"a":3}',  # order and duplicate keys
        rb'{ "spaced" :  [ 1 , 2 ] }',
        rb"12345678901234567890123456789012345678901234567890",
        rb"1.10",
        rb"1e400",
        rb"-0.0",
        rb'"\u00e9\ud83d\ude00\n\/"',
        '"é😀"'.encode(),
        rb'"\u0000"',
        b"[" * 100 + b"]" * 100,
        b'{"n":' + b"9" * 5000 + b"}",
    ],
)
def test_a_payload_comes_out_byte_for_byte_as_it_went_in(value: bytes) -> None:
    for name in PAYLOADS:
        message = read(b'{"jsonrpc":"2.0","' + name.encode() + b'":' + value + b"}")
        assert payload(message, name) == value


@given(json_values)
def test_any_json_passes_as_a_result(value: Any) -> None:
    written = json.dumps(value)
    if len(written) < 4000:
        assert payload(read(f'{{"id":1,"result":{written}}}'.encode()), "result") == written.encode()


@pytest.mark.parametrize("line", [b'{"id":1,"result":{}}\r', b'  {"id": 1, "result": {}}\t', b'{"id":1,\r"result":{}}'])
def test_white_space_around_and_inside_does_not_matter(line: bytes) -> None:
    assert payload(read(line), "result") == b"{}"


@pytest.mark.parametrize("version", [b'"1.0"', b"2", b"null", b"{}", b'"\\ud800"'])
def test_a_wrong_version_is_forgiven(version: bytes) -> None:
    assert payload(read(b'{"jsonrpc":' + version + b',"id":1,"result":{}}'), "result") == b"{}"


def test_of_duplicate_keys_the_last_counts() -> None:
    message = read(b'{"id":1,"id":2,"result":1,"result":2}')
    assert (payload(message, "id"), payload(message, "result")) == (b"2", b"2")


def test_a_null_error_beside_a_result_is_none() -> None:
    """JSON-RPC 1.0 wrote both members always, and libraries live long."""
    message = read(b'{"id":1,"result":{},"error":null}')
    assert (payload(message, "result"), message.error) == (b"{}", UNSET)
    assert payload(read(b'{"id":1,"error":null}'), "error") == b"null"
    assert payload(read(b'{"id":1,"result":null,"error":{}}'), "error") == b"{}"


# Not messages


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"Starting up...",
        b'{"jsonrpc": "2.0", ',
        b"{'id': 1}",
        b'{"id":1,"result":{},}',
        b'{"id":1}{"id":2}',
        b'{"id":1,"result":{"a":01}}',
        b'{"id":1,"result":{"a":1.}}',
        b'{"id":1,"result":"\\x"}',
        b'{"id":1,"result":"\\u12"}',
        b'{"id":1,"result":"a\x00b"}',
        b'{"id":1,"result":"a\nb"}',
        b'{"id":1,"result":tru}',
        b'{"id":1,"method":5}',
        b'{"id":1,"method":null}',
        b"null",
        b"1",
        b'"text"',
        b"[]",
        b'[{"id":1,"result":{}}]',
        b"\xff\xfe\x00",
        b'{"id":1,"result":"\xff"}',
        '{"id":1,"result":{}}'.encode("utf-16"),
        '{"id":1,"result":{}}'.encode("utf-16-le"),
    ],
)
def test_invalid_messages_are_malformed(line: bytes) -> None:
    assert str(malformed(line))


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_that_json_does_not_have_are_not_passed_on(constant: bytes) -> None:
    """Python writes them without being asked, and a client in any other language would choke on them."""
    assert malformed(b'{"jsonrpc":"2.0","id":4,"result":{"value":' + constant + b"}}").id == b"4"


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_malformed(line: bytes) -> None:
    try:
        read(line)
    except Malformed as error:
        id = error.id
    else:
        id = None
    assert id is None or messages.is_valid_id(id)


@given(st.text(alphabet='{}[]":,\\ud80e9Naid1methodresult ', max_size=60))
def test_no_text_that_resembles_a_message_raises_anything_but_malformed(text: str) -> None:
    try:
        message = read(text.encode())
    except Malformed:
        return
    for name in PAYLOADS:
        if getattr(message, name) is not UNSET:
            json.loads(payload(message, name))


@pytest.mark.parametrize("depth", [10, MAX_NESTING - 1, MAX_NESTING, 1000, 1500, 100_000])
def test_deep_nesting_is_read_or_refused_on_every_python(depth: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + closing * depth
        line = b'{"jsonrpc":"2.0","id":1,"result":' + nested + b"}"
        if depth < MAX_NESTING:
            assert payload(read(line), "result") == nested
        else:
            assert (malformed(line).id, str(malformed(line))) == (b"1", "nested more than 512 levels deep")


# Lone surrogates


@pytest.mark.parametrize(
    "value",
    [
        rb'"\ud800"',
        rb'"\uDFFF"',
        rb'{"\ud800":"\udc00 \ud83d\ude00"}',
        rb'"\\ud800 \ud800 \\\ud800 \\\\ud800"',
        rb'["\ud800",1e400,1.10,123456789012345678901234567890,{"a":1,"a":2}]',
    ],
)
def test_lone_surrogates_pass_as_they_were_written_and_nothing_else_changes(value: bytes) -> None:
    message = read(b'{"jsonrpc":"2.0","id":1,"result":' + value + b',"params":"\\ud801"}')
    assert payload(message, "result") == value
    assert payload(message, "params") == rb'"\ud801"'
    assert payload(message, "id") == b"1"


@given(st.lists(st.sampled_from(["\\ud800", "\\udfff", "\\ud83d\\ude00", "\\\\", "\\\\u", "\\n", "ud800", "é", "x"])))
def test_any_mixture_of_escapes_comes_out_as_it_went_in(parts: list[str]) -> None:
    value = f'"{"".join(parts)}"'.encode()
    json.loads(value)
    assert payload(read(b'{"id":"\\ud800","result":' + value + b"}"), "result") == value


def test_a_method_with_a_lone_surrogate_is_malformed_and_its_request_can_be_answered() -> None:
    """Such a text cannot be written to anybody, not even in an error."""
    assert malformed(rb'{"jsonrpc":"2.0","id":"q","method":"tools/\ud800"}').id == b'"q"'


def test_a_byte_order_mark_in_front_of_a_later_message_is_forgiven() -> None:
    assert payload(read(b'\xef\xbb\xbf{"id":1,"result":{}}'), "result") == b"{}"


# Ids of what cannot be read


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (b'{"jsonrpc":"2.0","id":17,"result":{"unfinished', b"17"),
        (b'{"jsonrpc":"2.0","id":"a-b","result":{"unfinished', b'"a-b"'),
        (b'{"result":"' + b"x" * 9000 + b'\xff","id" : -3 }', b"-3"),
        (b'{"method":"tools/call","params":{"arguments":{"id":5},"x":[}},"jsonrpc":"2.0","id":6}', b"6"),
        (b'{"params":{"id":5},"id":7,"method":"tools/call","x":[}}', b"7"),
        (b'{"params":["' + b"x" * 9000 + b'\xff"],"id":8,"method":"ping","jsonrpc":"2.0"}', b"8"),
        (b'{"method":"id","params":{"id":5},"x":[}', None),
        (b'{"params":{"text":"}\\"","id":5},"x', None),
        (b'{"result":{}}', None),
        (b'{"id":null}', None),
        (b'{"id":{"a":1}}', None),
        (b"no message at all", None),
    ],
)
def test_the_id_of_a_message_that_cannot_be_read_is_guessed(text: bytes, id: bytes | None) -> None:
    assert find_id(text) == id


def test_id_is_found_in_the_rest_of_an_oversized_message() -> None:
    assert find_id(b'{"result":{"id":5,"text":"' + b"x" * 99, b'x"},"id":9}') == b"9"
    assert find_id(b'{"id":8,"result":{"text":"' + b"x" * 99, b'x"},"a":{"id":9}}') == b"8"


def test_bad_utf8_in_a_result_still_tells_which_request_it_answers() -> None:
    assert malformed(b'{"jsonrpc":"2.0","id":5,"result":"\xff"}').id == b"5"


def test_a_batch_answers_no_single_request() -> None:
    assert malformed(b'[{"jsonrpc":"2.0","id":5,"result":{}}]').id is None


@pytest.mark.parametrize(
    ("id", "valid"), [(b"1", True), (b"-1", True), (b'"a"', True), (b"null", False), (b"{}", False), (b"true", False)]
)
def test_an_id_is_a_string_or_a_number(id: bytes, valid: bool) -> None:
    assert messages.is_valid_id(id) is valid


# Errors


def test_an_error_keeps_code_message_and_data() -> None:
    error = read_error(b'{"code":-32042,"message":"no","data":{"b": 1.10}}')
    assert (error.code, error.message) == (-32042, "no")
    assert isinstance(error.data, Raw) and bytes(error.data) == b'{"b": 1.10}'


@pytest.mark.parametrize(
    "raw", [b"null", b'"text"', b'{"code":"x"}', b'{"message":5}', b"[]", rb'{"message":"\ud800"}']
)
def test_an_error_that_is_none_is_quoted(raw: bytes) -> None:
    error = read_error(raw)
    assert error.code == INTERNAL_ERROR
    assert raw.decode() in error.message


@pytest.mark.parametrize("error", [{"code": 5, "message": ""}, {"code": INTERNAL_ERROR, "message": "m", "data": None}])
def test_an_error_is_written_with_all_its_members(error: dict[str, Any]) -> None:
    assert json.loads(messages.encode(read_error(json.dumps(error).encode()))) == error
    assert set(json.loads(messages.encode(read_error(b"null")))) == {"code", "message"}


def test_a_huge_malformed_error_is_quoted_in_part() -> None:
    assert len(read_error(b'"' + b"x" * 1_000_000 + b'"').message) < 300


# Writing


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (messages.request(7, "m"), {"jsonrpc": "2.0", "id": 7, "method": "m"}),
        (messages.request(b'"a"', "m", b'{"x":1}'), {"jsonrpc": "2.0", "id": "a", "method": "m", "params": {"x": 1}}),
        (messages.notification('a"b'), {"jsonrpc": "2.0", "method": 'a"b'}),
        (messages.notification("m", Raw(b"[1]")), {"jsonrpc": "2.0", "method": "m", "params": [1]}),
        (
            messages.error_response(None, -32700, "bad"),
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "bad"}},
        ),
        (
            messages.error_response(b"3", 1, "bad", {"why": "ü"}),
            {"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "bad", "data": {"why": "ü"}}},
        ),
    ],
)
def test_messages_are_written_as_json_rpc_says(written: bytes, expected: dict[str, Any]) -> None:
    assert json.loads(written) == expected
    assert b"\n" not in written


def test_a_piece_that_is_a_view_of_its_message_is_not_held() -> None:
    lengths = messages.remembered_if_short(len)
    large = decode(b'{"short": {"a": 1}, "large": "%s"}' % (b"x" * 100_000), type=dict[str, Raw])
    piece = large["short"]
    before = sys.getrefcount(piece)
    assert lengths(piece) == 8 and sys.getrefcount(piece) == before
    own = messages.interned(piece)
    before = sys.getrefcount(own)
    assert lengths(own) == 8 and sys.getrefcount(own) == before + 1, "this one is its own, and found at once"
