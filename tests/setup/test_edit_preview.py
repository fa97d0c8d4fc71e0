"""What `install` shows before it writes: what changes, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_install import SERVER, home, shell, write

__all__ = ["home"]


def test_secrets_among_arguments_are_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.setup.edit_preview.WIDEST_LINE", 10_000)
    servers = {
        "clock": SERVER,
        "flag": {"command": "x", "args": ["--token", "ghp_hunter2hunter2hunter2"]},
        "docker": {"command": "docker", "args": ["run", "-e", "API_TOKEN=hunter3hunter3", "image"]},
        "remote": {
            "command": "npx",
            "args": ["mcp-remote", "https://x.example.com/?id=hunter5hunter5", "--header", "X-Api-Key: hunter4"],
        },
    }
    # On one line, so that all of it is in the difference.
    write(home, ".cursor/mcp.json", json.dumps({"mcpServers": servers}))
    done = shell(home, "install", "cursor", "--replace", "--dry-run")
    assert done.status == 0 and "API_TOKEN=***" in done.stdout and "hunter" not in done.stdout + done.stderr


@pytest.mark.parametrize("indent", [None, 2])
def test_secrets_anywhere_in_the_file_are_not_shown(home: Path, indent: int | None) -> None:
    ours = {"command": "/old/mcp-workbench", "args": ["serve"], "env": {"X": "value-of-hunter", "PATH": "/usr/bin"}}
    document = {"apiKey": "sk-ant-hunter2hunter2", "mcpServers": {"workbench": ours}, "session": {"a": ["hunter3-x"]}}
    write(home, ".cursor/mcp.json", json.dumps(document, indent=indent))
    done = shell(home, "install", "cursor", "--dry-run")
    assert done.status == 0 and "hunter" not in done.stdout + done.stderr, done.stdout
    assert '"serve", "--config"' in done.stdout


def test_a_preview_of_a_one_line_file_shows_only_the_change(home: Path) -> None:
    document = {"history": ["x" * 100] * 1000, "mcpServers": {"mine": SERVER}}
    write(home, ".cursor/mcp.json", json.dumps(document))
    done = shell(home, "install", "cursor", "--dry-run", "--replace")
    assert done.status == 0 and len(done.stdout) < 2_000
    assert '-  "mine": {…}\n+  "workbench": {\n' in done.stdout
