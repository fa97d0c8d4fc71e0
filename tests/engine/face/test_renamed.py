"""A definition under another name: every other byte is the server's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.face.renamed import renamed, with_members

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("name"), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"name":"a"}', '{"name":"box:a"}'),
        (
            '{ "title" : "a" ,\n\t"name" : "a" , "x":[ 1, 2 ] }',
            '{ "title" : "a" ,\n\t"name" : "box:a" , "x":[ 1, 2 ] }',
        ),
        (' {"inputSchema": {"name": "a"}, "name": "a"} ', ' {"inputSchema": {"name": "a"}, "name": "box:a"} '),
        (
            '{"n\\u0061me": "\\u0061", "description": "\\"name\\": \\"a\\"", "n": 1.50e+1}',
            '{"n\\u0061me": "box:a", "description": "\\"name\\": \\"a\\"", "n": 1.50e+1}',
        ),
        (
            '{"name": "a", "annotations": {}, "description": "} \\\\"}',
            '{"name": "box:a", "annotations": {}, "description": "} \\\\"}',
        ),
    ],
)
def test_only_the_name_changes(written: str, expected: str) -> None:
    assert renamed(Raw(written.encode()), "box:a").decode() == expected


def test_a_text_that_is_not_there_is_added_behind_the_others() -> None:
    assert renamed(Raw(b'{ "name": "a" }'), "b", description="d") == b'{ "name": "b" ,"description":"d"}'
    assert renamed(Raw(b'{"description": "old", "name": "a" }'), "b", description="d") == (
        b'{"description": "d", "name": "b" }'
    )
    assert with_members(b"{ }", {"a": b"1", "b": b"2"}) == b'{ "a":1,"b":2}'


@pytest.mark.parametrize(
    "written", [b'{"name":"a","x":1,"name":"a"}', b'{"x":{"name":"a"},"name":"a","x":{"name":"a"}}']
)
def test_a_member_that_is_there_twice_is_written_once(written: bytes) -> None:
    found = renamed(Raw(written), "b")
    assert found.count(b'"x"') == 1
    assert json.loads(found) == {**json.loads(written), "name": "b"}


@given(
    st.dictionaries(st.text(max_size=6) | st.sampled_from(["description", "inputSchema"]), json_values, max_size=5),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]),
    st.booleans(),
)
def test_surrounding_members_keep_their_bytes(
    others: dict[str, Any], indent: int | None, separators: tuple[str, str], ascii_only: bool
) -> None:
    marker = "a name that nothing else has"

    def written(name: str) -> str:
        return json.dumps({**others, "name": name}, indent=indent, separators=separators, ensure_ascii=ascii_only)

    assert renamed(Raw(written(marker).encode()), "other").decode() == written("other")
