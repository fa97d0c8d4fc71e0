"""A face does no I/O: what a decision needs is brought before it is taken.

Both in the text of the modules, and while a workbench serves that remembers servers from an earlier life: that is when
there is something to read.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mcp_workbench.engine.face
from mcp_workbench.engine.face.client_behaviour import behaviours
from tests.support.in_process_workbench import Boxes, ConnectedClient, Server, tool, workbench_with

FACE = Path(next(iter(mcp_workbench.engine.face.__path__)))
# What reads, writes or looks at files. From `os`, nothing but random bytes.
FORBIDDEN = {"io", "os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "sqlite3"}
CALLS = ("open", "stat", "lstat", "listdir", "scandir", "replace", "unlink", "makedirs", "utime")
# A table of the program, which is read once like a module.
READS_ITS_TABLE = FACE / "client_behaviour.py"
# Bounds the search for whoever called; deeper than any stack of these tests.
MAX_FRAMES = 200


@pytest.mark.parametrize("path", sorted({*FACE.glob("*.py")} - {READS_ITS_TABLE}), ids=lambda path: path.name)
def test_no_module_of_the_faces_has_the_means(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & FORBIDDEN
        elif isinstance(node, ast.ImportFrom):
            assert node.module not in FORBIDDEN - {"os"}
            assert node.module != "os" or [alias.name for alias in node.names] == ["urandom"]
            assert "ManifestStore" not in [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open"
        elif isinstance(node, ast.Attribute):
            assert node.attr not in ("load_manifest", "read_manifest", "load_summaries")


def _who_called() -> str | None:
    """The module of a face that this happens for; None where it is nobody, an import, or the measuring of coverage."""
    frame = sys._getframe(2)
    found = None
    for _ in range(MAX_FRAMES):
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or f"{os.sep}coverage{os.sep}" in name:
            return None
        if name.startswith(str(FACE)):
            found = found or f"{Path(name).name}: {frame.f_code.co_name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return found


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every use of the file system that a face was the cause of."""
    # Another test may have read it or not.
    behaviours()
    seen: list[str] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*arguments: Any, **options: Any) -> Any:
            who = _who_called()
            if who is not None:
                seen.append(f"{who}: {name}{arguments}")
            return real(*arguments, **options)

        return watch

    for name in CALLS:
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    monkeypatch.setattr(builtins, "open", watched("open", open))
    return seen


def boxes() -> Boxes:
    return {
        "dev": {"git": Server(tool("show", "Shows a commit.")), "files": Server(tool("read", "Reads a file."))},
        "ops": {"logs": Server(tool("tail", "Shows the last lines."))},
    }


async def use_everything(seen: ConnectedClient, face: str) -> None:
    for kind in ("tools", "prompts", "resources", "resources/templates"):
        await seen.client.request(f"{kind}/list", {})
    for method, params in (
        ("prompts/get", {"name": "none"}),
        ("resources/read", {"uri": "file:///none"}),
        ("resources/subscribe", {"uri": "file:///none"}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x"}, "argument": {"name": "a", "value": ""}}),
        ("tasks/get", {"taskId": "none"}),
    ):
        await (await seen.client.start(method, params)).response()
    if face == "flat":
        await seen.client.call_tool("dev:git:show", {})
        await (await seen.client.start("tools/call", {"name": "dev:git:none"})).response()
        return
    await seen.open(toolbox_name="none")
    await seen.open(toolbox_name="ops")
    if face == "proxy":
        await seen.use({"toolbox": "none", "server": "git", "tool": "show"})
        await seen.use({"toolbox": "dev", "server": "files", "tool": "read"})
        await seen.use("dev/git/show")
        await seen.use("git/show")
        await seen.use("dev/none")
        await seen.open()
        await seen.open(query="last lines")
        await seen.open(tools=["dev/git/show", "files/read"])
    await (await seen.client.start("tools/call", {"name": "dev__git_show"})).response()


@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
@pytest.mark.parametrize("pin", [[], ["dev/git/show"]])
async def test_no_request_makes_a_face_touch_a_file(
    tmp_path: Path, touched: list[str], face: str, pin: list[str]
) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        for toolbox in boxes():
            await seen.open(toolbox_name=toolbox)
        await seen.open(query="commit")
    async with workbench_with(tmp_path, boxes(), options={"face": face}, pin=pin) as seen:
        await use_everything(seen, face)
    assert touched == []


def test_the_guard_notices_io_in_a_face(touched: list[str]) -> None:
    code = compile("import os\n\ndef look():\n    os.stat('.')\n\nlook()", str(FACE / "example.py"), "exec")
    exec(code, {})
    assert touched == ["example.py: look: stat('.',)"]
