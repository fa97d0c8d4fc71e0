"""Clients from npm: `install` is run, and their own `mcp list` shows the workbench, connected where they tell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import Done, run
from tests.support.packages import Unavailable, node_packages

pytestmark = [pytest.mark.node, pytest.mark.network]

PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.166.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
    "copilot": "@github/copilot@1.0.102",
}
LISTS = {
    "claude-code": (["claude", "mcp", "list"], "Connected"),
    "codex": (["codex", "mcp", "list"], "enabled"),
    # Connects only in folders that a person has trusted at its prompt.
    "gemini": (["gemini", "mcp", "list"], "mcp-workbench"),
    "opencode": (["opencode", "mcp", "list"], "connected"),
    "copilot": (["copilot", "mcp", "list"], "local"),
}
# A program on Node, on a machine that is busy, that starts the workbench in turn.
LIST_TIMEOUT = 90


@pytest.fixture(scope="module", params=list(PACKAGES))
def client(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Its name, and the folder of its program."""
    if shutil.which("npm") is None:
        pytest.skip("needs Node with npm")
    try:
        return request.param, node_packages((PACKAGES[request.param],)) / "node_modules" / ".bin"
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_client_lists_the_workbench_and_no_more_after_undo(client: tuple[str, Path], tmp_path: Path) -> None:
    name, programs = client
    config = tmp_path / ".config" / "mcp-workbench" / "workbench-config.json"
    config.parent.mkdir(parents=True)
    clock = {"command": shutil.which("python3"), "args": ["-m", "mcp_workbench", "demo", "clock"]}
    config.write_text(json.dumps({"toolboxes": {"desk": {"description": "Time", "mcpServers": {"clock": clock}}}}))
    folders = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CODEX_HOME", "COPILOT_HOME")
    env = {key: value for key, value in os.environ.items() if key not in folders and not key.startswith("WORKBENCH_")}
    env |= {"HOME": str(tmp_path), "PATH": f"{programs}{os.pathsep}{env['PATH']}"}

    def workbench(*words: str) -> Done:
        return run(*words, env={**dict.fromkeys(folders, ""), **env}, cwd=tmp_path)

    def listed() -> str:
        words, _ = LISTS[name]
        done = subprocess.run(
            words, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIST_TIMEOUT
        )
        return done.stdout + done.stderr

    done = workbench("install", name)
    assert done.status == 0, done.stderr
    shown = listed()
    assert "workbench" in shown and LISTS[name][1] in shown, shown
    again = workbench("install", name)
    assert again.status == 0 and "already has the workbench" in again.stderr
    # opencode adds to its file when it starts, and then there is nothing to bring back by its bytes.
    back = workbench("undo", name) if name != "opencode" else workbench("uninstall", name)
    assert back.status == 0, back.stderr
    assert "mcp-workbench serve" not in listed() and "/mcp-workbench" not in listed()
