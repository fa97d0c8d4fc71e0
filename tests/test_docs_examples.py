"""Every example in the documents works: configurations load, JSON is JSON, commands run.

A line of a shell example must be of a kind that is known here (`CHECKS`); a new kind needs a way to check it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import Raw

from mcp_workbench.cli.flags import parse
from mcp_workbench.cli.serve import SERVE_FLAGS
from mcp_workbench.cli.usage import COMMANDS, resolved
from mcp_workbench.engine.config.load import parse as parse_config
from mcp_workbench.engine.config.trust import trust
from mcp_workbench.engine.face.identifier import ToolIdentifier, read_use_tool
from mcp_workbench.engine.transport.http.server.endpoint import MCP_PATH
from mcp_workbench.engine.transport.http.server.listening import DEFAULT_HOST, DEFAULT_PORT
from tests.support import documented_requests, fake_keyring
from tests.support.client import RawClient
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


class Example(NamedTuple):
    """A fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def examples(*languages: str) -> list[Example]:
    return [example for document in DOCUMENTS for example in blocks(document) if example.language in languages]


def blocks(document: Path) -> Iterator[Example]:
    content = document.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", content, re.MULTILINE | re.DOTALL):
        yield Example(document, content.count("\n", 0, found.start()) + 1, found[1], found[2])


def commands() -> list[tuple[Example, str]]:
    """Each command of the shell examples, without its comment, with the first example that has it."""
    found: dict[str, Example] = {}
    for example in examples("sh"):
        for written in example.text.splitlines():
            line = written.partition(" #")[0].strip()
            if line and not line.startswith("#"):
                found.setdefault(line, example)
    return [(example, line) for line, example in found.items()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's first configuration, and `mcp-workbench` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "mcp-workbench"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mcp_workbench "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    first = next(example for example in blocks(ROOT / "README.md") if example.language == "jsonc")
    config = tmp_path / "workbench-config.json"
    config.write_text(first.text)
    trust(str(config), config.read_bytes())
    return tmp_path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


# JSON


@pytest.mark.requirement("project.documentation")
@pytest.mark.parametrize("example", examples("json", "jsonc"), ids=str)
def test_an_example_in_json_is_a_configuration_that_loads_or_a_call_that_works(example: Example, folder: Path) -> None:
    if re.search(r'^  "(toolboxes|mcpServers|servers)":', example.text, re.MULTILINE):
        assert parse_config(example.text.encode(), "example.json", {}).toolboxes
        return
    if re.search(r'^  "(context_servers|mcp|amp\.mcpServers)":', example.text, re.MULTILINE):
        # Of another client, whose files are not ours to read as a configuration.
        assert "workbench" in next(iter(json.loads(example.text).values()))
        return
    call = read_use_tool(Raw(example.text.encode()))
    assert isinstance(call.tool, ToolIdentifier)
    named = shlex.join([call.tool.toolbox, call.tool.server, call.tool.tool])
    runs(f"mcp-workbench call {named} --json {shlex.quote(bytes(call.arguments).decode())}", folder)


def test_installed_command_lines_are_valid() -> None:
    started = []
    for example in examples("json"):
        value = json.loads(example.text)
        entry = {**value.get("mcpServers", {}), **value.get("servers", {})}.get("workbench")
        if entry is not None and "url" in entry:
            assert entry["url"] == f"http://{DEFAULT_HOST}:{DEFAULT_PORT}{MCP_PATH}"
        elif entry is not None:
            words = [entry["command"], *entry["args"]]
            started.append(words[[os.path.basename(word) for word in words].index("mcp-workbench") + 1 :])
    assert started
    for words in started:
        assert words[0] == "serve"
        assert parse(words[1:], SERVE_FLAGS, positionals=1).value("config") == "/home/me/workbench-config.json"


# shells


def runs(line: str, folder: Path) -> None:
    done = shell(line, folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "error" not in done.stderr, done.stderr


def is_a_target_of_make(line: str, folder: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{shlex.split(line)[1]}:", makefile, re.MULTILINE), line


def installs_this_package(line: str, folder: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [f"{name}[{extra}]" for name in (project["name"], ".") for extra in project["optional-dependencies"]]
    assert shlex.split(line)[-1] in (project["name"], ".", *extras)


def runs_with_a_keychain(line: str, folder: Path) -> None:
    """Of our own: this machine may have none, and its user's is not for tests."""
    entries = folder / "keys"
    variables = fake_keyring.environment(entries, **{"mcp-workbench__github": "hunter2"})
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())
    runs(f"{exports}echo hunter2 | {line}", folder)


def tells_a_client_to_start_us(line: str, folder: Path) -> None:
    own = line.partition(" -- ")[2]
    assert own, f"{line} starts nothing"
    runs(own.replace("/home/me/", f"{folder}/"), folder)


def sets_a_variable(line: str, folder: Path) -> None:
    assert re.fullmatch(r"export [A-Z_]+=\S+", line)


def is_a_command_line_for_a_server_elsewhere(line: str, folder: Path) -> None:
    command, *rest = resolved(shlex.split(line)[1:])
    assert COMMANDS[command].parse(rest).positionals == ["linear"]


def starts_the_shared_workbench(line: str, folder: Path) -> None:
    runs(line, folder)
    runs("mcp-workbench up --stop", folder)


def is_a_command_line(line: str, folder: Path) -> None:
    command, *rest = resolved(shlex.split(line)[1:])
    COMMANDS[command].parse(rest)


CHECKS: dict[str, Callable[[str, Path], None]] = {
    "mcp-workbench auth login": is_a_command_line_for_a_server_elsewhere,
    "mcp-workbench auth logout": is_a_command_line_for_a_server_elsewhere,
    "mcp-workbench up": starts_the_shared_workbench,
    "mcp-workbench up --restart": starts_the_shared_workbench,
    # What runs on this machine is not ours to have reloaded.
    "mcp-workbench up --reload": is_a_command_line,
    # Nor the browser to open; tests/cli/commands/test_page.py has a workbench of its own.
    "mcp-workbench page": is_a_command_line,
    # It goes on until Ctrl-C.
    "mcp-workbench logs --follow": is_a_command_line,
    # Nor are the clients of this machine ours to change.
    "mcp-workbench init": is_a_command_line,
    "mcp-workbench install": is_a_command_line,
    "mcp-workbench install --remove": is_a_command_line,
    "mcp-workbench install --undo": is_a_command_line,
    # Servers from elsewhere need their programs and the network; tests/cli/commands/test_add.py has its own.
    "mcp-workbench add": is_a_command_line,
    "mcp-workbench remove": is_a_command_line,
    "mcp-workbench secret": runs_with_a_keychain,
    "mcp-workbench auth --encrypt": runs_with_a_keychain,
    # There is no lock yet; tests/cli/commands/test_lock.py has its own servers.
    "mcp-workbench team lock": is_a_command_line,
    # Sandboxes are not to be had everywhere; tests/cli/commands/test_sandbox.py has its own servers.
    "mcp-workbench doctor --sandbox": is_a_command_line,
    # There is no audit yet; tests/cli/commands/test_audit.py makes one.
    "mcp-workbench team audit": is_a_command_line,
    "mcp-workbench": runs,
    "echo": runs,
    "mkdir": runs,
    "python3": runs,
    "make": is_a_target_of_make,
    "pip install": installs_this_package,
    "pipx install": installs_this_package,
    "uv tool install": installs_this_package,
    "claude mcp add": tells_a_client_to_start_us,
    "export": sets_a_variable,
}


@pytest.mark.parametrize(("example", "line"), commands(), ids=lambda value: str(value)[:50])
def test_every_command_of_a_shell_example_works(example: Example, line: str, folder: Path) -> None:
    kinds = [kind for kind in CHECKS if line == kind or line.startswith(f"{kind} ")]
    assert kinds, f"{example}: nobody knows how to check `{line}`"
    CHECKS[max(kinds, key=len)](line, folder)


def test_readme_shows_the_output_of_check(folder: Path) -> None:
    shown = next(example.text for example in blocks(ROOT / "README.md") if example.language == "text")
    done = shell("mcp-workbench check --connect 2>&1", folder)

    def words(text: str) -> list[list[str]]:
        return [re.sub(r"\d+\.\d\d s", "T s", line).split() for line in text.splitlines()]

    assert words(done.stdout) == words(shown)


def test_the_search_of_the_readme_finds_the_tool_that_it_goes_on_to_call(folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Ask your agent\n")[2].partition("\n## ")[0]
    (query,) = re.findall(r'`open_toolbox {"query": "([^"]+)"}`', section)
    assert f'mcp-workbench find "{query}"' in section
    (call,) = documented_requests.blocks(section, "json")
    found = shell(f'mcp-workbench find "{query}"', folder).stdout.splitlines()
    paths = [line.split()[0] for line in found if re.match(r"\w+/\w+/\w+ ", line)]
    assert "/".join(json.loads(call)["tool"].values()) in paths


# the same server in two toolboxes


@pytest.mark.requirement("isolation.toolboxes")
async def test_the_example_of_dev_and_prod_is_answered_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "toolboxes.md").read_text(encoding="utf-8")
    (config,) = documented_requests.blocks(page, "json")
    asked = list(documented_requests.documented(page))
    assert len(asked) > 10
    path = documented_requests.written_config(config, tmp_path)
    async with RawClient.spawn(workbench_command(path), cwd=tmp_path) as client:
        await client.initialize()
        for method, arguments, written in asked:
            said = (await documented_requests.answer(client, method, arguments)).rstrip("\n")
            assert documented_requests.matches(written, said.split("\n")), f"{method} {arguments}\n{said}"


@pytest.mark.requirement("isolation.toolboxes")
async def test_dev_and_prod_in_the_readme_behave_as_described(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("dev and prod\n")[2].partition("\n##")[0]
    (config,) = documented_requests.blocks(section, "jsonc")
    path = documented_requests.written_config(config, tmp_path)
    async with RawClient.spawn(workbench_command(path), cwd=tmp_path) as client:
        await client.initialize()
        shown = {}
        for name in ("dev", "prod"):
            opened = (await client.call_tool("open_toolbox", {"toolbox_name": name}))["structuredContent"]
            shown[name] = [tool["name"] for tool in opened["tools"]]
        told = "Opening `dev` shows {}, {}, {} and {}; opening `prod` shows {}."
        assert told.format(*(f"`{tool}`" for name in ("dev", "prod") for tool in shown[name])) in section.replace(
            "\n", " "
        )
        note = {"title": "Deploy", "text": "on Monday"}
        assert "isError" not in await client.use_tool("dev", "notes", "add_note", note)
        refused = await client.use_tool("prod", "notes", "add_note", note)
        assert refused["isError"] and "excluded" in refused["content"][0]["text"]
        listed = await client.use_tool("prod", "notes", "list_notes", {})
        assert listed["structuredContent"] == {"notes": []}
    assert "Deploy" in (tmp_path / "dev.json").read_text()
    assert not (tmp_path / "prod.json").exists()


# commands in the running text


def mentioned() -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        spans = re.findall(r"`mcp-workbench ([^`]+)`", text.replace("\n", " "))
        found += [(document.name, span.replace("\\|", "|")) for span in spans]
    return found


@pytest.mark.parametrize(("document", "span"), mentioned())
def test_commands_that_the_text_mentions_exist_with_their_options(document: str, span: str) -> None:
    first = span.split()[0]
    if first in ("COMMAND", "help"):
        return
    first, *words = ["serve", *span.split()] if first.startswith("-") else resolved(span.split())
    assert first in COMMANDS, f"{document}: there is no command `{first}`"
    known = {flag.name for flag in COMMANDS[first].flags} | {"help"}
    own = re.split(r"[;|]", " ".join(words))[0]
    options = re.findall(r"(?<= )--([a-z-]+)", f" {own}")
    unknown = [option for option in options if option not in known] if first != "demo" else []
    assert not unknown, f"{document}: `{first}` has no option {unknown}"
