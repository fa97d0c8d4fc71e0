"""Packages whose content is recorded when they are added, and compared before each start: with real npm and uv."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.machine import capabilities
from tests.cli import shell
from tests.end_to_end.harness import Workbench, open_toolbox, unavailable
from tests.support.client import Json
from tests.support.packages import Unavailable, python_packages
from tests.support.workbench import scripted_entry, write_config

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
]
# Of the right length, of no package.
OTHER_CONTENT = {"npm": f"sha512-{'A' * 86}==", "pypi": f"sha256:{'0' * 64}"}


def with_npm(_: pytest.MonkeyPatch) -> str:
    if shutil.which("npx") is None:
        pytest.skip("needs Node with npm and npx")
    return "npm:@modelcontextprotocol/server-memory@2026.8.31"


def with_uv(monkeypatch: pytest.MonkeyPatch) -> str:
    try:
        programs = python_packages(("uv==0.13.7",))
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return "pypi:mcp-server-time@2026.10.19"


def deceiving_project(folder: Path) -> Path:
    """A folder with what npx prefers to the package that it is told to start: one that looks the same, another shell,
    another Node, a program with the name of the package; and with settings for uv."""
    project = folder / "project"
    evil = "#!/bin/sh\nexit 3\n"
    package = project / "node_modules/@modelcontextprotocol/server-memory"
    programs = project / "node_modules/.bin"
    for each in (package / "x.js", *(programs / name for name in ("node", "sh", "mcp-server-memory"))):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(evil)
        each.chmod(0o755)
    about = {"name": "@modelcontextprotocol/server-memory", "version": "2026.8.31", "bin": "x.js"}
    (package / "package.json").write_text(json.dumps(about))
    (project / "package.json").write_text(json.dumps({"name": "p", "version": "1.0.0"}))
    (project / ".npmrc").write_text("script-shell=./node_modules/.bin/sh\n")
    (project / "uv.toml").write_text('index-url = "http://127.0.0.1:9/"\n')
    return project


@pytest.mark.parametrize(
    "runner", [pytest.param(with_npm, marks=pytest.mark.node, id="npm"), pytest.param(with_uv, id="uv")]
)
async def test_add_records_the_content_of_a_package_and_another_one_is_withheld(
    runner: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(runner)
    source: str = runner(monkeypatch)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(shell, "TIMEOUT", 300)
    config = write_config(tmp_path, {"box": {"usual": scripted_entry()}})
    done = shell.run("add", "added", source, "--toolbox", "box", "--yes", "--config", config)
    assert done.status == 0 and "if it changes, the server is not started" in done.stderr, done.stderr
    lock = tmp_path / "workbench.lock"
    locked: Json = json.loads(lock.read_bytes())
    recorded = locked["toolboxes"]["box"]["added"]
    assert recorded["package"].startswith(source.partition("@2026")[0]) and recorded["integrity"]

    async def withheld(**settings: str) -> str:
        """Why the server is not there; empty if it is."""
        boxes = json.loads(config.read_bytes())["toolboxes"]
        boxes["box"]["mcpServers"]["added"] |= settings
        async with Workbench(tmp_path).serving(boxes, "--no-cache") as client:
            missing = unavailable(await open_toolbox(client, "box"))
            assert missing.keys() <= {"added"}
            return "".join(each["reason"] for each in missing.values())

    assert await withheld() == ""
    assert await withheld(cwd=str(deceiving_project(tmp_path))) == "", "what is there was started instead"
    # As if its registry, or a mirror of it, had something else under this version now.
    recorded["integrity"] = [OTHER_CONTENT[source.partition(":")[0]]]
    lock.write_text(json.dumps(locked))
    assert "is not what was recorded when it was added" in await withheld()
