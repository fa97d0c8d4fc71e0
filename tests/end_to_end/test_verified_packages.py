"""What fetches a package before a server starts, behind the real workbench: it never outlives who asked for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.team.lock.lock_file import LOCK_FORMAT_VERSION, LockedServer, LockFile, written
from tests.end_to_end.harness import Workbench, start_use
from tests.support.client import Json
from tests.support.processes import alive, eventually

SPEC = "@a/b@1.2.3"
BOX: Json = {"box": {"s": {"command": "npx", "args": ["-y", SPEC]}}}


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    locked = LockedServer(package=f"npm:{SPEC}", integrity=["sha512-good"])
    lock = LockFile(LOCK_FORMAT_VERSION, "workbench-config.json", {"box": {"s": locked}})
    (tmp_path / "workbench.lock").write_bytes(written(lock))
    programs = tmp_path / "bin"
    programs.mkdir()
    # An npm that never ends, with a child as npm's scripts have, which does not listen to signals.
    said = tmp_path / "npm"
    script = f"""#!/bin/sh
trap '' TERM HUP INT
sleep 1000 &
echo $$ $! > '{said}.tmp'
mv '{said}.tmp' '{said}'
wait
"""
    for name in ("npm", "npx"):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    return Workbench(tmp_path)


def environment(workbench: Workbench) -> dict[str, str]:
    home = workbench.folder / "home"
    home.mkdir(exist_ok=True)
    return {**os.environ, "HOME": str(home), "PATH": f"{workbench.folder / 'bin'}:/usr/bin:/bin"}


async def started(workbench: Workbench) -> list[int]:
    await eventually(lambda: (workbench.folder / "npm").exists(), what="the start of npm")
    return [int(each) for each in (workbench.folder / "npm").read_text().split()]


@pytest.mark.parametrize("ends", ["closed", "killed"])
async def test_npm_ends_with_the_workbench(workbench: Workbench, ends: str) -> None:
    is_killed = ends == "killed"
    async with workbench.serving(BOX, env=environment(workbench), expect_exit=not is_killed) as client:
        await client.start_tool("use_tool", start_use("box", "s", "echo"))
        pids = await started(workbench)
        assert len(pids) == 2 and all(map(alive, pids))
        if is_killed:
            client.process.kill()
    await eventually(lambda: not any(map(alive, pids)), what="the end of npm and of what it has started")
