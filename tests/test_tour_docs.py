"""docs/internals/tour.md leads through the code as it is: a real call is followed, and every owner and file exists."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType

from tests.bridge.conversation import Conversation
from tests.bridge.in_process import in_process_workbench

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
TEXT = (ROOT / "docs" / "internals" / "tour.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\| (\d+) \| \[([\w/.]+)\]\(\S+?/src/mcp_workbench/\2\) `([\w.]+)` \|", re.MULTILINE)
OWNER = re.compile(r"\[`(\w+)`\]\(\S+?/src/mcp_workbench/([\w/.]+)\)")
# What moves bytes; the call that is followed has no pipes.
BELOW = "engine/transport/"


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def defined(path: str) -> set[str]:
    """Classes, functions and methods of a module."""
    names = set()
    for node in ast.parse((PACKAGE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


async def steps_of_a_call() -> list[tuple[str, str]]:
    """Module and function of everything of ours that one call enters."""
    entered: list[tuple[str, str]] = []

    def on_event(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            entered.append((Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname))

    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        for _ in range(2):
            Conversation(client, server, "tool").finish()
        sys.setprofile(on_event)
        try:
            Conversation(client, server, "tool").finish()
        finally:
            sys.setprofile(None)
    return entered


async def test_a_call_enters_the_functions_of_the_tour_in_its_order() -> None:
    steps = STEP.findall(section("One request, file by file"))
    assert [int(number) for number, *_ in steps] == list(range(1, len(steps) + 1)) and len(steps) > 20
    assert [(path, name) for _, path, name in steps if name not in defined(path)] == []
    entered = iter(await steps_of_a_call())
    missing = [
        f"{number}: {path} {name}"
        for number, path, name in steps
        if not path.startswith(BELOW) and (path, name) not in entered
    ]
    assert not missing, "a call does not come there, or not in this order"


def test_every_owner_of_state_exists() -> None:
    owners = OWNER.findall(section("Who owns which state"))
    assert len(owners) > 12
    assert [(name, path) for name, path in owners if name not in defined(path)] == []


def test_there_are_forty_files_to_read_first() -> None:
    files = re.findall(r"\]\((\S+?/src/mcp_workbench/[\w/.]+)\)", section("Forty files to read first"))
    assert len(files) == len(set(files)) == 40
