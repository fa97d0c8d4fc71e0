"""`install` and variables: those that a client keeps back, and secrets that belong on no command line."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands.test_install import CLAUDE, SERVER, variables, write
from tests.cli.commands.test_install import home as home
from tests.cli.in_process import command
from tests.cli.shell import Done

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def shell(home: Path, *words: object, **env: str) -> Done:
    return command(pytest.MonkeyPatch(), *words, env={**variables(home), **env}, cwd=home)


def test_variables_that_a_client_keeps_back_are_named(home: Path) -> None:
    config = home / ".config" / "mcp-workbench" / "workbench-config.json"
    servers = {"a": {"command": "a", "env": {"T": "${API_TOKEN}", "L": "${LEVEL}", "D": "${OTHER:-x}", "H": "${HOME}"}}}
    config.write_text(json.dumps({"mcpServers": servers}))
    assert "Codex does not pass on `API_TOKEN`, `LEVEL`, which" in shell(home, "install", "codex").stderr
    assert "Gemini CLI does not pass on `API_TOKEN`, which" in shell(home, "install", "gemini").stderr
    assert "does not pass on" not in shell(home, "install", "kiro").stderr


def test_variables_that_are_set_are_passed_on_by_name(home: Path) -> None:
    servers = {"a": {"command": "a", "env": {"T": "${API_TOKEN}", "O": "${OTHER_TOKEN}", "L": "${LEVEL}"}}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": servers}))
    done = shell(home, "install", "codex", API_TOKEN=TOKEN, LEVEL="3")
    assert "Codex does not pass on `OTHER_TOKEN`, which" in done.stderr
    path = home / ".codex" / "config.toml"
    assert tomllib.loads(path.read_text())["mcp_servers"]["workbench"]["env_vars"] == ["API_TOKEN", "LEVEL"]
    path.write_text(path.read_text().replace('"API_TOKEN", "LEVEL"', '"MINE", "LEVEL"'))
    assert shell(home, "install", "codex", OTHER_TOKEN=TOKEN, LEVEL="3").status == 0
    assert tomllib.loads(path.read_text())["mcp_servers"]["workbench"]["env_vars"] == ["MINE", "LEVEL", "OTHER_TOKEN"]
    assert shell(home, "install", "gemini", API_TOKEN=TOKEN, LEVEL="3").status == 0
    entry = json.loads((home / ".gemini" / "settings.json").read_text())["mcpServers"]["workbench"]
    assert entry["env"] == {"API_TOKEN": "${API_TOKEN}"}
    assert TOKEN not in path.read_text()


def test_variables_of_an_env_file_need_not_be_passed_on(home: Path) -> None:
    config = write(
        home,
        ".config/mcp-workbench/workbench-config.json",
        json.dumps({"mcpServers": {"a": {"command": "a", "args": ["${A_KEY}", "${B_KEY}"], "envFile": "a.env"}}})
        + "// not ${THIS}\n",
    )
    (config.parent / "a.env").write_text("A_KEY=x\n")
    assert "Codex does not pass on `B_KEY`, which" in shell(home, "install", "codex").stderr
    (config.parent / "a.env").write_bytes(b"\xff")
    assert shell(home, "undo", "codex").status == 0
    assert "Codex does not pass on `A_KEY`, `B_KEY`, which" in shell(home, "install", "codex").stderr


def test_a_reference_is_no_secret(home: Path) -> None:
    """Claude Code fills in variables itself; what has none is not warned of."""
    write(home, "bin/claude", CLAUDE.format(python=sys.executable)).chmod(0o755)
    server = SERVER | {"env": {"API_TOKEN": "${API_TOKEN}"}}
    write(home, ".claude.json", json.dumps({"mcpServers": {"time": server}}))
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": {"time": server}}))
    done = shell(home, "install", "claude-code", "--replace", API_TOKEN=TOKEN)
    assert done.status == 0 and "claude mcp remove -s user time" in done.stderr and "command line" not in done.stderr


def test_secrets_that_undo_has_to_show_are_warned_of_before(home: Path) -> None:
    """Claude Code owns its file, and its command takes servers as an argument alone."""
    write(home, "bin/claude", CLAUDE.format(python=sys.executable)).chmod(0o755)
    remote = {"url": "https://x.example/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}}
    servers = {"time": SERVER, "remote": remote, "mine": {"command": "mine"}, "later": {"command": "later"}}
    path = write(home, ".claude.json", json.dumps({"mcpServers": servers}))
    config = {"mcpServers": {name: servers[name] for name in ("time", "remote", "later")}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps(config))
    done = shell(home, "install", "claude-code", "--replace")
    said = "the keys of `remote` are on the command line of `claude` for a moment"
    assert done.status == 0 and f"warning: if you undo this, {said}" in done.stderr and TOKEN not in done.stderr
    assert list(json.loads(path.read_text())["mcpServers"]) == ["mine", "workbench"]
    back = shell(home, "undo", "claude-code")
    assert back.status == 0 and said in back.stderr and TOKEN not in back.stderr
    after = json.loads(path.read_text())["mcpServers"]
    assert after == servers and list(after) == ["mine", "time", "remote", "later"]
    ours = {"command": "/old/mcp-workbench", "args": ["serve"], "env": {"API_TOKEN": TOKEN}}
    path.write_text(json.dumps({"mcpServers": {"workbench": ours}}))
    done = shell(home, "install", "claude-code")
    assert done.status == 0 and "warning: now, the keys of `workbench` are on the command line" in done.stderr
    assert "if you undo this" not in done.stderr


def test_customised_settings_stay(home: Path) -> None:
    path = home / ".copilot" / "mcp-config.json"
    assert shell(home, "install", "copilot").status == 0
    path.write_text(path.read_text().replace('"*"', '"find_tool"'))
    assert "already has the workbench" in shell(home, "install", "copilot").stderr
    assert json.loads(path.read_text())["mcpServers"]["workbench"]["tools"] == ["find_tool"]
