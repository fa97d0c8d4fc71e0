"""What `doctor` says of clients. Their files are in a home of the test's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.load import load
from mcp_workbench.setup import doctor_clients
from mcp_workbench.setup.diagnosis import Examined
from mcp_workbench.setup.install_plan import own_command
from tests.cli.commands.test_init import environment, write
from tests.cli.in_process import live_in


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    live_in(monkeypatch, tmp_path, environment(tmp_path))
    return tmp_path


@pytest.fixture
def subject(home: Path) -> Examined:
    servers = {"time": {"command": "uvx", "args": ["mcp-server-time"]}, "docs": {"url": "https://d.example/mcp"}}
    path = write(home, "own.json", servers)
    return Examined(load(str(path), os.environ), os.environ)


def texts(subject: Examined) -> list[tuple[str, str]]:
    return [(each.severity, each.text) for each in doctor_clients.client_entries(subject)]


def us(config: Path) -> dict[str, Any]:
    program, *words = own_command(str(config))
    return {"command": program, "args": words}


def test_a_machine_where_no_client_has_us_is_told_how(home: Path, subject: Examined) -> None:
    assert texts(subject) == []
    write(home, ".cursor/mcp.json", {})
    (found,) = doctor_clients.client_entries(subject)
    assert found.text == "none of the clients on this machine starts the workbench (Cursor)"
    assert found.hint == "mcp-workbench install cursor, or --all"


def test_a_client_whose_own_command_is_missing_is_not_proposed(home: Path, subject: Examined) -> None:
    write(home, ".claude.json", {})
    (found,) = doctor_clients.client_entries(subject)
    assert found.hint.startswith("put `claude`, the command of Claude Code, on the PATH; then mcp-workbench install")
    write(home, ".cursor/mcp.json", {})
    (found,) = doctor_clients.client_entries(subject)
    assert found.hint == "mcp-workbench install cursor, or --all"


def test_client_that_starts_the_installed_program_is_healthy(home: Path, subject: Examined) -> None:
    write(home, ".cursor/mcp.json", {"workbench": us(home / "own.json"), "other": {"command": "x"}})
    assert texts(subject) == [("note", "these clients start the workbench: Cursor")]


def test_servers_that_clients_start_themselves_are_reported_behind_wrappers_too(home: Path, subject: Examined) -> None:
    wrapped = {"command": "npx", "args": ["-y", "mcp-remote", "https://d.example/mcp"]}
    same = {"command": "uvx", "args": ["mcp-server-time"]}
    write(home, ".cursor/mcp.json", {"w": us(home / "own.json"), "time": same, "docs": wrapped})
    assert ("warning", "Cursor also starts `time`, `docs` itself, beside the workbench") in texts(subject)


def test_disabled_servers_are_not_started_on_either_side(home: Path) -> None:
    off = {"command": "x", "disabled": True}
    time = {"command": "uvx", "args": ["mcp-server-time"]}
    own = write(home, "own.json", {"time": time, "off": off})
    write(home, ".cursor/mcp.json", {"w": us(own), "time": {**time, "disabled": True}, "off": {"command": "x"}})
    found = texts(Examined(load(str(own), os.environ), os.environ))
    assert found == [("note", "these clients start the workbench: Cursor")]


def test_programs_and_files_that_are_gone_are_errors(home: Path, subject: Examined) -> None:
    gone = {"command": "/nowhere/mcp-workbench", "args": ["serve"]}
    write(home, ".cursor/mcp.json", {"workbench": gone})
    other = home / "bin" / "mcp-workbench"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    moved = {"command": "mcp-workbench", "args": ["serve", "--config", "/no/such.json"]}
    write(home, ".kiro/settings/mcp.json", {"bench": moved, "again": us(home / "own.json")})
    found = doctor_clients.client_entries(subject)
    cursor, file, own = home / ".cursor/mcp.json", home / ".kiro/settings/mcp.json", own_command("")[0]
    assert [(each.severity, each.text) for each in found] == [
        ("error", f"Cursor starts `/nowhere/mcp-workbench` (`workbench` in `{cursor}`), which does not exist"),
        ("warning", f"Kiro starts `mcp-workbench` (`bench` in `{file}`); this is `{own}`, another installation"),
        ("error", f"Kiro starts the workbench with `/no/such.json` (`bench` in `{file}`), which does not exist"),
        ("warning", "Kiro starts the workbench 2 times: `bench`, `again`"),
        ("note", "these clients start the workbench: Cursor, Kiro"),
    ]
    assert found[1].hint == "mcp-workbench install kiro --name bench"


def test_a_broken_file_of_a_client_is_reported_and_hides_no_other(home: Path, subject: Examined) -> None:
    write(home, ".cursor/mcp.json", {}).write_text('{"mcpServers": ')
    write(home, ".kiro/settings/mcp.json", {"workbench": us(home / "own.json")})
    found = texts(subject)
    assert found[0][0] == "error" and found[0][1].startswith("Cursor: ") and "hint" not in found[0][1]
    assert (
        doctor_clients.client_entries(subject)[0].hint
        == "repair the file, or move it away: what is broken is not edited"
    )
    assert found[-1] == ("note", "these clients start the workbench: Kiro")


def test_files_of_renamed_and_discontinued_clients_are_reported(home: Path, subject: Examined) -> None:
    write(home, ".codeium/windsurf/mcp_config.json", {})
    assert doctor_clients.stale_files(subject) == [], "it may be all that there is"
    write(home, ".config/devin/mcp_config.json", {})
    write(home, ".aws/amazonq/mcp.json", {})
    renamed, gone = doctor_clients.stale_files(subject)
    assert "is of an older version (Windsurf, before June 2026)" in renamed.text
    assert gone.hint == "mcp-workbench init --from amazon-q takes them over"


def test_on_macos_only_files_changed_by_install_are_read(
    home: Path, subject: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, ".cursor/mcp.json", {"workbench": us(home / "own.json")})
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not any("start the workbench: Cursor" in text for _, text in texts(subject))


def test_without_a_configuration_clients_are_looked_at_all_the_same(home: Path) -> None:
    write(home, ".cursor/mcp.json", {"workbench": us(home / "own.json")})
    assert "does not exist" in texts(Examined(None, {}))[0][1]
    assert json.loads((home / ".cursor/mcp.json").read_text())


def test_folders_in_which_a_client_starts_no_servers_are_noted(home: Path, subject: Examined) -> None:
    write(home, ".gemini/settings.json", {})
    assert not [text for _, text in texts(subject) if "trust" in text], "it does not start the workbench"
    write(home, ".gemini/settings.json", {"workbench": us(home / "own.json")})
    (found,) = [each for each in doctor_clients.client_entries(subject) if "trust" in each.text]
    assert found.severity == "note" and found.text.startswith("Gemini CLI starts MCP servers only in folders")
    assert found.hint == "/permissions in Gemini CLI changes that"
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(home): "DO_NOT_TRUST"}))
    assert ("note", f"you have told Gemini CLI not to trust `{home}`, so it starts no MCP servers there") in texts(
        subject
    )
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(home): "TRUST_FOLDER"}))
    assert not [text for _, text in texts(subject) if "trust" in text]
