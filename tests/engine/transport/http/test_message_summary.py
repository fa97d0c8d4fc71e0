"""What a carrier sees of a message."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import Malformed
from mcp_workbench.engine.transport.http.message_summary import (
    is_batch,
    kind_and_id,
    single_line,
    split_batch,
    summarise,
    summarise_short,
)

VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.parametrize(
    ("message", "kind", "id"),
    [
        ({"id": 1, "method": "x"}, "request", b"1"),
        ({"id": "a", "method": "x"}, "request", b'"a"'),
        ({"id": None, "method": "x"}, "request", b"null"),
        ({"method": "x"}, "notification", None),
        ({"id": 1, "result": {}}, "result", b"1"),
        ({"id": 1, "error": {}}, "error", b"1"),
        ({"id": None, "error": {}}, "error", b"null"),
    ],
)
def test_the_kind_is_seen_in_any_order(message: dict[str, Any], kind: str, id: bytes | None) -> None:
    for fields in ({"jsonrpc": "2.0", **message}, {**message, "jsonrpc": "2.0"}, dict(reversed(message.items()))):
        for separators in ((",", ":"), (", ", ": ")):
            data = json.dumps(fields, separators=separators).encode()
            summary = summarise(data)
            assert (summary.kind, summary.id) == (kind, id)
            assert kind_and_id(data) == (kind, id)


@pytest.mark.parametrize(("text", "id"), [(b"{}", None), (b'{"id":7}', b"7"), (b'{"id":null,"params":{}}', None)])
def test_a_value_without_method_result_or_error_is_not_a_message(text: bytes, id: bytes | None) -> None:
    with pytest.raises(Malformed) as caught:
        summarise(text)
    assert (caught.value.code, caught.value.id) == (messages.INVALID_REQUEST, id)
    assert caught.value.complaint == messages.NOT_A_MESSAGE, "as over stdio"


def test_our_own_messages_are_recognised_without_reading_them_all() -> None:
    assert kind_and_id(messages.request(7, "ping")[:40]) == ("request", b"7")
    assert kind_and_id(b'{"jsonrpc":"2.0","id":"a","result":') == ("result", b'"a"')
    assert kind_and_id(messages.error_response(b"3", -1, "x")) == ("error", b"3")
    assert kind_and_id(messages.notification("notifications/x")) == ("notification", None)


def test_summary_has_the_mirrored_members() -> None:
    summary = summarise(
        json.dumps(
            {"id": 1, "method": "tools/call", "params": {"name": "é", "arguments": {"a": 1}, "_meta": {VERSION: "v"}}}
        ).encode()
    )
    assert (summary.version, summary.name, bytes(summary.arguments or b"")) == ("v", "é", b'{"a": 1}')
    read = summarise(b'{"id":1,"method":"resources/read","params":{"uri":"file:///x","name":"no"}}')
    assert (read.name, read.version) == ("file:///x", None)
    assert summarise(b'{"id":1,"method":"tools/list","params":{"name":"no"}}').name is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=9), each, max_size=3),
    max_leaves=5,
)
_PARAMS = _JSON | st.fixed_dictionaries({"name": _JSON, "_meta": _JSON | st.fixed_dictionaries({VERSION: _JSON})})
_MEMBERS = {
    "jsonrpc": st.sampled_from(["2.0", "1.0"]),
    "id": _JSON,
    "method": st.text(max_size=9) | _JSON,
    "params": _PARAMS,
}


@given(
    st.fixed_dictionaries({}, optional={**_MEMBERS, "result": _JSON, "error": _JSON}),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_a_short_request_is_read_as_any_other_or_not_at_all(
    message: dict[str, Any], indent: int | None, is_ascii: bool
) -> None:
    data = json.dumps(message, indent=indent, ensure_ascii=is_ascii).encode()
    short = messages.read_short_request(data)
    if short is not None:
        full = summarise(data)
        assert msgspec.structs.astuple(summarise_short(short)) == msgspec.structs.astuple(full)


def test_short_requests_are_read_in_one_step() -> None:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"%b":"v"}}}' % VERSION.encode()
    request = messages.read_short_request(call)
    assert request is not None and list(request.params) == ["name", "_meta"]
    summary = summarise_short(request)
    assert (summary.id, summary.version, summary.params) == (b"1", "v", request.params)
    for other in (
        b"\xff",
        b"[1]",
        b'{"id":1,"method":"ping"}',
        call[:-1],
        call.replace(b"2.0", b"1.0"),
        call.replace(b'"x"', b'"\xff"'),
        call + b" " * 999,
    ):
        assert messages.read_short_request(other) is None


@pytest.mark.parametrize(
    "params", [b"[]", b"1", b"null", b'{"name":1,"_meta":[]}', b'{"_meta":{"x":1}}', b'{"name":"\\ud800","_meta":null}']
)
def test_odd_parameters_do_no_harm(params: bytes) -> None:
    summary = summarise(b'{"id":1,"method":"tools/call","params":%b}' % params)
    assert summary.version is None
    assert summary.name is None


def test_a_stamp_that_is_no_string_is_a_stamp_all_the_same() -> None:
    assert summarise(b'{"id":1,"method":"x","params":{"_meta":{"%b":5}}}' % VERSION.encode()).version == ""


def test_a_cancellation_names_its_request() -> None:
    assert summarise(b'{"method":"notifications/cancelled","params":{"requestId":"a"}}').cancels == b'"a"'
    assert summarise(b'{"method":"notifications/cancelled","params":{}}').cancels is None
    assert summarise(b'{"method":"notifications/cancelled","params":[]}').cancels is None
    assert summarise(b'{"method":"notifications/x","params":{"requestId":1}}').cancels is None


@pytest.mark.parametrize("body", [b"", b"{", b"1", b'"x"', b"[]", b"\xff", b'{"method":1}', b"[" * 100_000])
def test_invalid_messages_are_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        summarise(body)


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail_in_another_way(body: bytes) -> None:
    for look in (summarise, kind_and_id, split_batch):
        try:
            look(body)
        except Malformed:
            pass


def test_batches_are_distinguished_and_cut() -> None:
    assert is_batch(b'  \n[{"a":1}]') and not is_batch(b'{"a":[]}') and not is_batch(b"")
    assert split_batch(b'[{"a": 1}, 2]') == [b'{"a": 1}', b"2"]


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each))
)
def test_a_message_on_one_line_is_the_same_message(value: Any) -> None:
    for indent in (None, 1):
        data = json.dumps(value, indent=indent).replace("\n", "\r\n").encode()
        line = single_line(data)
        assert b"\n" not in line and b"\r" not in line
        assert json.loads(line) == value
