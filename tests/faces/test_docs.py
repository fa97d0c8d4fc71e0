"""The examples of docs/faces.md: each configuration, started as written there, shows the names written below it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.client import RawClient

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "faces.md"
# A configuration, the command line, and the names; the names after opening the toolbox where they are shown too.
EXAMPLE = re.compile(
    r"```json\n(?P<config>[^`]*)```\n\n```sh\nmcp-workbench (?P<command>[^\n]*)\n```\n\n```text\n(?P<names>[^`]*)```\n"
    r"(\n[^\n]*; then there are\n\n```text\n(?P<opened>[^`]*)```\n)?"
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
    (tmp_path / "workbench-config.json").write_text(example["config"])
    # Longer than the usual bound, for busy machines.
    command = ["mcp-workbench", *shlex.split(example["command"]), "--list-timeout", "60"]
    async with RawClient.spawn(command, cwd=tmp_path) as client:
        await client.initialize()

        async def shown() -> list[str]:
            return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

        assert await shown() == example["names"].split()
        if example["opened"] is not None:
            await client.call_tool("open_toolbox", {"toolbox_name": "desk"})
            assert await shown() == example["opened"].split()


def test_every_face_has_an_example() -> None:
    found = [example["command"] for example in examples()]
    assert len(found) == 5
    for face in ("serve", "--face flat", "--face dynamic"):
        assert any(face in command for command in found)
