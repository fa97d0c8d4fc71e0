"""Tool parameters in headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from mcp_workbench.engine.transport.http.header_parameters import (
    HeaderParameters,
    InvalidAnnotation,
    find_mismatch,
    headers_for,
    read_annotations,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def annotated(name: object, type: object = "string") -> dict[str, Any]:
    return {"type": type, "x-mcp-header": name}


def test_annotations_are_found_along_properties() -> None:
    nested = {**schema(zone=annotated("Zone", "integer")), "description": "where"}
    found = read_annotations(schema(region=annotated("Region"), query={"type": "string"}, place=nested))
    assert found == {("region",): "Region", ("place", "zone"): "Zone"}


@pytest.mark.parametrize("nothing", [None, True, [], "x", {}, schema(), schema(a=True), {"properties": []}])
def test_a_schema_without_annotations_has_none(nothing: object) -> None:
    assert read_annotations(nothing) == {}


def test_data_that_looks_like_an_annotation_is_none() -> None:
    example = {"x-mcp-header": "Region"}
    assert read_annotations(schema(a={"type": "object", "default": example, "enum": [example], "const": example})) == {}
    # A property of that name is a property.
    assert read_annotations(schema(**{"x-mcp-header": {"type": "string"}})) == {}


@pytest.mark.parametrize(
    "bad",
    [
        schema(a=annotated("")),
        schema(a=annotated("with space")),
        schema(a=annotated("with:colon")),
        schema(a=annotated("Ünï")),
        schema(a=annotated("line\nbreak")),
        schema(a=annotated(None)),
        schema(a=annotated(7)),
        schema(a=annotated("A", "number")),
        schema(a=annotated("A", "object")),
        schema(a=annotated("A", "array")),
        schema(a=annotated("A", "null")),
        schema(a=annotated("A", ["string", "null"])),
        schema(a={"x-mcp-header": "A"}),
        schema(a=annotated("Same"), b=annotated("Same")),
        schema(a=annotated("Same"), b=annotated("sAME")),
        annotated("Root"),
        schema(a={"type": "array", "items": annotated("A")}),
        schema(a={"type": "array", "prefixItems": [annotated("A")]}),
        {"oneOf": [schema(a=annotated("A"))]},
        {"if": schema(a=annotated("A"))},
        {"$defs": {"x": schema(a=annotated("A"))}},
        {"patternProperties": {".": annotated("A")}},
        schema(a={"additionalProperties": annotated("A")}),
        schema(a={"not": annotated("A")}),
    ],
)
def test_an_invalid_annotation_rules_the_tool_out(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnnotation):
        read_annotations(bad)


PARAMETERS = {("region",): "Region", ("level",): "Level", ("dry",): "Dry", ("place", "zone"): "Zone"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {"mcp-param-region": "eu"}),
        ({"region": "世界"}, {"mcp-param-region": "=?base64?5LiW55WM?="}),
        ({"region": ""}, {"mcp-param-region": ""}),
        ({"level": 42, "dry": False}, {"mcp-param-level": "42", "mcp-param-dry": "false"}),
        ({"level": -7.0}, {"mcp-param-level": "-7"}),
        ({"place": {"zone": "a"}}, {"mcp-param-zone": "a"}),
        ({"region": None, "place": "nowhere", "other": 1}, {}),
        ({"region": {"not": "primitive"}, "level": 1.5}, {}),
    ],
)
def test_values_become_headers(arguments: dict[str, Any], headers: dict[str, str]) -> None:
    assert headers_for(PARAMETERS, encode(arguments)) == headers
    received = {name.lower(): [value] for name, value in headers.items()}
    assert find_mismatch(PARAMETERS, encode(arguments), received) is None


@pytest.mark.parametrize("arguments", [None, b"[]", b"nonsense", b"[" * 5000])
def test_arguments_that_are_no_object_have_none(arguments: bytes | None) -> None:
    assert headers_for(PARAMETERS, arguments) == {}
    assert find_mismatch(PARAMETERS, arguments, {}) is None


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"mcp-param-region": ["us"]}),
        ({"region": "eu"}, {"mcp-param-region": ["eu", "eu"]}),
        ({"region": "eu"}, {"mcp-param-region": ["=?base64?ZXU?="]}),
        ({}, {"mcp-param-region": ["eu"]}),
        ({"region": None}, {"mcp-param-region": [""]}),
        ({"level": 42}, {"mcp-param-level": ["43"]}),
        ({"level": 42}, {"mcp-param-level": ["42.5"]}),
        ({"level": 42}, {"mcp-param-level": ["4.2e1"]}),
        ({"region": "42"}, {"mcp-param-region": ["42.0"]}),
        ({"dry": True}, {"mcp-param-dry": ["True"]}),
        ({"region": ["eu"]}, {"mcp-param-region": ["eu"]}),
    ],
)
def test_headers_that_do_not_match_are_found(arguments: dict[str, Any], headers: dict[str, list[str]]) -> None:
    assert find_mismatch(PARAMETERS, encode(arguments), headers) is not None


def test_integers_are_compared_as_numbers() -> None:
    assert find_mismatch(PARAMETERS, b'{"level":42}', {"mcp-param-level": ["42.0"]}) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(["properties", "items", "oneOf", "$defs", "x-mcp-header", "type", "a"]), each
            )
        ),
        max_leaves=20,
    )
)
def test_no_schema_makes_it_fail_in_another_way(anything: object) -> None:
    try:
        read_annotations(anything)
    except InvalidAnnotation:
        pass


@pytest.mark.parametrize("beside", [b"1e400", b"1e-400", b'[[{"a":1e999}]]'])
def test_neighbouring_members_do_not_hide_a_parameter(beside: bytes) -> None:
    arguments = b'{"tenant":"b","z":' + beside + b"}"
    parameters: HeaderParameters = {("tenant",): "Tenant"}
    assert headers_for(parameters, arguments) == {"mcp-param-tenant": "b"}
    assert "is missing" in (find_mismatch(parameters, arguments, {}) or "")
    assert find_mismatch(parameters, arguments, {"mcp-param-tenant": ["b"]}) is None


def test_a_parameter_that_cannot_be_read_is_not_taken_for_a_missing_one() -> None:
    arguments = b'{"tenant":1e400}'
    assert headers_for({("tenant",): "Tenant"}, arguments) == {}
    assert "cannot be read" in (find_mismatch({("tenant",): "Tenant"}, arguments, {}) or "")
