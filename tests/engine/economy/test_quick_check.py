"""The shortcut for plain schemas agrees with the thorough check and with a full implementation of JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.arguments import check
from mcp_workbench.engine.economy.quick_check import compiled
from tests.support.examples import examples

NAMES = st.sampled_from(["a", "b", "ä", 'with "quotes"', "f0", "x-y", ""])
NUMBERS = st.integers(-4, 4) | st.sampled_from([2**53, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 1.5, 2.0, 1e300])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "ä", "😀", "é", "1"])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
# What servers write, and what they should not: limits of another type, limits for another type, nonsense.
LIMIT = NUMBERS | st.booleans() | st.none() | TEXTS
WORDS = ["string", "integer", "number", "boolean", "array", "object", "null", "text"]
LEAF: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS) | st.lists(st.sampled_from(WORDS), max_size=3, unique=True)},
    optional={
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), LIMIT),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), st.integers(-1, 3) | LIMIT),
        "enum": st.lists(TEXTS | ANYTHING, max_size=3),
        "default": ANYTHING,
        "description": TEXTS,
        "format": st.sampled_from(["uri", "date"]),
        "pattern": st.just("^a"),
    },
) | st.sampled_from([{"type": word} for word in WORDS])


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    part = inner | st.sampled_from([{}, True, False])
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": part}),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": part}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}, optional={"default": ANYTHING, "type": TEXTS}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2, unique=True), "additionalProperties": st.booleans()},
        ),
        st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in "ab"]),
    )


PLAIN: st.SearchStrategy[Any] = st.recursive(LEAF, larger, max_leaves=4)
DIALECTS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
SCHEMAS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object") | st.just("array"),
        "properties": st.dictionaries(NAMES, PLAIN, max_size=4) | st.none(),
        "required": st.lists(NAMES, max_size=2, unique=True) | st.just([{}]) | st.just("a"),
        "additionalProperties": st.booleans() | st.just({}) | PLAIN,
        "title": TEXTS,
        "$schema": st.sampled_from(DIALECTS),
        "$defs": st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2),
    },
)


def is_valid(schema: Any) -> bool:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


@examples(150)
@given(SCHEMAS, st.dictionaries(NAMES, ANYTHING, max_size=4) | ANYTHING)
@example({"properties": {"a": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}}, {"a": 0})
@example({"properties": {"a": {"type": "integer", "minimum": 2**53 + 1}}}, {"a": 2**53})
@example({"properties": {"a": {"type": "number", "minimum": 2**53 + 1}}}, {"a": 2**53})
def test_quick_check_accepts_only_valid_arguments(schema: Any, arguments: Any) -> None:
    accepts = compiled(schema)
    if accepts is None or not accepts(json.dumps(arguments).encode()):
        return
    assert check(arguments, schema).problems == ()
    if is_valid(schema):
        jsonschema.Draft202012Validator(schema).validate(arguments)


PLAIN_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "lines": {"type": "integer", "minimum": 1, "maximum": 1000},
        "ratio": {"type": "number", "exclusiveMinimum": 0},
        "mode": {"type": "string", "enum": ["r", "w"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "more": {"type": "object"},
        "deep": {"type": "boolean", "default": False},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "size": {"type": ["integer", "null"], "minimum": 1},
        "at": {"$ref": "#/$defs/point"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a"},
        {"path": "a", "lines": 5, "ratio": 1, "mode": "w", "tags": ["x", "y"], "more": {"k": [1]}, "deep": True},
        {"path": "ä😀", "ratio": 0.5},
        {"path": "a", "note": None, "at": {"x": 1, "y": 2}, "labels": {"k": "v"}},
        {"path": "a", "note": "b"},
    ],
)
def test_right_arguments_take_the_shortcut(arguments: Any) -> None:
    accepts = compiled(PLAIN_SCHEMA)
    assert accepts is not None
    assert accepts(json.dumps(arguments).encode())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": ""},
        {"path": 5},
        {"path": None},
        {"path": "a", "lines": 0},
        {"path": "a", "lines": True},
        {"path": "a", "lines": "5"},
        {"path": "a", "ratio": 0},
        {"path": "a", "mode": "x"},
        {"path": "a", "tags": ["x", "y", "z"]},
        {"path": "a", "tags": [1]},
        {"path": "a", "other": 1},
        {"path": "a", "note": 5},
        {"path": "a", "at": {}},
        {"path": "a", "at": {"x": "1"}},
        {"path": "a", "labels": {"k": 1}},
        [],
        "text",
    ],
)
def test_wrong_arguments_do_not(arguments: Any) -> None:
    accepts = compiled(PLAIN_SCHEMA)
    assert accepts is not None
    assert not accepts(json.dumps(arguments).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a"},
        {"properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        {"properties": {"a": {"$ref": "https://example.test/a"}}},
        {"properties": {"a": {"type": "string", "pattern": "^a"}}},
        {"patternProperties": {"^a": {}}},
        {"required": ["not there"]},
        "no schema",
        True,
    ],
)
def test_complex_schemas_have_no_quick_check(schema: Any) -> None:
    assert compiled(schema) is None
