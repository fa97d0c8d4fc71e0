"""Configurations that change all the time: calls go on, nothing grows, and the last change is the one in force."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry
from tests.support.client import Json

# 10,000 changes a minute, for some seconds.
CHANGES = 600
PAUSE = 0.006


def with_toolbox(config: Path, name: str) -> str:
    """The file as it is, with another toolbox in it."""
    found: Json = json.loads(config.read_text())
    boxes = {key: box for key, box in found["toolboxes"].items() if key == "box"}
    boxes[name] = {"description": f"Toolbox {name}.", "mcpServers": {"other": bad_entry()}}
    return json.dumps({**found, "toolboxes": boxes})


async def until_in_force(workbench: RunningWorkbench, toolbox: str) -> None:
    async with asyncio.timeout(30):
        while True:
            result = await workbench.client.call_tool("open_toolbox", {"toolbox_name": toolbox})
            if "does not exist" not in result["content"][0]["text"]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("over", ["stdio", "HTTP"])
async def test_ten_thousand_changes_a_minute_are_one_change_when_they_end(faults: Faults, over: str) -> None:
    serving = faults.serving if over == "stdio" else faults.serving_http
    async with serving({}) as workbench:
        config = faults.folder / "workbench-config.json"
        texts = [with_toolbox(config, f"new{number % 7}") for number in range(7)]
        for number in range(CHANGES):
            # Half of them are broken in the middle.
            text = texts[number % 7]
            config.write_text(text if number % 2 else text[: len(text) // 2])
            if number % 20 == 0:
                await workbench.others_work(1)
            await asyncio.sleep(PAUSE)
        config.write_text(texts[3] + "\n")
        await until_in_force(workbench, "new3")
        status = await workbench.status()
        # A machine that stalls for as long as a file must be still may let one or the other through.
        assert 1 <= status["configuration"]["reloads"] <= 10
        assert status["configuration"]["rejected"] is None
