from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.arguments import arguments_schema, choices, items, kinds

ROOT: dict[str, Any] = {
    "$defs": {
        "level": {"enum": ["low", "high"]},
        "node": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        "a/b": {"type": "integer"},
    }
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, ["integer"]),
        ({"type": ["string", "null"]}, ["string", "null"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["integer", "null"]),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, ["string", "array"]),
        ({"allOf": [{"type": "object"}]}, ["object"]),
        ({"$ref": "#/$defs/level"}, ["string"]),
        ({"$ref": "#/$defs/a~1b"}, ["integer"]),
        ({"$ref": "#/$defs/node"}, ["null"]),
        ({"$ref": "#/nowhere"}, []),
        ({"$ref": "https://example.com/schema"}, []),
        ({"const": 3}, ["integer"]),
        ({"enum": [True, 1.5, None]}, ["boolean", "number", "null"]),
        ({"properties": {}}, ["object"]),
        ({"items": {}}, ["array"]),
        ({}, []),
        (True, []),
        ({"type": 7}, []),
    ],
)
def test_the_kinds_that_a_schema_allows(schema: object, expected: list[str]) -> None:
    assert kinds(schema, ROOT) == expected


def test_an_enumeration_is_one_only_when_every_alternative_is() -> None:
    assert choices({"$ref": "#/$defs/level"}, ROOT) == ["low", "high"]
    assert choices({"anyOf": [{"const": "a"}, {"enum": ["b"]}]}, ROOT) == ["a", "b"]
    assert choices({"anyOf": [{"const": "a"}, {"type": "string"}]}, ROOT) == []


def test_items_are_found_in_the_alternative_that_has_them() -> None:
    assert items({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]}, ROOT) == {
        "type": "integer"
    }
    assert items({"type": "array"}, ROOT) == {}


def test_a_definition_without_a_usable_schema_takes_anything() -> None:
    assert arguments_schema({"name": "x"}) == {}
    assert arguments_schema({"inputSchema": []}) == {}
    assert arguments_schema(None) == {}


def json_values() -> st.SearchStrategy[Any]:
    keywords = st.sampled_from(
        ["type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "items", "properties", "required", "default", "x"]
    )
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
    return st.recursive(
        leaves | st.just("#/properties/x"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
        max_leaves=12,
    )


@given(st.dictionaries(st.sampled_from(["properties", "required", "$defs", "type"]), json_values(), max_size=4))
def test_any_schema_of_a_server_is_read_without_failing(schema: dict[str, Any]) -> None:
    argument = schema.get("properties")
    assert isinstance(kinds(argument, schema), list)
    assert isinstance(choices(argument, schema), list)
    items(argument, schema)
