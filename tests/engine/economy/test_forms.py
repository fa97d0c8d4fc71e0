from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.economy.forms import DESCRIBED, Form, show
from mcp_workbench.engine.economy.tool import Tool, parts
from tests.engine.economy.tools import schema, tool

WRITE = tool(
    "write",
    "Writes a file. " + "It is careful. " * 40,
    inputSchema={**schema("path", "content"), "$schema": "http://json-schema.org/draft-07/schema#"},
)


def test_each_form_is_shorter_than_the_one_before() -> None:
    lengths = [len(show(WRITE, form).text) for form in Form if form is not Form.NAMES]
    assert lengths == sorted(lengths, reverse=True)


def test_every_form_names_itself() -> None:
    assert set(DESCRIBED) == set(Form)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form.SENTENCE, "write(path: string, content?: string) - Writes a file."),
        (Form.ARGUMENTS, "write(path, content?)"),
        (Form.NAMES, "write - Writes a file."),
    ],
)
def test_the_short_forms(form: Form, text: str) -> None:
    assert show(WRITE, form).text == text


def test_the_full_form_keeps_the_schema_byte_for_byte() -> None:
    raw = b'{"name":"x","inputSchema":{ "type" : "object", "big": 12345678901234567890, "n": 1.0 }}'
    assert (
        '{ "type" : "object", "big": 12345678901234567890, "n": 1.0 }'
        in show(Tool("x", "t", "s", "x", raw), Form.FULL).text
    )


def test_the_lean_form_is_still_a_definition() -> None:
    made = json.loads(show(WRITE, Form.LEAN).text)
    assert made["inputSchema"] == schema("path", "content")
    assert made["description"].startswith("Writes a file.")


def test_a_tool_without_description_has_no_dash() -> None:
    assert show(tool("ping"), Form.SENTENCE).text == "ping()"


def test_descriptions_cannot_break_lines() -> None:
    wild = tool("wild", "One\n\ntwo\r\n\tthree")
    assert "\n" not in show(wild, Form.TEXT).text


@pytest.mark.parametrize(
    "definition",
    [b"", b"null", b"[]", b'{"name":', b'{"description":5,"inputSchema":[]}', b'{"inputSchema":null}', b'"text"'],
)
def test_definitions_of_any_quality_can_be_shown(definition: bytes) -> None:
    odd = Tool("p", "t", "s", "odd", definition)
    for form in Form:
        assert "odd" in show(odd, form).text


def test_a_part_of_the_wrong_type_does_not_take_the_others_along() -> None:
    known = parts(b'{"description":"Good.","title":7,"inputSchema":{"type":"object"}}')
    assert (known.title, known.description) == ("", "Good.")


def test_full_definition_has_the_servers_bytes() -> None:
    told = {"destructiveHint": True, "title": "Delete"}
    shown = show(tool("delete", annotations=told, outputSchema={"type": "object"}, own=[1]), Form.FULL)
    definition = json.loads(shown.text)
    assert definition["annotations"] == told
    assert definition["outputSchema"] == {"type": "object"} and definition["own"] == [1]
    assert json.loads(shown.structured()) == {**definition, "signature": "()"}
