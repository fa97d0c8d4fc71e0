"""The JSON Schema, the documentation and the validation say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from mcp_workbench.engine.config.jsonc import Document
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.schema import json_schema
from tests.engine.config.loading import problems_of, toolbox_with
from tests.engine.config.test_problems import FILES, SERVERS, TOOLBOX

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```jsonc?\n(.*?)^```", DOCUMENTATION, re.MULTILINE | re.DOTALL)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

# What a schema cannot say without becoming unreadable; the workbench finds it all the same.
BEYOND_A_SCHEMA = (
    "every server is disabled",
    "has no meaning next to",
    " beside an address",
    " beside `command`",
    "disagree",
    "renamed to",
    "white space",
    "the port",
    "an invalid host",
    "makes no sense",
    "a line break",
    "NUL",
    "once expanded",
    "`${` without",
    "the variable",
    "an editor asks",
    "found `${WORD}`",
    "more than once",
)


@pytest.mark.requirement("config.schema")
def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert "$id" not in json_schema()
    json.dumps(json_schema())


def test_each_caller_gets_a_schema_of_its_own() -> None:
    whole = json_schema()
    json_schema().clear()
    assert json_schema() == whole


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_documentation_loads_and_fits_the_schema(example: str) -> None:
    assert parse(example.encode(), "workbench-config.json", {}).toolboxes
    VALIDATOR.validate(Document(example).value)


def test_documented_problems_are_printed_as_shown() -> None:
    text = """{
  "toolboxes": {
    "dev": {
      "description": "Files",
      "mcpServers": {
        "fs": {
          "comand": "npx",
          "timeout": 90000
        }
      }
    }
  }
}"""
    assert f"```text\n{problems_of(text)}\n```" in DOCUMENTATION


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize(
    "text",
    [
        text
        for text, words in [(text, words) for text, _, _, words in FILES]
        + [(TOOLBOX % server, words) for server, _, words in SERVERS]
        if not any(part in words for part in BEYOND_A_SCHEMA)
    ],
)
def test_refused_configurations_do_not_match_the_schema(text: str) -> None:
    assert not VALIDATOR.is_valid(Document(text).value)


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "args": [""], "env": {"A": 1, "B": True, "C": "${C}"}, "cwd": "."},
        {"url": "${URL}", "headers": {"Authorization": "x"}, "transport": "streamableHttp"},
        {"url": "https://a.b", "timeout": "${T:-3}", "idleTimeout": None, "protocol": "2026-07-28"},
        {"command": "x", "toolFilters": [], "rename": {"a": "b"}, "disabled": False, "autoApprove": ["a"], "oauth": {}},
        {"serverUrl": "https://a.b", "sandboxEnabled": False},
    ],
)
def test_accepted_configurations_match_the_schema(server: dict[str, object]) -> None:
    document = toolbox_with(server)
    parse(json.dumps(document).encode(), "x.json", {"C": "c", "URL": "https://a.b"})
    VALIDATOR.validate(document)
    VALIDATOR.validate({"mcpServers": {"fs": server}, "anything": "else"})


def _properties(schema: object, where: str = "$") -> Iterator[tuple[str, str, dict[str, object]]]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "properties":
                for key, described in value.items():
                    yield where, key, described
                    yield from _properties(described, f"{where}.{key}")
            # What is there only narrows what is explained elsewhere.
            elif name != "allOf":
                yield from _properties(value, f"{where}.{name}")
    elif isinstance(schema, list):
        for index, each in enumerate(schema):
            yield from _properties(each, f"{where}[{index}]")


@pytest.mark.requirement("config.schema")
def test_every_key_of_the_schema_is_explained_there_and_in_the_documentation() -> None:
    found = list(_properties(json_schema()))
    assert len(found) > 40
    for where, key, schema in found:
        assert schema.get("title") and schema.get("description"), f"{where}: {key}"
        assert f"`{key}`" in DOCUMENTATION, f"{key} is not documented"
