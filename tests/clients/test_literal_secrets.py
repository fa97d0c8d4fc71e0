"""What is taken for a secret, and what stands there instead."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.clients.literal_secrets import without_secrets


def taken(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    kept: dict[str, str] = {}

    def keep(variable: str, value: str) -> str:
        kept[variable] = value
        return f"${{{variable}}}"

    return without_secrets("my server", entry, keep), kept


@pytest.mark.parametrize(
    ("entry", "found", "kept"),
    [
        ({"env": {"API_KEY": "abcdef123"}}, {"env": {"API_KEY": "${API_KEY}"}}, {"API_KEY": "abcdef123"}),
        (
            {"env": {"X": "ghp_abcdefghijklmnopqrst"}},
            {"env": {"X": "${X}"}},
            {"X": "ghp_abcdefghijklmnopqrst"},
        ),
        (
            {"args": ["--token=abcdef123", "--port", "8080"]},
            {"args": ["--token=${MY_SERVER_TOKEN}", "--port", "8080"]},
            {"MY_SERVER_TOKEN": "abcdef123"},
        ),
        (
            {"args": ["postgres://ada:pass@db/x"]},
            {"args": ["${MY_SERVER_ARGUMENT}"]},
            {"MY_SERVER_ARGUMENT": "postgres://ada:pass@db/x"},
        ),
        (
            {"headers": {"Authorization": "Bearer abcdef", "Accept": "text/plain"}},
            {"headers": {"Authorization": "Bearer ${MY_SERVER_AUTHORIZATION}", "Accept": "text/plain"}},
            {"MY_SERVER_AUTHORIZATION": "abcdef"},
        ),
    ],
)
def test_secrets_are_taken_out(entry: dict[str, Any], found: dict[str, Any], kept: dict[str, str]) -> None:
    assert taken(entry) == (found, kept)


@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"API_KEY": "${API_KEY}", "KEY_FILE": "/home/ada/key.pem", "LEVEL": "debug", "TOKEN": ""}},
        {"args": ["-y", "@modelcontextprotocol/server-github", "--root", "/srv"]},
        {"url": "https://x.example.com/mcp"},
    ],
)
def test_what_is_no_secret_stays(entry: dict[str, Any]) -> None:
    assert taken(entry) == (entry, {})
