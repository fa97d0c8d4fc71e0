"""Tries published servers in each sandbox, with one real call where there is a harmless one, and prints a table for
docs/guides/sandbox.md: `python -m tests.real_servers.sandbox_census`. Add a server in `test_census.py`."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.end_to_end.harness import Workbench, open_toolbox, opened, unavailable
from tests.real_servers.test_census import (
    OLDER_PYTHON_PACKAGES,
    PYTHON_PACKAGES,
    node_programs,
    of_npm,
    of_pypi,
    of_pypi_with_the_older_sdk,
)
from tests.support.client import Json
from tests.support.packages import python_packages

SANDBOXES: dict[str, Any] = {
    "guard": "guard",
    "contained": "contained",
    "sealed": "sealed",
    "contained by bwrap": {"profile": "contained", "backend": "bwrap"},
}


def calls(folder: Path) -> dict[str, tuple[str, Json]]:
    """A tool of each server that needs neither an account nor the network, with arguments."""
    return {
        "calculator": ("calculate", {"expression": "1+1"}),
        "everything": ("echo", {"message": "hello"}),
        "filesystem": ("list_directory", {"path": str(folder)}),
        "git": ("git_status", {"repo_path": str(folder)}),
        "memory": ("read_graph", {}),
        "shell": ("shell_execute", {"command": ["ls"], "directory": str(folder)}),
        "sqlite": ("list_tables", {}),
        "thinking": (
            "sequentialthinking",
            {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        ),
        "time": ("get_current_time", {"timezone": "UTC"}),
    }


async def tried(folder: Path, box: dict[str, Json], sandbox: object) -> dict[str, str]:
    """What came of each server."""
    entries = {name: {**entry, "sandbox": sandbox} for name, entry in box.items()}
    found: dict[str, str] = {}
    async with Workbench(folder).serving({"box": entries}, "--no-cache") as client:
        result = await open_toolbox(client, "box")
        listed = {tool["source_server"] for tool in opened(result)["tools"]}
        for name in box:
            found[name] = "starts" if name in listed else f"fails: {unavailable(result)[name]['reason'][:80]}"
        for name, (tool, arguments) in calls(folder / "work").items():
            if found.get(name) == "starts":
                answer = await client.use_tool("box", name, tool, arguments)
                found[name] = f"`{tool}` fails" if answer.get("isError") else f"`{tool}`"
    return found


async def main() -> None:
    boxes = (
        (node_programs(), of_npm),
        (python_packages(PYTHON_PACKAGES), of_pypi),
        (python_packages(OLDER_PYTHON_PACKAGES), of_pypi_with_the_older_sdk),
    )
    print(f"| server | {' | '.join(SANDBOXES)} |\n|---|{'---|' * len(SANDBOXES)}")
    for programs, servers in boxes:
        with tempfile.TemporaryDirectory() as path:
            work = Path(path) / "work"
            work.mkdir()
            subprocess.run(["git", "init", "-q", str(work)], check=True)
            box = servers(programs, work)
            if "git" in box:
                # Otherwise nothing grants it the repository.
                box["git"] = {**box["git"], "args": ["--repository", str(work)]}
            columns = [await tried(Path(path), box, sandbox) for sandbox in SANDBOXES.values()]
        for name in box:
            print(f"| {name} | {' | '.join(column[name] for column in columns)} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
