from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.signature import argument_names, signature
from tests.support.examples import examples


def arguments(properties: dict[str, Any], required: tuple[str, ...] = (), /, **rest: Any) -> dict[str, Any]:
    definitions = {"$defs": rest.pop("definitions")} if "definitions" in rest else {}
    return {"type": "object", "properties": properties, "required": list(required), **rest, **definitions}


def written(schema: dict[str, Any], **rest: Any) -> str:
    return signature("t", arguments({"a": schema}, ("a",), **rest)).text.removeprefix("t(a: ").removesuffix(")")


def test_required_and_optional_arguments_with_types_and_defaults() -> None:
    schema = arguments(
        {
            "owner": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "default": 10},
        },
        ("owner",),
    )
    made = signature("create_issue", schema)
    assert made.text == "create_issue(owner: string, labels?: string[], limit?: integer = 10)"
    assert made.complete


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "enum": ["a", "b"]}, '"a"|"b"'),
        ({"const": 5}, "5"),
        ({"type": "string", "format": "date-time"}, "string<date-time>"),
        ({"type": "integer", "format": "int32"}, "integer"),
        ({"type": ["string", "null"]}, "string|null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string|null"),
        ({"type": "array", "items": {"type": ["string", "number"]}}, "(string|number)[]"),
        ({"type": "array", "items": arguments({"x": {"type": ["string", "null"]}}, ("x",))}, "{x: string|null}[]"),
        ({"type": "array"}, "any[]"),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {}}, "object"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{[key]: number}"),
        (arguments({"x": {"type": "boolean"}}), "{x?: boolean}"),
        ({"allOf": [arguments({"x": {"type": "string"}}), arguments({"y": {}}, ("y",))]}, "{x?: string, y: any}"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_a_type_in_the_notation(schema: dict[str, Any], text: str) -> None:
    assert written(schema) == text


def test_references_are_followed_inside_the_schema() -> None:
    definitions = {"User": arguments({"name": {"$ref": "#/$defs/Name"}}, ("name",)), "Name": {"type": "string"}}
    made = signature("t", arguments({"user": {"$ref": "#/$defs/User"}}, definitions=definitions))
    assert made == ("t(user?: {name: string})", True)


def test_the_same_definition_twice_is_no_circle() -> None:
    made = signature(
        "t",
        arguments(
            {"a": {"$ref": "#/$defs/P"}, "b": {"$ref": "#/$defs/P"}},
            definitions={"P": arguments({"x": {"type": "number"}})},
        ),
    )
    assert made == ("t(a?: {x?: number}, b?: {x?: number})", True)


@pytest.mark.parametrize(
    "schema",
    [
        arguments({"a": {"$ref": "#/$defs/missing"}}),
        arguments({"a": {"$ref": "https://example.com/schema.json"}}),
        arguments({"a": {"$ref": "#/properties/a"}}),
        arguments({"a": {"$ref": "#/$defs/T"}}, definitions={"T": arguments({"next": {"$ref": "#/$defs/T"}})}),
        arguments({"a": {"enum": [f"value-{number}" for number in range(100)]}}),
        arguments({"a": {"enum": ["x" * 100]}}),
        arguments({f"argument_{number}": {} for number in range(10_000)}),
        arguments({"x" * 5_000: {}}),
        arguments({"a": arguments({"b": arguments({"c": arguments({"d": {"type": "string"}})})})}),
        arguments({"a": {"type": "array", "prefixItems": [{"type": "string"}]}}),
        arguments({"a": {}}, anyOf=[{"required": ["a"]}]),
        arguments({"a": {}}, patternProperties={"^x": {}}),
    ],
)
def test_omissions_are_marked(schema: dict[str, Any]) -> None:
    made = signature("t", schema)
    assert not made.complete
    assert "…" in made.text
    assert len(made.text) < 4_000


def test_depth_three_is_shown_and_four_is_not() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for name in ("c", "b", "a"):
        deep = arguments({name: deep}, (name,))
    assert signature("t", deep).text == "t(a: {b: {c: string}})"
    assert signature("t", arguments({"z": deep}, ("z",))).text == "t(z: {a: {b: {…}}})"


def test_arguments_that_are_no_plain_words_are_quoted() -> None:
    assert signature("t", arguments({"a b": {"type": "string"}}, ("a b",))).text == 't("a b": string)'


def test_names_alone_keep_the_mark_of_optional_ones() -> None:
    made = argument_names("t", arguments({"a": {"type": "string"}, "b": {"type": "number"}}, ("a",)))
    assert made == ("t(a, b?)", False)


@pytest.mark.parametrize(
    "schema", [None, True, [], "text", {"properties": 3}, {"properties": {"a": 1}, "required": "a"}]
)
def test_a_schema_that_is_none_does_not_break_it(schema: object) -> None:
    assert signature("t", schema).text.startswith("t(")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["string", "object", "#", "#/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "allOf", "enum", "$ref", "required", "a", "default"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@examples(150)
@given(VALUES)
def test_any_json_gives_a_line(schema: object) -> None:
    made = signature("t", schema)
    assert "\n" not in made.text
    assert made.complete or "…" in made.text
