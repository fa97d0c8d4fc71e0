"""What others wrote is text in our file, however it is put together; only what its user typed is a reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.expand import Surroundings, expand
from mcp_workbench.setup.clients.dialects import DIALECTS, translated
from mcp_workbench.setup.clients.foreign_text import Verbatim, joined, literal, pieces_of, variable_name
from mcp_workbench.setup.clients.literal_secrets import without_secrets
from mcp_workbench.setup.clients.remote_wrappers import unwrapped
from mcp_workbench.setup.clients.server_json import described
from tests.setup.clients.test_server_json import read

ENVIRON = {"MINE": "value of mine"}
# What references are made of, in pieces that only together are one.
pieces = st.lists(
    st.sampled_from(["$", "{", "}", "${", "{a}", "{b}", "cmd:", "file:/x", ":-", "env:", "A", "MINE", "%"])
)
texts = pieces.map("".join)


def references(entry: object) -> list[str]:
    """Everything in an entry that would be fetched or looked up."""
    if isinstance(entry, dict):
        return [found for each in entry.values() for found in references(each)]
    if isinstance(entry, list):
        return [found for each in entry for found in references(each)]
    if not isinstance(entry, str):
        return []
    expansion = expand(entry, Surroundings(ENVIRON, has_env_file=True))
    assert not expansion.faults, (entry, expansion.faults)
    fetched = [part.written for part in expansion.parts if not isinstance(part, str)]
    return [text for text in fetched if text != "${DOLLAR:-$}"] + [f"${{{name}}}" for name, _ in expansion.brought_in]


@given(texts, texts, texts)
def test_text_is_text_again_and_a_reference_in_the_middle_is_looked_up(before: str, between: str, after: str) -> None:
    mine = Verbatim("${MINE}")
    ours = joined([before, between, mine, after, *pieces_of(f"{between}${{MINE}}")])
    assert expand(literal(before), ENVIRON).text == before
    if "${" not in between:
        assert expand(ours, ENVIRON).text == f"{before}{between}value of mine{after}{between}value of mine"


@given(texts, texts, texts)
def test_no_server_json_brings_a_reference_that_its_user_did_not_type(template: str, fixed: str, answer: str) -> None:
    variables = {"a": {"value": fixed}, "b": {}}
    argument = {"value": template, "variables": variables}
    package = {
        "registryType": "npm",
        "identifier": fixed,
        "version": template,
        "packageArguments": [{"type": "named", "name": template, **argument}, {"type": "positional", **argument}],
        "environmentVariables": [{"name": "E", **argument}],
    }
    remote = {"type": "http", "url": template, "variables": variables, "headers": [{"name": "H", **argument}]}
    for way in read(packages=[package], remotes=[remote]).ways:
        assert references(way.entry({"b": literal(answer)})) == []
        assert set(references(way.entry({"b": "x${MINE}y"}))) <= {"${MINE}"}


def test_a_dollar_and_a_brace_of_different_hands_make_no_reference() -> None:
    header = {"name": "X", "value": "{a}{cmd:touch /tmp/x}", "variables": {"a": {"value": "$"}}}
    (way,) = read(remotes=[{"type": "streamable-http", "url": "https://x.example/mcp", "headers": [header]}]).ways
    assert way.entry({})["headers"] == {"X": "${DOLLAR:-$}{cmd:touch /tmp/x}"}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(text=texts)
def test_no_client_file_yields_references_that_only_we_resolve(dialect: str, text: str) -> None:
    program = {"command": text or "x", "args": [text], "env": {"E": text}, "env_keys": [text], "tools": [text]}
    address = {
        "url": f"https://{text}",
        "headers": {"H": text},
        "env_http_headers": {"V": text},
        "bearer_token_env_var": text,
        "oauth": {"clientId": text, "clientSecret": text, "scopes": [text]},
    }
    for written in (program, address):
        entry = translated(written, dialect).entry
        found = [one for one in references(entry) if one.startswith(("${cmd:", "${keyring:", "${file:"))]
        # opencode reads files in its own way of writing.
        assert not found or (dialect == "opencode" and {one[:7] for one in found} == {"${file:"})


def test_references_that_only_we_resolve_are_kept_as_text_and_reported() -> None:
    one = translated({"command": "x", "args": ["${cmd:id}", "${TOKEN:-${OTHER}}", "${unknown:x}"]}, "standard")
    assert one.entry == {
        "command": "x",
        "args": ["${DOLLAR:-$}{cmd:id}", "${TOKEN:-${OTHER}}", "${DOLLAR:-$}{unknown:x}"],
    }
    assert one.remarks == ["`${cmd:…}` means nothing to the client, so it is kept as text"]


def test_names_of_variables_that_are_none_bring_no_reference() -> None:
    evil = "A} ${cmd:id"
    address = {"url": "https://x", "bearer_token_env_var": evil, "env_http_headers": {"H": evil}}
    one = translated(address, "codex")
    assert one.entry == {"url": "https://x"} and "no variable is called" in " ".join(one.remarks)
    one = translated({"command": "x", "env_keys": [evil]}, "goose")
    assert one.entry == {"command": "x"} and "no variable can be called so" in " ".join(one.remarks)
    kept: list[str] = []

    def keep(variable: str, value: str) -> str:
        kept.append(variable)
        return f"${{{variable}}}"

    entry: dict[str, Any] = {"command": "x", "env": {f"TOKEN{evil}": "hunter2hunter2", "2FA_TOKEN": "hunter2hunter2"}}
    assert set(references(without_secrets("x", entry, keep))) == {"${TOKENA_CMD_ID}", "${_2FA_TOKEN}"}
    assert kept == ["TOKENA_CMD_ID", "_2FA_TOKEN"]


def test_a_header_of_a_wrapper_and_its_variable_make_no_reference_together() -> None:
    words = ["mcp-remote", "https://x/mcp", "--header", "X: $${A} ${B} ${MINE}"]
    entry, _ = unwrapped({"command": "npx", "args": words, "env": {"A": "{cmd:id}", "B": "${MINE}"}})
    assert entry["headers"] == {"X": "${DOLLAR:-$}{cmd:id} ${MINE} ${MINE}"}


def test_an_opening_without_its_end_is_no_reference() -> None:
    assert pieces_of("a${cmd:x") == ["a${cmd:x"]
    assert pieces_of("${A:-{x}}b") == [Verbatim("${A:-{x}}"), "b"]
    assert joined([*pieces_of("a${cmd:"), "touch x}"]) == "a${DOLLAR:-$}{cmd:touch x}"
    assert [variable_name(each) for each in ("x-api-key", "2FA", "--", "é")] == ["X_API_KEY", "_2FA", "", ""]


def test_a_server_json_with_a_long_row_of_braces_is_read_at_once() -> None:
    assert described(b'{"remotes": [{"type": "http", "url": "%b"}]}' % (b"{a" * 100_000), "x").ways
