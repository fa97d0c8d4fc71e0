"""After a restart, a search reads only the manifests that it needs; with a lock it still finds nothing withheld."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Raw

from mcp_workbench.team.lock.lock_file import LockedServer, LockFile, definition_hash, written
from tests.support.in_process_workbench import Server, tool, workbench_with

OFFERED: dict[str, list[dict[str, Any]]] = {
    "trains": [tool("train_find", "Find one train")],
    "planets": [tool("planet_find", "Find one planet"), tool("planet_add", "Add one planet")],
}


def servers() -> dict[str, dict[str, Server]]:
    return {"box": {name: Server(*tools) for name, tools in OFFERED.items()}}


def lock(folder: Path) -> None:
    """Accept what the servers offer."""
    locked = {
        name: LockedServer(tools={each["name"]: definition_hash(Raw(json.dumps(each).encode())) for each in tools})
        for name, tools in OFFERED.items()
    }
    (folder / "workbench.lock").write_bytes(written(LockFile(1, "workbench-config.json", {"box": locked})))


async def test_a_tool_that_another_process_has_indexed_is_withheld(tmp_path: Path) -> None:
    lock(tmp_path)
    changed = servers()
    changed["box"]["planets"].tools[1] = tool("planet_add", "Add one comet")
    # Without the lock, what nobody has accepted is listed and indexed.
    async with workbench_with(tmp_path, changed) as workbench:
        assert "planet_add" in await workbench.said(query="comet")
    restarted = servers()
    async with workbench_with(tmp_path, restarted, lock="enforce") as workbench:
        assert "planet_add" not in await workbench.said(query="comet")
        assert "planet_find" in await workbench.said(query="planet")
        assert "train_find" in await workbench.said(query="train")
    assert [server.starts for server in restarted["box"].values()] == [0, 0]
