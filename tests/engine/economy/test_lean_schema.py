from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from mcp_workbench.engine.economy.lean_schema import lean
from tests.engine.economy.schemas import SCHEMAS, VALUES
from tests.support.examples import examples


def leaned(argument: dict[str, Any], name: str = "issue_number") -> Any:
    short = lean({"type": "object", "properties": {name: argument}})
    assert isinstance(short, dict)
    return short["properties"][name]


@pytest.mark.parametrize(
    "noise",
    [
        {"title": "Issue Number"},
        {"title": ""},
        {"description": ""},
        {"description": "Issue number"},
        {"default": None},
        {"$comment": "generated"},
        {"x-order": 3},
        {"deprecated": False},
        {"minimum": -9007199254740991, "maximum": 9007199254740991},
        {"examples": []},
        {"examples": ["x" * 200]},
        {"required": []},
        {"additionalProperties": True},
    ],
)
def test_noise_is_dropped(noise: dict[str, Any]) -> None:
    assert leaned({"type": "integer", **noise}) == {"type": "integer"}


@pytest.mark.parametrize(
    "meaning",
    [
        {"title": "Number of the ticket"},
        {"description": "As shown in the address bar."},
        {"default": 0},
        {"default": False},
        {"minimum": 1},
        {"enum": [1, 2]},
        {"examples": [42]},
        {"format": "int64"},
        {"pattern": "^[a-z]+$"},
        {"minLength": False},
    ],
)
def test_meaning_is_kept(meaning: dict[str, Any]) -> None:
    assert leaned({"type": "integer", **meaning}) == {"type": "integer", **meaning}


def test_arguments_that_are_called_like_keywords_stay() -> None:
    properties = {"title": {"type": "string"}, "$schema": {"type": "string"}, "examples": {"type": "array"}}
    assert lean({"type": "object", "properties": properties}) == {"type": "object", "properties": properties}


def test_the_top_loses_its_title_and_dialect() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "create_issueArguments", "type": "object"}
    assert lean(schema) == {"type": "object"}


def test_closed_objects_are_opened_outside_of_alternatives_only() -> None:
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"a": {}}}
    assert leaned(closed) == opened
    assert leaned({"anyOf": [closed, {"type": "string"}]}) == {"anyOf": [closed, {"type": "string"}]}


def test_an_optional_value_is_written_as_two_types() -> None:
    nullable = {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}], "description": "Who?"}
    assert leaned(nullable) == {"type": ["string", "null"], "maxLength": 5, "description": "Who?"}


def test_choices_with_null_stay_alternatives() -> None:
    nullable = {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}
    assert leaned(nullable) == nullable


def test_unreferenced_definitions_are_dropped() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/Used"}},
        "$defs": {"Used": {"$ref": "#/$defs/Deeper"}, "Deeper": {"type": "string"}, "Unused": {"type": "number"}},
    }
    short = lean(schema)
    assert isinstance(short, dict)
    assert set(short["$defs"]) == {"Used", "Deeper"}


def test_definitions_stay_where_references_are_unusual() -> None:
    schema = {"properties": {"a": {"$ref": "#anchor"}}, "$defs": {"A": {"$anchor": "anchor"}}}
    assert lean(schema) == schema


def test_deep_schemas_are_left_alone_below_a_depth() -> None:
    schema: dict[str, Any] = {"title": "", "type": "string"}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    assert isinstance(lean(schema), dict)


@pytest.mark.parametrize("schema", [None, True, [], "text"])
def test_a_value_that_is_not_a_schema_is_returned_unchanged(schema: object) -> None:
    assert lean(schema) == schema


@examples(150)
@given(SCHEMAS, VALUES)
def test_valid_arguments_stay_valid_under_the_lean_schema(schema: dict[str, Any], value: object) -> None:
    before = copy.deepcopy(schema)
    short = lean(schema)
    assert schema == before
    assert isinstance(short, dict)
    jsonschema.Draft202012Validator.check_schema(short)
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert jsonschema.Draft202012Validator(short).is_valid(value)
