from __future__ import annotations

import pytest

from mcp_workbench.engine.json_schema import alternatives, point, resolve, schemas_in, with_schemas

ROOT = {
    "$defs": {
        "a/b": {"type": "string"},
        "c d": {"$ref": "#/$defs/a~1b"},
        "loop": {"$ref": "#/$defs/pool"},
        "pool": {"$ref": "#/$defs/loop"},
    },
    "allOf": [{"type": "object"}],
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/$defs/c%20d", {"type": "string"}),
        ("#/allOf/0", {"type": "object"}),
    ],
)
def test_a_local_reference_ends_at_a_schema(reference: str, target: object) -> None:
    assert resolve(ROOT, reference) == target


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/loop", "#/nowhere", "#/allOf/1", "#/allOf/²", "#/allOf/-1", "#anchor", "other.json#/a", "", None, 5],
)
def test_unresolvable_reference_is_none(reference: object) -> None:
    assert resolve(ROOT, reference) is None


def test_a_pointer_may_end_at_anything() -> None:
    assert point({"a": [1, {"b": "text"}]}, "#/a/1/b") == "text"


def test_alternatives_are_followed_in_order_and_each_reference_once() -> None:
    root = {"$defs": {"node": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    schema = {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]}
    assert alternatives(schema, root) == [{"type": "string"}, {"type": "integer"}, {"type": "null"}]


def test_definitions_that_double_at_each_level_are_looked_at_once_each() -> None:
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    root = {"$defs": {**definitions, "d60": {"type": "null"}}}
    assert alternatives({"$ref": "#/$defs/d0"}, root) == [{"type": "null"}]


@pytest.mark.parametrize(
    ("keyword", "value", "held"),
    [
        ("properties", {"a": {"type": "string"}, "b": True}, [("a", {"type": "string"})]),
        ("items", {"type": "string"}, [("", {"type": "string"})]),
        ("items", [{"type": "string"}, False], [("", {"type": "string"})]),
        ("anyOf", [{}, {"x": 1}], [("", {}), ("", {"x": 1})]),
        ("dependencies", {"a": ["b"], "c": {}}, [("c", {})]),
        ("default", {"properties": {"a": {}}}, []),
        ("additionalProperties", False, []),
    ],
)
def test_a_keyword_holds_schemas_by_name_in_a_list_or_alone(
    keyword: str, value: object, held: list[tuple[str, object]]
) -> None:
    assert list(schemas_in(keyword, value)) == held
    assert with_schemas(keyword, value, lambda name, part: part) == value
    assert (with_schemas(keyword, value, lambda name, part: "changed") != value) is bool(held)
