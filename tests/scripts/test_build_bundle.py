"""The bundle for Claude Desktop: built, unpacked and run as Claude Desktop does, and `tools/list` answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import build_bundle, bundle_launcher


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    build_bundle.build(tmp_path / "one.mcpb")
    with zipfile.ZipFile(tmp_path / "one.mcpb") as bundle:
        bundle.extractall(tmp_path / "extension")
    return tmp_path / "extension"


def test_bundle_is_reproducible_and_free_of_leftovers(tmp_path: Path) -> None:
    for name in ("one.mcpb", "two.mcpb"):
        build_bundle.build(tmp_path / name)
    assert (tmp_path / "one.mcpb").read_bytes() == (tmp_path / "two.mcpb").read_bytes()
    names = zipfile.ZipFile(tmp_path / "one.mcpb").namelist()
    assert "src/mcp_workbench/setup/clients/clients.toml" in names and "src/mcp_workbench/py.typed" in names
    assert [name for name in names if "pycache" in name or "server/lib" in name] == []


def test_manifest_names_existing_files(unpacked: Path) -> None:
    manifest = json.loads((unpacked / "manifest.json").read_text())
    assert (unpacked / manifest["server"]["entry_point"]).is_file()
    assert manifest["description"] == "One MCP server in front of many, with two tools instead of hundreds."
    assert [tool["name"] for tool in manifest["tools"]] == ["open_toolbox", "use_tool"]


def answers(unpacked: Path, home: Path, chosen: str) -> list[Any]:
    """What a client gets that starts it as the manifest says, but with this Python."""
    server = json.loads((unpacked / "manifest.json").read_text())["server"]
    command = server["mcp_config"]["args"][-1]
    client = {"name": "claude-ai", "version": "1"}
    use = {"tool": {"toolbox": "desk", "server": "clock", "tool": "now"}, "arguments": {"zone": "UTC"}}
    requests: list[dict[str, Any]] = [
        {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}},
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "use_tool", "arguments": use}},
    ]
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "WORKBENCH_BUNDLE_CONFIG": chosen}
    process = subprocess.Popen(
        [sys.executable, command], cwd=unpacked, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    found = []
    for number, request in enumerate(requests):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
        process.stdin.flush()
        while (answer := json.loads(process.stdout.readline())).get("id") != number:
            pass
        found.append(answer.get("result"))
    process.communicate(timeout=30)
    assert process.returncode == 0
    return found


@pytest.mark.processes
@pytest.mark.parametrize("chosen", ["", "${user_config.configuration}"])
def test_unpacked_and_started_it_serves_the_first_toolbox(unpacked: Path, tmp_path: Path, chosen: str) -> None:
    _, tools, used = answers(unpacked, tmp_path, chosen)
    assert [tool["name"] for tool in tools["tools"]] == ["open_toolbox", "use_tool"]
    assert not used.get("isError") and "UTC" in json.dumps(used)


@pytest.mark.processes
def test_a_configuration_that_was_chosen_is_served(unpacked: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.json"
    servers = {"clock": {"command": "mcp-workbench", "args": ["demo", "clock"]}}
    config.write_text(json.dumps({"mcpServers": servers}))
    _, tools, _ = answers(unpacked, tmp_path, str(config))
    assert "clock:now" in [tool["name"] for tool in tools["tools"]], "a plain file is shown as it is"


def test_launcher_prefers_the_chosen_file_then_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv(bundle_launcher.CHOSEN, "/mine.json")
    assert bundle_launcher.configuration() == "/mine.json" and bundle_launcher.CHOSEN not in os.environ
    assert bundle_launcher.configuration() == bundle_launcher.FIRST_STEPS
    monkeypatch.setattr("mcp_workbench.engine.config.choose.own_file", lambda: "/own.json")
    assert bundle_launcher.configuration() == "/own.json"


def test_the_launcher_adds_the_folders_that_a_terminal_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (".local/bin", ".nvm/versions/node/v18/bin", ".nvm/versions/node/v22/bin"):
        (tmp_path / folder).mkdir(parents=True)
    path = bundle_launcher.usual_path(f"/bin:{tmp_path}/.local/bin").split(":")
    assert path[:2] == ["/bin", f"{tmp_path}/.local/bin"] and path.count(f"{tmp_path}/.local/bin") == 1
    assert path[-2:] == [f"{tmp_path}/.nvm/versions/node/{version}/bin" for version in ("v22", "v18")]
