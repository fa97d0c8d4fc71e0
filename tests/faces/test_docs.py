"""The examples of docs/guides/faces.md: with each configuration the command shows the names written below it, and so
does a workbench that is served with the same options."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from mcp_workbench.engine.config.trust import trust
from tests.cli.shell import run
from tests.support.client import RawClient

pytestmark = pytest.mark.processes

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guides" / "faces.md"
# A configuration, the command line, and the names.
EXAMPLE = re.compile(
    r"```json\n(?P<config>[^`]*)```\n\n```sh\nmcp-workbench (?P<command>[^\n]*)\n```\n\n```text\n(?P<names>[^`]*)```\n"
)


def examples() -> list[re.Match[str]]:
    return list(EXAMPLE.finditer(DOCUMENT.read_text(encoding="utf-8")))


@pytest.fixture
def _on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mcp-workbench` as the examples start it."""
    program = tmp_path / "bin" / "mcp-workbench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mcp_workbench "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.requirement("project.documentation")
@pytest.mark.usefixtures("_on_the_path")
@pytest.mark.parametrize("example", examples(), ids=lambda example: example["command"])
async def test_an_example_shows_the_names_that_it_says(example: re.Match[str], tmp_path: Path) -> None:
    config = tmp_path / "workbench-config.json"
    config.write_text(example["config"])
    trust(str(config), config.read_bytes())
    names = example["names"].split()
    done = await asyncio.to_thread(run, *shlex.split(example["command"]), cwd=tmp_path)
    assert (done.status, done.stdout.split()) == (0, names), done.stderr
    options = [word for word in shlex.split(example["command"]) if word not in ("list", "--connect")]
    # Longer than the usual bound, for busy machines.
    command = ["mcp-workbench", "serve", *options, "--list-timeout", "60"]
    async with RawClient.spawn(command, cwd=tmp_path) as client:
        await client.initialize()

        async def shown() -> list[str]:
            return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

        if "dynamic" in options:
            assert await shown() == ["open_toolbox"]
            await client.call_tool("open_toolbox", {"toolbox_name": "desk"})
        assert await shown() == names


def test_every_face_has_an_example() -> None:
    found = [example["command"] for example in examples()]
    assert len(found) == 5
    for face in ("--face proxy", "--face flat", "--face dynamic"):
        assert any(face in command for command in found)
