from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from mcp_workbench.cli.commands.demo import DEMO_SERVERS
from tests.cli.shell import COMMAND, Done, on_terminal, run
from tests.support.client import RawClient

WALKTHROUGH = """\
MCP Workbench: one MCP server in front of many.
A client, a workbench and four real servers, in a temporary folder.

1. One file groups your servers into toolboxes
   desk  notes, clock  Notes and the clock: the everyday things
   lab   notes, clock  Notes of its own, and a clock that crashes on request

2. A client connects and sees two tools
   → initialize  ready T ms after the start; 4 servers configured, none running
   → tools/list  open_toolbox, use_tool  T ms

3. The agent opens a toolbox; its servers start in parallel
   → open_toolbox desk  7 tools of clock and notes  T ms
     convert_time, now, wait, add_note, delete_note, list_notes, search_notes

4. The agent uses tools; results pass through unchanged
   → use_tool desk/clock/now  {"zone": "UTC"}  T ms
     NOW (UTC)
   → use_tool desk/notes/add_note  {"title": "Train", "text": "at nine"}  T ms
     Added note 4: Train

5. The same server in two toolboxes: two processes that share nothing
   → use_tool desk/notes/search_notes  {"query": "train"}  T ms
     - 4: Train
   → use_tool lab/notes/search_notes  {"query": "train"}  T ms
     No notes.
     (started only now, when it is needed)

6. A server crashes; its call fails at once, the others are unaffected
   → use_tool lab/clock/crash  T ms
     [lab/clock/crash] the server exited with status 70
     last lines of its stderr:
       clock: crashing because it was asked to
   → use_tool lab/notes/list_notes  T ms
     No notes.
     (the server next to it is unaffected)
   → use_tool lab/clock/now  {"zone": "UTC"}  T ms
     NOW (UTC)
     (restarted for this call)

7. The client disconnects, and every process stops
   → close stdin  exit status 0; 4 servers ran, none left  T ms
"""


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.requirement("cli.demo")
def test_the_walkthrough_is_shown_whole_and_leaves_nothing_behind(temporary_folder: Path) -> None:
    status, shown, complaints = run("demo")
    assert (status, complaints) == (0, "")
    walkthrough, _, figures = shown.partition("\nMeasured during this run\n")
    walkthrough = re.sub(r"[\d.e+]+ ms", "T ms", walkthrough)
    walkthrough = re.sub(r"\w+day, \S+ \(UTC\)", "NOW (UTC)", walkthrough)
    assert walkthrough == WALKTHROUGH
    numbers = {line[3:32].strip(): line[32:].split() for line in figures.splitlines()[1:6]}
    assert numbers["tools that the agent sees"] == ["15", "2"]
    assert numbers["servers running at the start"] == ["4", "0"]
    flat, two = (int(number.replace(",", "")) for number in numbers["tokens for them (bytes / 4)"])
    assert two < flat / 4
    assert "\n   mcp-workbench install CLIENT  adds the workbench to a client" in shown
    assert list(temporary_folder.iterdir()) == []


def test_where_the_command_is_not_on_the_path_the_demo_says_where_it_is(
    temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(sys.executable).parent
    assert "not on your PATH" not in run("demo", env={"PATH": f"{own}:/usr/bin:/bin"}).stdout
    shown = run("demo", env={"PATH": "/usr/bin:/bin"}).stdout
    assert f"\n   mcp-workbench is not on your PATH yet; here it is {own / 'mcp-workbench'}\n" in shown


def test_the_walkthrough_is_coloured_on_a_terminal(temporary_folder: Path) -> None:
    status, shown = on_terminal("demo")
    assert status == 0
    assert "\x1b[1mMCP Workbench: one MCP server in front of many.\x1b[0m" in shown


def test_interrupting_the_walkthrough_leaves_nothing_behind(temporary_folder: Path) -> None:
    status, shown = on_terminal("demo", type_when=lambda shown: "4. The agent uses tools" in shown)
    assert status == 130
    assert "Traceback" not in shown
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize("server", DEMO_SERVERS)
async def test_a_demo_server_can_be_had_by_its_name(server: str, tmp_path: Path) -> None:
    async with RawClient.spawn([*COMMAND, "demo", server], cwd=tmp_path) as client:
        welcome = await client.initialize()
        assert welcome["serverInfo"]["name"] == f"demo-{server}"
        assert (await client.request("tools/list"))["tools"]


async def test_arguments_after_a_demo_server_name_are_its_own(tmp_path: Path) -> None:
    async with RawClient.spawn([*COMMAND, "demo", "clock", "--with-crash"], cwd=tmp_path) as client:
        await client.initialize()
        names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
    assert "crash" in names
    status, _, complaints = run("demo", "notes", "--with-crash")
    assert status == 2
    assert "usage: " in complaints


def test_a_demo_server_in_a_configuration(tmp_path: Path) -> None:
    command, *arguments = COMMAND
    entry = {"command": command, "args": [*arguments, "demo", "clock"]}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"clock": entry}}))
    assert run("call", "--config", config, "default", "clock", "wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
