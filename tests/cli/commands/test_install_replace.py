"""`install --replace`: which servers are removed from a client, and which stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench.setup import client_commands
from mcp_workbench.setup.clients.table import Client
from tests.cli.commands.test_install import SERVER, shell, variables, write
from tests.cli.commands.test_install import claude as claude
from tests.cli.commands.test_install import home as home
from tests.cli.in_process import command, run


def test_replace_removes_servers_that_the_workbench_serves(home: Path) -> None:
    servers = {"clock": SERVER, "other": {"command": "x", "env": {"API_TOKEN": "hunter2hunter2"}}}
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": servers}, indent=2))
    done = shell(home, "install", "kiro", "--replace")
    assert done.status == 0 and "hunter2" not in done.stderr
    assert list(json.loads(path.read_text())["mcpServers"]) == ["other", "workbench"]


@pytest.mark.parametrize("client", ["cursor", "codex", "gemini-cli"])
def test_replace_keeps_servers_that_are_disabled_in_the_configuration(home: Path, client: str) -> None:
    off = {"command": "off", "args": ["${TOKEN}"], "disabled": True}
    boxes = {"desk": {"time": SERVER, "off": off}, "code": {"git": off}}
    toolboxes = {name: {"description": "x", "mcpServers": servers} for name, servers in boxes.items()}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"toolboxes": toolboxes}))
    entries = {"time": SERVER, "off": {"command": "off", "args": ["x"], "disabled": True}}
    cursor = write(home, ".cursor/mcp.json", json.dumps({"mcpServers": entries}))
    codex = write(
        home,
        ".codex/config.toml",
        '[mcp_servers.off]\ncommand = "off"\nenabled = false\n'
        '[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n',
    )
    done = shell(home, "install", client, "--replace")
    assert done.status == 0 and "TOKEN" not in done.stderr, done.stderr
    if client == "cursor":
        assert list(json.loads(cursor.read_text())["mcpServers"]) == ["off", "workbench"]
    elif client == "codex":
        assert "[mcp_servers.off]" in codex.read_text() and "[mcp_servers.time]" not in codex.read_text()


def test_replace_knows_servers_whose_variables_init_has_moved_to_a_file(home: Path) -> None:
    theirs = {"time": {**SERVER, "env": {"API_TOKEN": "sk-abcdefghijklmnop"}}}
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": theirs}))
    ours = {"time": {**SERVER, "envFile": "time.env"}}
    config = write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": ours}))
    write(config.parent, "time.env", "API_TOKEN='sk-another'").chmod(0o600)
    assert shell(home, "install", "kiro", "--replace").status == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["time", "workbench"], "another key, another server"
    write(config.parent, "time.env", "API_TOKEN='sk-abcdefghijklmnop'")
    assert shell(home, "install", "kiro", "--replace").status == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["workbench"]


def test_replace_knows_servers_whose_secrets_or_wrapper_init_has_taken_away(home: Path) -> None:
    config = home / ".config" / "mcp-workbench" / "workbench-config.json"
    ours = {
        "search": {"command": "s", "args": ["--api-key", "${file:api-key}"]},
        "docs": {"url": "https://d.example/mcp?key=${DOCS_URL_KEY:-x}"},
    }
    config.write_text(json.dumps({"mcpServers": ours}))
    write(config.parent, "api-key", "sk-abcdefghijklmnop").chmod(0o600)
    theirs = {
        "search": {"command": "s", "args": ["--api-key", "sk-abcdefghijklmnop"]},
        "docs": {"command": "npx", "args": ["-y", "mcp-remote@latest", "https://d.example/mcp?key=hunter2hunter2"]},
        "longer": {"command": "s", "args": ["--api-key", "sk-abcdefghijklmnop", "--more"]},
        "other": {"url": "https://other.example/mcp"},
    }
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": theirs}, indent=2))
    assert shell(home, "install", "kiro", "--replace").status == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["longer", "other", "workbench"]


def test_replace_keeps_servers_that_the_workbench_cannot_start(home: Path) -> None:
    servers = {
        "clock": SERVER,
        "variable": {"command": "a", "args": ["${NOT_SET}"]},
        "file": {"command": "b", "env": {"T": "${file:missing.txt}"}},
    }
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": servers}))
    secrets = {"variable": {"command": "a", "args": ["abc"]}, "file": {"command": "b", "env": {"T": "x"}}}
    theirs = {"clock": SERVER, **secrets}
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": theirs}))
    done = shell(home, "install", "kiro", "--replace", "--json")
    assert list(json.loads(path.read_text())["mcpServers"]) == [*secrets, "workbench"]
    (result,) = json.loads(done.stdout)
    assert result["removed"] == ["clock"] and list(result["kept"]) == [*secrets]
    assert (
        "warning: `variable` stays in Kiro: the workbench cannot start it" in done.stderr and "NOT_SET" in done.stderr
    )


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_at_a_terminal_replacing_everywhere_asks_once(home: Path, answer: str) -> None:
    before = json.dumps({"mcpServers": {"time": SERVER, "other": {"command": "x"}}})
    paths = [write(home, name, before) for name in (".cursor/mcp.json", ".kiro/settings/mcp.json")]
    write(home, ".gemini/settings.json", "{")
    words = ("install", "--all", "--replace")
    done = command(pytest.MonkeyPatch(), *words, typed=f"{answer}\n", env=variables(home), cwd=home)
    assert done.stderr.count("Change these clients? [y/N]") == 1
    assert "  Cursor      removes time (program not found)\n" in done.stderr and "Gemini CLI" in done.stderr
    is_changed = ["workbench" in path.read_text() for path in paths]
    assert (done.status, is_changed) == ((1, [True] * 2) if answer == "y" else (2, [False] * 2))


def test_yes_and_a_pipe_are_not_asked(home: Path) -> None:
    write(home, ".cursor/mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    words = ("install", "--all", "--replace")
    assert "Change these" not in shell(home, *words, "--dry-run").stderr
    done = command(pytest.MonkeyPatch(), *words, "--yes", typed="", env=variables(home), cwd=home)
    assert done.status == 0 and "Change these" not in done.stderr
    assert shell(home, "undo", "cursor").status == 0
    assert shell(home, *words).status == 0


def test_ctrl_c_on_the_way_says_how_to_go_back(home: Path, claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"mcpServers": {"time": SERVER}}
    claude.write_text(json.dumps(before))
    really = client_commands.run

    def interrupted(client: Client, words: list[str]) -> str:
        if "remove" in words:
            raise KeyboardInterrupt
        return really(client, words)

    monkeypatch.setattr(client_commands, "run", interrupted)
    done = run("install", "claude-code", "--replace", env=variables(home), cwd=home)
    assert (
        done.status == 130
        and "interrupted; mcp-workbench install --undo claude-code restores what was there" in done.stderr
    )
    monkeypatch.undo()
    assert shell(home, "undo", "claude-code").status == 0
    assert json.loads(claude.read_text())["mcpServers"] == before["mcpServers"]


def test_replace_says_which_programs_are_not_found(home: Path) -> None:
    there = write(home, "bin/there", "#!/bin/sh\n")
    there.chmod(0o755)
    servers = {"time": SERVER, "there": {"command": "there"}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": servers}))
    write(home, ".cursor/mcp.json", json.dumps({"mcpServers": servers}))
    done = shell(home, "install", "cursor", "--replace")
    assert "`time` is removed from Cursor, but its program `uvx` is not found here" in done.stderr
    assert "`there` is removed" not in done.stderr and done.status == 0
