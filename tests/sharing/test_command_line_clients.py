"""Command-line clients as people install them: each connects through a front end to the shared workbench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sharing.harness import Shared
from tests.support.packages import Unavailable, node_packages
from tests.support.workbench import scripted_entry, workbench_command, write_config

pytestmark = [pytest.mark.node, pytest.mark.network]
PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "gemini": "@google/gemini-cli@0.61.0",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
}
# They start within a few seconds and ask nobody but us.
PATIENCE = 90
_installed: dict[str, Path] = {}


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """The program of a client, installed once."""

    def find(name: str) -> str:
        try:
            folder = _installed.setdefault(name, node_packages([PACKAGES[name]]))
        except Unavailable as reason:
            pytest.skip(str(reason))
        return str(folder / "node_modules" / ".bin" / name)

    # Before the environment of a test is in force: what is installed is kept for the next run.
    for name in PACKAGES:
        try:
            _installed[name] = node_packages([PACKAGES[name]])
        except Unavailable:
            continue
    return find


class Home:
    """A user who has nothing but one client and one workbench."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.command = workbench_command(config)

    def run(self, *command: str, **variables: str) -> str:
        environment = {**os.environ, "HOME": str(self.folder), **variables}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Home:
    folder = tmp_path / "home"
    folder.mkdir()
    # Where clients keep what they know follows from `HOME`, as for most people.
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    shared.up()
    return Home(folder, write_config(tmp_path, {"box": {"server": scripted_entry()}}))


def test_claude_code(home: Home, shared: Shared, program: Callable[[str], str]) -> None:
    claude = program("claude")
    home.run(claude, "mcp", "add", "workbench", "--", *home.command)
    assert "Connected" in home.run(claude, "mcp", "list")
    assert "joins from" in shared.log


def test_gemini(home: Home, shared: Shared, program: Callable[[str], str]) -> None:
    gemini = program("gemini")
    first, *rest = home.command
    home.run(gemini, "mcp", "add", "--scope", "user", "workbench", first, "--", *rest)
    assert "Connected" in home.run(gemini, "mcp", "list", GEMINI_CLI_TRUST_WORKSPACE="true")
    assert "joins from" in shared.log


def test_opencode(home: Home, shared: Shared, program: Callable[[str], str]) -> None:
    opencode = program("opencode")
    settings = home.folder / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"mcp": {"workbench": {"type": "local", "command": home.command}}}))
    assert "connected" in home.run(opencode, "mcp", "list")
    assert "joins from" in shared.log


def test_codex(home: Home, shared: Shared, program: Callable[[str], str]) -> None:
    """Its list of servers connects to none of them; the server for editors does, and tells what they offer."""
    codex = program("codex")
    # It starts servers with few variables.
    variable = f"XDG_RUNTIME_DIR={os.environ['XDG_RUNTIME_DIR']}"
    home.run(codex, "mcp", "add", "workbench", "--env", variable, "--", *home.command)
    script = (
        "import json, subprocess, sys\n"
        "codex = subprocess.Popen([sys.argv[1], 'app-server'], stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)\n"
        "info = {'clientInfo': {'name': 'test', 'version': '1'}}\n"
        "asked = [{'id': 0, 'method': 'initialize', 'params': info}, {'method': 'initialized'}]\n"
        "asked.append({'id': 1, 'method': 'mcpServerStatus/list', 'params': {}})\n"
        "codex.stdin.write(''.join(json.dumps(each) + '\\n' for each in asked).encode())\n"
        "codex.stdin.flush()\n"
        "for line in codex.stdout:\n"
        "    if json.loads(line).get('id') == 1:\n"
        "        print(line.decode())\n"
        "        break\n"
        "codex.kill()\n"
    )
    said = home.run(sys.executable, "-c", script, codex)
    assert "open_toolbox" in said
    assert "joins from" in shared.log
