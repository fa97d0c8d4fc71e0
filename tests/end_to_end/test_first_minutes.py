"""From nothing to a tool call: the commands, keystrokes and requests that it takes are counted, and must not grow.

Seconds are not asserted, because they are the machine's; `make demo` prints its own.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cli.commands.test_init import CLOCK, config_of, environment, write
from tests.cli.shell import on_terminal
from tests.support.client import RawClient

pytestmark = pytest.mark.processes

MAX_COMMANDS = 2
# What is typed, with Enter: the commands, and the answers to questions.
MAX_KEYSTROKES = 61


def contains(question: str, shown: str) -> bool:
    return question in shown


async def test_two_commands_and_three_answers_lead_to_the_first_call(tmp_path: Path) -> None:
    notes = {"command": sys.executable, "args": ["-m", "mcp_workbench", "demo", "notes"]}
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK})
    write(tmp_path, ".kiro/settings/mcp.json", {"notes": notes})
    env = environment(tmp_path)
    typed = 0
    # Read the files, keep the toolboxes, keep the face: Enter each.
    walk = ((["init"], "Read them?", b"\n\n\n"), (["install", "cursor", "--replace"], "", b""))
    for words, question, answers in walk:
        typed += len(" ".join(["mcp-workbench", *words])) + 1 + len(answers)
        status, shown = on_terminal(
            *words,
            env=env,
            type_when=partial(contains, question) if question else None,
            key=answers,
            cwd=tmp_path,
        )
        assert status == 0, shown
    assert len(walk) <= MAX_COMMANDS and typed <= MAX_KEYSTROKES
    assert sorted(json.loads(config_of(tmp_path).read_text())["toolboxes"]["desk"]["mcpServers"]) == ["clock", "notes"]
    # As the client does: it starts what its file says.
    (entry,) = json.loads((tmp_path / ".cursor/mcp.json").read_text())["mcpServers"].values()
    inherited = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **entry.get("env", {})}
    async with RawClient.spawn([entry["command"], *entry["args"]], env=inherited, cwd=tmp_path) as client:
        await client.initialize()
        tools = (await client.request("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["open_toolbox", "use_tool"]
        result = await client.use_tool("desk", "clock", "now", {"zone": "UTC"})
        assert "isError" not in result
