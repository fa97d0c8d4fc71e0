"""From nothing to a tool call: the commands, keystrokes and seconds that it takes are counted, and must not grow.

Seconds of the clock are the machine's, so their limit is a wide one; those of the processor hardly depend on what else
runs. `make first-minutes` prints what each step takes.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from scripts.first_minutes import CLIENTS, walk
from tests.cli.commands.test_init import CLOCK, config_of, environment, write
from tests.cli.shell import on_terminal
from tests.support.client import RawClient

pytestmark = pytest.mark.processes

MAX_COMMANDS = 2
# What is typed, with Enter: the commands, and the answers to questions.
MAX_KEYSTROKES = 61
MAX_COMMANDS_FROM_A_CLONE = 3
MAX_KEYSTROKES_FROM_A_CLONE = 172
# 20 s on two cores with a load of 27; less than 4 s of the processor.
MAX_SECONDS_FROM_A_CLONE = 120.0
MAX_CPU_SECONDS_FROM_A_CLONE = 12.0


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


def _processor_seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_from_a_clone_to_a_first_call_in_three_clients_is_a_handful_of_commands(tmp_path: Path) -> None:
    before = _processor_seconds_of_children()
    steps = [*walk(tmp_path)]
    assert sum(step.seconds for step in steps) <= MAX_SECONDS_FROM_A_CLONE, steps
    assert _processor_seconds_of_children() - before <= MAX_CPU_SECONDS_FROM_A_CLONE, steps
    typed = [step.typed for step in steps if step.typed]
    # Clone, install and `init`, and one for each client.
    assert len(typed) <= MAX_COMMANDS_FROM_A_CLONE + len(CLIENTS)
    assert sum(len(each) + 1 for each in typed) <= MAX_KEYSTROKES_FROM_A_CLONE
    calls = [step for step in steps if step.name.startswith("call")]
    assert len(calls) == len(CLIENTS)
    for step in calls:
        answers = {answer["id"]: answer for answer in map(json.loads, step.said.splitlines()) if "id" in answer}
        assert [tool["name"] for tool in answers[2]["result"]["tools"]] == ["open_toolbox", "use_tool"], step.name
        assert not answers[3]["result"].get("isError"), step.said
