"""One server, from a client's words to ours. The golden files have the usual ones, this has the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.setup.clients.dialects import DIALECTS, is_own, translated


@pytest.mark.parametrize(
    ("dialect", "written", "entry"),
    [
        ("standard", {"command": "a", "args": []}, {"command": "a"}),
        ("standard", {"command": "a", "env": {"N": 1, "B": True}}, {"command": "a", "env": {"N": "1", "B": "true"}}),
        ("gemini", {"command": "a", "args": ["%X%", "$Y", "${Z}"]}, {"command": "a", "args": ["${X}", "${Y}", "${Z}"]}),
        ("standard", {"command": "a", "args": ["$Y"]}, {"command": "a", "args": ["$Y"]}),
        ("gemini", {"url": "https://x", "type": "sse"}, {"url": "https://x", "type": "sse"}),
        ("opencode", {"command": ["a", "b"]}, {"command": "a", "args": ["b"]}),
        ("codex", {"command": "a", "startup_timeout_sec": 40.5}, {"command": "a", "startupTimeout": 40.5}),
        ("codex", {"command": "a", "startup_timeout_ms": 40_000}, {"command": "a", "startupTimeout": 40}),
        (
            "standard",
            {"url": "https://x", "auth": {"CLIENT_ID": "me", "CLIENT_SECRET": "${env:S}", "scopes": ["a"]}},
            {"url": "https://x", "oauth": {"clientId": "me", "clientSecret": "${S}", "scopes": ["a"]}},
        ),
        ("vscode", {"command": "a", "cwd": "${workspaceFolder}"}, {"command": "a"}),
        ("codex", {"command": "a", "enabled": False}, {"command": "a", "disabled": True}),
    ],
)
def test_settings_are_translated(dialect: str, written: dict[str, Any], entry: dict[str, Any]) -> None:
    assert translated(written, dialect).entry == entry


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"url": "unix:///tmp/x.sock"}, "`unix:` addresses cannot be reached"),
        ({"url": "https://x", "type": "ws"}, "WebSocket servers cannot be reached"),
        ({"url": "https://x", "headersHelper": "h"}, "`headersHelper` is not carried over"),
        ({"command": "${command:pick}"}, "set the variable `PICK`"),
        ({"command": "a", "envFile": "${workspaceFolder}/.env"}, "`envFile` is not carried over"),
        ({"command": "a", "cwd": "${workspaceFolder}/x"}, "`cwd` is not carried over"),
        ({"command": "a", "cwd": "${workspaceFolder}"}, "`cwd` is not carried over: only the editor knows"),
        ({"command": "a", "url": "https://x"}, "the command is taken, the address is not"),
        ({"command": "./bin/a"}, "`./bin/a` depends on the folder"),
        ({"command": "bin\\\\a.exe"}, "depends on the folder"),
        ({}, "has no command or address"),
    ],
)
def test_settings_that_are_not_carried_over_are_reported(written: dict[str, Any], said: str) -> None:
    assert said in " ".join(translated(written, "vscode").remarks)


@pytest.mark.parametrize("command", ["a", "/bin/a", "~/a", "${HOME}/a", "C:\\\\a.exe", "%HOME%/a", "{env:HOME}/a"])
def test_a_command_that_no_folder_changes_needs_no_remark(command: str) -> None:
    assert translated({"command": command, "cwd": "/x"}, "opencode").remarks == []
    assert translated({"command": command}, "opencode").remarks == []


def test_the_folder_of_a_project_is_that_of_its_configuration() -> None:
    written = {"command": "a", "cwd": "${workspaceFolder}/x", "envFile": "${workspaceFolder}/.env"}
    one = translated(written, "vscode", is_of_project=True)
    assert (one.entry, one.remarks) == ({"command": "a", "cwd": "./x", "envFile": "./.env"}, [])
    assert translated(written, "vscode").entry == {"command": "a"}


def test_equal_problems_are_written_once() -> None:
    assert (
        len(translated({"command": "a", "args": ["${workspaceFolder}", "${workspaceFolder}/b"]}, "vscode").remarks) == 1
    )


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("/opt/bin/mcp-workbench", ["serve"], True),
        ("C:\\bin\\mcp-workbench.exe", [], True),
        ("uvx", ["mcp-workbench@latest", "serve"], True),
        ("python3", ["-m", "mcp_workbench", "serve"], True),
        ("mcp-workbench", ["demo", "clock"], False),
        ("npx", ["-y", "other"], False),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/src/mcp-workbench"], False),
        ("uv", ["--directory", "/src/mcp-workbench", "run", "server.py"], False),
        ("npx", ["-y", "notes", "mcp-workbench"], False),
        ("uvx", ["--from", "/src/mcp-workbench", "mcp-workbench", "serve"], True),
        ("uvx", ["--from", "/src/mcp-workbench", "mcp-workbench"], True),
        ("cmd", ["/c", "mcp-workbench"], True),
        ("env", ["A=b", "/opt/bin/mcp-workbench", "serve"], True),
        ("uvx", ["mcp-workbench", "demo", "clock"], False),
    ],
)
def test_our_own_entry_is_recognised(command: str, args: list[str], expected: bool) -> None:
    assert is_own({"command": command, "args": args}) is expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
members = st.sampled_from(
    [
        *(
            "command",
            "cmd",
            "args",
            "env",
            "environment",
            "envs",
            "env_keys",
            "env_vars",
            "cwd",
            "url",
            "httpUrl",
            "uri",
        ),
        *("headers", "http_headers", "requestOptions", "env_http_headers", "bearer_token_env_var", "apiKey", "oauth"),
        *(
            "auth",
            "type",
            "transport",
            "timeout",
            "startup_timeout_sec",
            "disabled",
            "tools",
            "excludeTools",
            "envFile",
        ),
    ]
)


@given(st.dictionaries(members, values | st.dictionaries(st.just("scopes"), values)), st.sampled_from(list(DIALECTS)))
def test_any_client_content_yields_an_entry_or_a_reason(written: dict[str, Any], dialect: str) -> None:
    one = translated(written, dialect)
    assert one.entry is not None or one.remarks


def test_time_limits_are_in_the_units_of_the_client() -> None:
    """Claude Code counts in milliseconds, however few; for others a large number cannot mean seconds."""
    written = {"command": "x", "timeout": 3000}
    assert (translated(written, "standard-in-milliseconds").entry or {})["timeout"] == 3
    assert (translated(written, "standard").entry or {})["timeout"] == 3000
