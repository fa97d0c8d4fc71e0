"""What is taken for a secret, and what stands there instead."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.setup.clients.literal_secrets import without_secrets


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
            {
                "args": [
                    "run",
                    "-e",
                    "GITHUB_TOKEN=ghp_abcdefghijklmnopqrst",
                    "--env=API_KEY=hunter22",
                    "-e",
                    "LEVEL=debug",
                ]
            },
            {
                "args": [
                    "run",
                    "-e",
                    "GITHUB_TOKEN=${MY_SERVER_GITHUB_TOKEN}",
                    "--env=API_KEY=${MY_SERVER_API_KEY}",
                    "-e",
                    "LEVEL=debug",
                ]
            },
            {"MY_SERVER_GITHUB_TOKEN": "ghp_abcdefghijklmnopqrst", "MY_SERVER_API_KEY": "hunter22"},
        ),
        (
            {"command": "env", "args": ["API_TOKEN=hunter2 hunter2", "npx", "srv"]},
            {"command": "env", "args": ["API_TOKEN=${MY_SERVER_API_TOKEN}", "npx", "srv"]},
            {"MY_SERVER_API_TOKEN": "hunter2 hunter2"},
        ),
        (
            {
                "command": "sh",
                "args": ["-c", "SLACK_TOKEN=xoxb-1234567890-abc npx srv --key 'hunter22 x'; KEY=$SECRET_KEY b"],
            },
            {
                "command": "sh",
                "args": [
                    "-c",
                    "SLACK_TOKEN=${MY_SERVER_SLACK_TOKEN} npx srv --key '${MY_SERVER_KEY}'; KEY=$SECRET_KEY b",
                ],
            },
            {"MY_SERVER_SLACK_TOKEN": "xoxb-1234567890-abc", "MY_SERVER_KEY": "hunter22 x"},
        ),
        (
            {
                "args": [
                    "--header",
                    "X-Api-Key: hunter22",
                    "-H",
                    "Authorization:Bearer hunter33",
                    "-H",
                    "Accept: text/plain",
                ]
            },
            {
                "args": [
                    "--header",
                    "X-Api-Key: ${MY_SERVER_X_API_KEY}",
                    "-H",
                    "Authorization:Bearer ${MY_SERVER_AUTHORIZATION}",
                    "-H",
                    "Accept: text/plain",
                ]
            },
            {"MY_SERVER_X_API_KEY": "hunter22", "MY_SERVER_AUTHORIZATION": "hunter33"},
        ),
        (
            {"args": ["https://x.example.com/mcp?team=platform&api_key=hunter22#top"]},
            {"args": ["https://x.example.com/mcp?team=platform&api_key=${MY_SERVER_API_KEY}#top"]},
            {"MY_SERVER_API_KEY": "hunter22"},
        ),
        (
            {"oauth": {"clientId": "me", "clientSecret": "hunter22"}},
            {"oauth": {"clientId": "me", "clientSecret": "${MY_SERVER_CLIENT_SECRET}"}},
            {"MY_SERVER_CLIENT_SECRET": "hunter22"},
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
        {"args": ["-e", "GITHUB_TOKEN", "-e", "API_KEY=${API_KEY}", "-c", 'X="a b" npx \'the "srv"\' it\'s']},
        {"url": "https://x.example.com/mcp"},
    ],
)
def test_values_that_are_not_secret_stay(entry: dict[str, Any]) -> None:
    assert taken(entry) == (entry, {})
