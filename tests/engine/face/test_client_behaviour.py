"""Clients are recognised by how they introduce themselves, and what is known of them is one table."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.face.client_behaviour import (
    MAX_CACHED_CLIENTS,
    UNKNOWN_CLIENT,
    Recogniser,
    behaviour_of,
    behaviours,
)
from mcp_workbench.engine.faces import FACES_OF_CLIENTS
from mcp_workbench.setup.clients.table import clients
from scripts.behaviour_docs import START, table
from scripts.write_client_docs import BEHAVIOUR, behaviour_document


def info(name: str) -> bytes:
    return json.dumps({"name": name, "version": "1"}).encode()


@pytest.mark.parametrize(
    ("introduced", "known"),
    [
        ("claude-code", "claude-code"),
        ("codex-mcp-client", "codex"),
        ("qwen-cli-mcp-client-workbench", "qwen-code"),
        ("Visual Studio Code - Insiders", "vscode"),
        ("JetBrains-IU-copilot-intellij", "jetbrains-copilot"),
        ("goose-desktop", "goose"),
        ("claude-ai (via mcp-remote 0.1.29)", "claude-ai"),
        ("mcp-test-client", "health-check"),
        ("Claude-Code", ""),
        ("", ""),
    ],
)
def test_clients_are_recognised_by_their_names(introduced: str, known: str) -> None:
    assert behaviour_of(introduced).name == known


def test_every_row_says_where_it_comes_from_and_how_sure_it_is() -> None:
    for row in behaviours().values():
        assert row.title and row.match and row.source and row.date
        assert row.face in FACES_OF_CLIENTS
        # Which defer by themselves is known of whoever gets the tools as they are.
        assert row.face != "flat" or row.defers in ("always", "some models")
        assert row.longest_name == 0 or row.longest_name >= 32
        assert row.progress_extends is not True or row.call_seconds is not None


def test_clients_that_can_be_installed_into_have_the_same_name_in_both_tables() -> None:
    assert {"claude-code", "codex", "gemini", "copilot", "vscode", "cursor", "opencode", "zed"} <= (
        behaviours().keys() & clients().keys()
    )


@pytest.mark.parametrize("nonsense", [b"{}", b"[]", b"null", b'{"name": 5}', b"{", b'{"name":"\xff"}', b"[" * 100_000])
def test_client_without_a_name_is_unknown(nonsense: bytes) -> None:
    assert Recogniser({}).behaviour(nonsense) is UNKNOWN_CLIENT


def test_the_configuration_comes_before_the_table() -> None:
    recogniser = Recogniser(
        {"codex": {"face": "proxy"}, "my-*": {"face": "flat", "nameLength": None}, "claude-code": {"callSeconds": 9}}
    )
    assert recogniser.behaviour(info("codex-mcp-client")).face == "proxy"
    mine = recogniser.behaviour(info("my-agent"))
    assert (mine.face, mine.longest_name) == ("flat", 0)
    code = recogniser.behaviour(info("claude-code"))
    assert (code.call_seconds, code.instructions_length) == (9, 4096)
    # Views are kept by name: those of clients that the file says something of are others.
    assert len({each.name for each in (mine, code, UNKNOWN_CLIENT, *behaviours().values())}) == 3 + len(behaviours())


def test_any_number_of_introductions_takes_a_bounded_memory() -> None:
    recogniser = Recogniser({})
    for number in range(3 * MAX_CACHED_CLIENTS):
        recogniser.behaviour(info(f"client {number}"))
    recogniser.behaviour(info("x" * 100_000))
    assert len(recogniser._found) <= MAX_CACHED_CLIENTS


@pytest.mark.requirement("project.documentation")
def test_document_matches_the_table() -> None:
    assert BEHAVIOUR.read_text("utf-8") == behaviour_document(), "run python -m scripts.write_client_docs"
    assert table().startswith(START)
    assert all(f"| {row.title} |" in table() for row in behaviours().values())


def test_a_client_is_answered_before_it_gives_up() -> None:
    assert UNKNOWN_CLIENT.patience(with_progress=True) == 55.0
    claude = behaviour_of("claude-code")
    assert claude.patience(with_progress=False) == 295.0 and claude.patience(with_progress=True) is None
    hasty = Recogniser({"hasty": {"callSeconds": 4}}).behaviour(info("hasty"))
    assert hasty.patience(with_progress=False) == 2.0
