"""Results on their way to a client: a member more where an era asks for one, and not a byte else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.protocol import constants, results
from mcp_workbench.engine.protocol.results import (
    COMPLETE_TYPE,
    is_ordinary,
    modern_head,
    modern_parts,
    result_type,
    type_and_spelling,
)
from mcp_workbench.engine.protocol.revisions import Era, newest
from tests.support.client import Json

objects = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=2))


def for_modern_client(result: Raw | bytes) -> bytes:
    """What a modern client gets."""
    kind, is_escaped = type_and_spelling(result)
    return b"".join(modern_parts(result, kind, "tools/call", None, is_escaped=is_escaped))


@given(objects, st.sampled_from([None, 1, 2]))
def test_a_member_is_added_in_front_and_the_rest_stays_as_it_was(value: dict[str, Any], indent: int | None) -> None:
    written = json.dumps(value, indent=indent).encode()
    spliced = for_modern_client(written)
    assert json.loads(spliced) == {"resultType": "complete", **value}
    assert spliced.endswith(written[1:])


@given(objects, st.sampled_from([None, 1]))
def test_an_ordinary_result_gets_the_same_members_the_short_way(value: dict[str, Any], indent: int | None) -> None:
    written, info = json.dumps(value, indent=indent).encode(), b'{"name":"s"}'
    if is_ordinary(written):
        kind, is_escaped = type_and_spelling(written)
        parts = modern_parts(written, kind, "tools/call", info, is_escaped=is_escaped)
        assert modern_head(info) + written[1:] == b"".join(parts)


def test_results_with_special_members_are_not_ordinary() -> None:
    assert is_ordinary(b'{"content":[],"isError":false}') and is_ordinary(b'{"content":["a \\"_meta\\" \\n"]}')
    needing = (
        *(b"{}", b"{ }", b"[]", b"", b'"text"', b'{"content":[],"_meta":{}}', b'{"resultType":"input_required"}'),
        *(b'{"isError":true}', b'{"a":1,"isError" : true}', b'{"a":1,"result\\u0054ype":"task"}'),
    )
    assert [written for written in needing if is_ordinary(written)] == []


@pytest.mark.parametrize("empty", [b"{}", b"{ }", b"{\n\t}"])
def test_an_empty_object_gets_no_stray_comma(empty: bytes) -> None:
    assert json.loads(for_modern_client(empty)) == {"resultType": "complete"}


@pytest.mark.parametrize("other", [b"[]", b"null", b'"text"', b"1", b""])
def test_anything_but_an_object_is_left_alone(other: bytes) -> None:
    assert for_modern_client(other) == other


@pytest.mark.parametrize("name", ["complete", "input_required", "task", "of the future"])
def test_a_result_type_that_is_there_is_kept(name: str) -> None:
    written = b'{"content":[],"resultType":"%b"}' % name.encode()
    assert result_type(written) == name
    assert for_modern_client(Raw(written)) == written


@pytest.mark.parametrize(
    "written",
    [
        b'{"content":[{"type":"text","text":"x"}]}',
        b'{"structuredContent":{"resultType":"nested, not ours"}}',
        b'{"content":[{"type":"text","text":"\\"resultType\\":1"}]}',
        b"{}",
    ],
)
def test_a_result_without_type_is_complete(written: bytes) -> None:
    assert result_type(written) is None
    assert json.loads(for_modern_client(written)) == {"resultType": "complete", **json.loads(written)}
    assert for_modern_client(written).startswith(b"{" + COMPLETE_TYPE)


@pytest.mark.parametrize(
    "written",
    [
        b'["resultType"]',
        b'"resultType"',
        b'{"resultType":5}',
        b'{"resultType":null}',
        b'{"resultType":["complete"]}',
        rb'{"resultType":"complete","text":"\ud800"}',
        rb'{"text":"\ud800","nested":{"resultType":1}}',
    ],
)
def test_a_strange_result_passes_without_an_exception(written: bytes) -> None:
    """The call that it answers would wait for ever otherwise."""
    assert bytes(for_modern_client(written)).endswith(written[1:])


def test_a_member_is_found_wherever_it_lies_in_a_result() -> None:
    for start in (0, 1, 63, 64, 1000):
        data = b" " * start + b'"resultType"' + b" " * 200
        assert results.may_mention(data, "resultType") and not results.may_mention(data, "inputRequests")
    assert not results.may_mention(b" " * 1000, "resultType")
    assert results.may_mention(b" " * 61 + rb"\u0041" + b" " * 200, "resultType"), "however it is spelt"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'{"content":[]}', (None, False)),
        (b'{"content":["\\"resultType\\""]}', (None, False)),
        (b'{"resultType":"task"}', ("task", False)),
        (rb'{"result\u0054ype":"task"}', ("task", True)),
        (rb'{"content":["\u0041"]}', (None, True)),
        (b'{"resultType":"task', (None, False)),
        (b'{"resultType":"input_required",', ("input_required", False)),
        (rb'{"result\u0054ype":"task', ("input_required", True)),
    ],
)
def test_type_is_read_however_it_is_spelt(written: bytes, expected: tuple[str | None, bool]) -> None:
    """What cannot be read counts as a question if a client might read it as one."""
    assert type_and_spelling(written) == expected


# ── the server's identity, and how long a result is valid ──

INFO = b'{"name":"s"}'
OWN = {constants.SERVER_INFO: {"name": "s"}}


def with_info(written: bytes, method: str = "tools/call") -> bytes:
    kind, is_escaped = type_and_spelling(written)
    return b"".join(modern_parts(written, kind, method, INFO, is_escaped=is_escaped))


@pytest.mark.parametrize(
    ("written", "meta"),
    [
        (b'{"content":[]}', OWN),
        (b'{"content":["_meta"]}', OWN),
        (b'{"content":[{"_meta":{"a":1}}]}', OWN),
        (b'{"content":[],"_meta":{"a":1,"b":2}}', {"a": 1, "b": 2, **OWN}),
        (rb'{"content":[],"\u005fmeta":{"a":1}}', {"a": 1, **OWN}),
        (b'{"_meta":{"%b":{"name":"its own"}}}' % constants.SERVER_INFO.encode(), None),
        (b'{"_meta":5}', None),
    ],
)
def test_a_result_has_one_meta_with_the_server_and_what_it_says_itself(
    written: bytes, meta: dict[str, Any] | None
) -> None:
    shown = with_info(written)
    members = json.loads(shown, object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in members].count("_meta") == 1
    before = json.loads(written)
    assert json.loads(shown) == {"resultType": "complete", **before, "_meta": before["_meta"] if meta is None else meta}


def test_a_result_that_cannot_be_read_gets_no_member_that_it_may_have() -> None:
    cut = b'{"_meta":{},"ttlMs":7,"a":'
    assert with_info(cut, "resources/read") == b'{"resultType":"complete","cacheScope":"private",' + cut[1:]


@pytest.mark.parametrize(
    ("method", "written", "added"),
    [
        ("tools/call", b'{"a":1}', {}),
        ("resources/read", b'{"a":1}', {"ttlMs": 0, "cacheScope": "private"}),
        ("skills/get", b'{"a":1}', {"ttlMs": 0, "cacheScope": "private"}),
        ("resources/read", b'{"ttlMs":7}', {"cacheScope": "private"}),
        ("resources/read", b'{"cacheScope":"public","ttlMs":7}', {}),
        ("resources/read", rb'{"\u0074tlMs":7}', {"cacheScope": "private"}),
        ("resources/read", b'{"contents":[{"ttlMs":7}]}', {"ttlMs": 0, "cacheScope": "private"}),
    ],
)
def test_what_may_be_kept_is_not_to_be_unless_the_server_says_so(
    method: str, written: bytes, added: dict[str, Any]
) -> None:
    kind, is_escaped = type_and_spelling(written)
    shown = b"".join(modern_parts(written, kind, method, None, is_escaped=is_escaped))
    assert json.loads(shown) == {"resultType": "complete", **added, **json.loads(written)}
    assert shown.endswith(written[1:])


# ── for clients of an older revision ──


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ({"resultType": "complete", "content": [1]}, {"content": [1]}),
        ({"content": [1], "ttlMs": 7, "cacheScope": "public"}, {"content": [1]}),
        ({"content": [], "_meta": {"a": 1, **OWN}}, {"content": [], "_meta": {"a": 1}}),
        ({"content": [], "_meta": OWN}, {"content": []}),
        ({"content": [], "_meta": {"a": 1}}, {"content": [], "_meta": {"a": 1}}),
        ({"content": [], "_meta": {}}, {"content": [], "_meta": {}}),
        ({"content": [{"resultType": "complete", "ttlMs": 1}]}, {"content": [{"resultType": "complete", "ttlMs": 1}]}),
        ({"resultType": "task", "taskId": "t", "ttlMs": 7}, {"resultType": "task", "taskId": "t", "ttlMs": 7}),
        # What cannot be understood is passed on.
        ({"resultType": "complete", "_meta": 5}, {"resultType": "complete", "_meta": 5}),
    ],
)
def test_members_of_a_later_revision_are_taken_out(written: dict[str, Any], shown: dict[str, Any]) -> None:
    given = json.dumps(written).encode()
    found = bytes(results.legacy_result(given))
    assert json.loads(found) == shown
    if written == shown and "ttlMs" not in str(written):
        assert found == given


# ── errors ──


@pytest.mark.parametrize(("data", "kept"), [({"elicitations": [1]}, {"elicitations": [1]}), ("text", {}), (None, {})])
def test_a_page_to_visit_is_a_missing_capability_for_clients_that_are_asked_in_results(data: Any, kept: Any) -> None:
    error = {"code": -32042, "message": "m", **({} if data is None else {"data": data})}
    written = json.dumps(error).encode()
    shown = json.loads(bytes(results.error_for_client(written, "tools/call", newest("modern"))))
    required: Json = {"elicitation": {"url": {}}}
    assert shown == {"code": -32021, "message": "m", "data": {**kept, "requiredCapabilities": required}}
    assert results.error_for_client(written, "tools/call", newest("legacy")) == written


@pytest.mark.parametrize(
    ("written", "era"),
    [
        (b'{"code": -32002,  "message":"m"}', "legacy"),
        (b'{"code":-32602, "data":{"uri":"a:b"},"message":"m"}', "modern"),
        (b'{"code":-32602, "data":"uri","message":"m"}', "legacy"),
        (b'{"code":-32603, "message":"m"}', "modern"),
    ],
)
def test_an_error_that_is_right_already_is_passed_on_as_it_is(written: bytes, era: Era) -> None:
    assert results.error_for_client(written, "resources/read", newest(era)) is written


@pytest.mark.parametrize("method", ["resources/read", "tools/call"])
@pytest.mark.parametrize("code", [-32002, -32602, -32603])
@pytest.mark.parametrize("data", [None, {"uri": "a:b"}, {"field": "uri"}], ids=str)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_missing_resource_has_the_code_of_the_clients_era(
    method: str, code: int, data: dict[str, str] | None, era: Era
) -> None:
    error = {"code": code, "message": "m", **({} if data is None else {"data": data}), "x": 1}
    is_missing = method == "resources/read" and (code == -32002 or (code == -32602 and "uri" in (data or {})))
    expected = {"legacy": -32002, "modern": -32602}[era] if is_missing else code
    shown = results.error_for_client(json.dumps(error).encode(), method, newest(era))
    assert json.loads(bytes(shown)) == {**error, "code": expected}
