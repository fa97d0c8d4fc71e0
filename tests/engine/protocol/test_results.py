"""Results on their way to a client: a member more where an era asks for one, and not a byte else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.protocol import results
from mcp_workbench.engine.protocol.results import (
    COMPLETE_TYPE,
    is_ordinary,
    modern_head,
    modern_parts,
    result_type,
    type_and_spelling,
)
from mcp_workbench.engine.protocol.revisions import Era, newest

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
