"""Clients from npm, in a home that has servers already: `install --replace`, their own `mcp list`, a session in which
their model, which is scripted here, calls a tool through the workbench, `undo` and `uninstall`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcp_workbench.engine.face.client_behaviour import behaviours
from mcp_workbench.setup.clients.documents import servers_in
from mcp_workbench.setup.clients.table import find
from tests.cli.shell import Done, run
from tests.real_clients.scripted_model import ScriptedModel, scripted_model
from tests.support.packages import Unavailable, node_packages

pytestmark = [pytest.mark.node, pytest.mark.network]

# A program on Node, on a machine that is busy, that starts the workbench in turn.
TIMEOUT = 100
TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
CLOCK = [sys.executable, "-m", "mcp_workbench", "demo", "clock"]
# What a model calls in the face `flat`, and in `proxy`.
AS_IT_IS = "desk__clock__convert_time"
BY_ONE_OF_TWO = "use_tool"


class Published(NamedTuple):
    """One client: how it is started, and what it has before the workbench comes."""

    package: str
    file: str
    # The file, with the same server that the workbench has, and one of the user's own.
    before: str
    mcp_list: str
    # What its list says of a server that it has reached, or that it knows of, where it does not try.
    listed: str
    # What its model calls, with the client's own prefix: tools as they are where it defers them, else one of the two.
    called: str
    # Words and variables for one question to a model at an address.
    session: Callable[[str], tuple[list[str], dict[str, str]]]


def _standard(**members: Any) -> str:
    clock = {"command": CLOCK[0], "args": CLOCK[1:], **members}
    return json.dumps({"mcpServers": {"clock": clock, "mine": {"command": "true", "args": []}}}, indent=4)


def _claude(address: str) -> tuple[list[str], dict[str, str]]:
    own = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return ["claude", "-p", "hello", "--allowedTools", "mcp__workbench"], own


def _codex(address: str) -> tuple[list[str], dict[str, str]]:
    provider = f'{{name="s",base_url="{address}/v1",wire_api="responses",env_key="MODEL_KEY"}}'
    chosen = ["-c", 'model_provider="s"', "-c", f"model_providers.s={provider}", "-m", "gpt-5.5"]
    return ["codex", "exec", "--skip-git-repo-check", *chosen, "hello"], {"MODEL_KEY": "none"}


def _gemini(address: str) -> tuple[list[str], dict[str, str]]:
    own = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": address}
    return ["gemini", "-p", "hello", "--yolo", "-m", "gemini-2.5-flash"], own


def _opencode(address: str) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{address}/v1", "apiKey": "none"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "s",
        "options": options,
        "models": {"s": {"tool_call": True}},
    }
    own = {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"s": provider}, "small_model": "s/s"})}
    return ["opencode", "run", "-m", "s/s", "hello"], own


def _copilot(address: str) -> tuple[list[str], dict[str, str]]:
    own = {"COPILOT_PROVIDER_BASE_URL": f"{address}/v1", "COPILOT_MODEL": "s", "COPILOT_OFFLINE": "true"}
    return ["copilot", "-p", "hello", "--allow-all-tools"], own


PUBLISHED = {
    "claude-code": Published(
        "@anthropic-ai/claude-code@2.1.325",
        ".claude.json",
        # Brought back by its own command alone, which takes the token on its command line.
        _standard(type="stdio", env={"TIME_TOKEN": TOKEN}),
        "claude mcp list",
        "Connected",
        f"mcp__workbench__{AS_IT_IS}",
        _claude,
    ),
    "codex": Published(
        "@openai/codex@0.166.0",
        ".codex/config.toml",
        f"# mine\nmodel = 'x' # this too\n\n[mcp_servers.clock]\ncommand = '{CLOCK[0]}'\nargs = {CLOCK[1:]}\n"
        "env_vars = ['TIME_TOKEN']\n\n[mcp_servers.mine]\ncommand = 'true'\n",
        "codex mcp list",
        "enabled",
        f"mcp__workbench__{AS_IT_IS}",
        _codex,
    ),
    "gemini": Published(
        "@google/gemini-cli@0.61.0",
        ".gemini/settings.json",
        '{ // mine\n  "security": { "auth": { "selectedType": "gemini-api-key" } },'
        + _standard(env={"TIME_TOKEN": "$TIME_TOKEN"})[1:],
        "gemini mcp list",
        "Connected",
        f"mcp_workbench_{BY_ONE_OF_TWO}",
        _gemini,
    ),
    "opencode": Published(
        "opencode-ai@1.18.33",
        ".config/opencode/opencode.jsonc",
        '{\n  // mine\n  "mcp": '
        + json.dumps(
            {
                "clock": {"type": "local", "command": CLOCK, "environment": {"TIME_TOKEN": "{env:TIME_TOKEN}"}},
                "mine": {"type": "local", "command": ["true"]},
            }
        )
        + "}",
        "opencode mcp list",
        "connected",
        f"workbench_{BY_ONE_OF_TWO}",
        _opencode,
    ),
    "copilot": Published(
        "@github/copilot@1.0.102",
        ".copilot/mcp-config.json",
        _standard(type="local", tools=["*"], env={"TIME_TOKEN": "${TIME_TOKEN}"}),
        "copilot mcp list",
        "local",
        f"workbench-{BY_ONE_OF_TWO}",
        _copilot,
    ),
}


def _qwen(address: str) -> tuple[list[str], dict[str, str]]:
    own = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_MODEL": "s"}
    return ["qwen", "-p", "hello", "--yolo"], own


# It finds tools with a search of its own, so what its model calls is not scripted.
QWEN = Published(
    "@qwen-code/qwen-code@0.24.4",
    ".qwen/settings.json",
    '{ // mine\n "security": {"auth": {"selectedType": "openai"}},' + _standard(env={"TIME_TOKEN": "$TIME_TOKEN"})[1:],
    "qwen mcp list",
    "Connected",
    "",
    _qwen,
)


class Home:
    """A home with a configuration, a client's file and the client's program."""

    def __init__(self, name: str, client: Published, folder: Path, programs: Path) -> None:
        self.name, self.client, self.folder = name, client, folder
        self.file = folder / self.client.file
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.client.before)
        config = folder / ".config" / "mcp-workbench" / "workbench-config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        # Without the variable it cannot be started: a client that keeps it back would have no answer.
        clock = {"command": CLOCK[0], "args": CLOCK[1:], "env": {"TIME_TOKEN": "${TIME_TOKEN}"}}
        boxes = {"desk": {"description": "Times", "mcpServers": {"clock": clock}}}
        self.config = config
        config.write_text(json.dumps({"face": "auto", "toolboxes": boxes}))
        folders = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CODEX_HOME", "COPILOT_HOME")
        env = {key: value for key, value in os.environ.items() if not key.startswith("WORKBENCH_")}
        self.env = {key: value for key, value in env.items() if key not in folders}
        self.env |= {"HOME": str(folder), "PATH": f"{programs}{os.pathsep}{env['PATH']}", "TIME_TOKEN": TOKEN}
        # Else it connects to nothing in folders that nobody has trusted at its prompt.
        self.env["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
        self._empty = dict.fromkeys(folders, "")
        # A folder of its own to work in: some clients look through all of it.
        self.project = folder / "project"
        self.project.mkdir()

    def workbench(self, *words: str) -> Done:
        done = run(*words, env={**self._empty, **self.env}, cwd=self.project)
        assert done.status == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done

    def client_runs(self, words: list[str], env: dict[str, str]) -> str:
        done = subprocess.run(
            words,
            env={**self.env, **env},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def choose(self, face: str) -> None:
        """Write the face into the configuration."""
        self.config.write_text(json.dumps({**json.loads(self.config.read_text()), "face": face}))

    def has_its_servers(self) -> bool:
        """Whether the client has what it had before the workbench came, and not the workbench."""
        found = next(each for each in find(self.name).file if each.scope == "user")
        before, now = (servers_in(text.encode(), found, "x") for text in (self.client.before, self.file.read_text()))
        return now == before

    def ask(self) -> ScriptedModel:
        with scripted_model() as model:
            self.client_runs(*self.client.session(model.address))
        return model


def home_with(name: str, client: Published, folder: Path) -> Home:
    try:
        programs = node_packages((client.package,)) / "node_modules" / ".bin"
    except Unavailable as reason:
        pytest.skip(str(reason))
    return Home(name, client, folder, programs)


@pytest.fixture(params=list(PUBLISHED))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return home_with(request.param, PUBLISHED[request.param], tmp_path)


def test_the_workbench_takes_the_place_of_a_server_and_its_tools_are_called(home: Home) -> None:
    name, client = home.name, home.client
    # What the tables say was run is what is run here.
    version = client.package.rpartition("@")[2]
    assert version in find(name).source and version in behaviours()[name].source
    home.workbench("install", name, "--replace")
    assert "demo" not in home.file.read_text() and "mine" in home.file.read_text()
    undone = home.workbench("undo", name)
    if name == "claude-code":
        # Its file is its own: what is brought back are the servers.
        assert json.loads(home.file.read_text())["mcpServers"] == json.loads(client.before)["mcpServers"]
        assert "the keys of `clock` are on the command line of `claude` for a moment" in undone.stderr
    else:
        assert home.file.read_text() == client.before
    home.workbench("install", name, "--replace")
    assert "already has the workbench" in home.workbench("install", name, "--replace").stderr
    shown = home.client_runs(client.mcp_list.split(), {})
    assert "workbench" in shown and client.listed in shown and "demo" not in shown, shown
    model = home.ask()
    assert model.called == client.called and model.was_answered, model.asked[-1]
    assert any("open_toolbox" in tool for tool in model.declared) is model.called.endswith(BY_ONE_OF_TWO)
    # Whatever the client has written meanwhile.
    home.workbench("undo", name)
    assert home.has_its_servers()
    home.workbench("install", name, "--replace")
    home.workbench("uninstall", name)
    assert home.has_its_servers()


@pytest.mark.parametrize("command", ["undo", "uninstall"])
def test_undo_keeps_members_that_the_client_wrote_at_its_first_run(tmp_path: Path, command: str) -> None:
    home = home_with("qwen-code", QWEN, tmp_path)
    home.workbench("install", "qwen-code", "--replace")
    installed = home.file.read_text()
    home.ask()
    assert home.file.read_text() != installed and '"$version"' in home.file.read_text()
    home.workbench(command, "qwen-code")
    assert home.has_its_servers() and '"$version"' in home.file.read_text() and "// mine" in home.file.read_text()


def test_in_the_face_that_init_writes_claude_code_declares_two_tools(tmp_path: Path) -> None:
    home = home_with("claude-code", PUBLISHED["claude-code"], tmp_path)
    home.choose("proxy")
    home.workbench("install", "claude-code", "--replace")
    model = home.ask()
    assert sorted(model.declared) == ["mcp__workbench__open_toolbox", "mcp__workbench__use_tool"]
    assert model.called == "mcp__workbench__use_tool" and model.was_answered
