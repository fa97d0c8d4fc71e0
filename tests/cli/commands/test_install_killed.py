"""The power is cut at every write of a whole `install`: the client's file is the old or the new, and can be undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands.test_init import environment as home_environment
from tests.cli.shell import environment

ROOT = str(Path(__file__).resolve().parents[3])
OLD = '{\n  // mine\n  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n'
# For each n, a child that is killed at the n-th call that changes something on disk, before it or in the middle; then
# what the file holds, and how `undo` and another `install` end. Until a child comes to its end.
DRIVER = """
import json, os, shutil, sys
from mcp_workbench.cli.dispatch import run
from tests.support.killed_writes import kill_at
import mcp_workbench.cli.commands.install, mcp_workbench.cli.commands.undo, platformdirs
path, old, half = sys.argv[1], sys.argv[2], sys.argv[3] == "half"
def child(work):
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1); os.dup2(null, 2)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def killed_at(number):
    kill_at(number, halfway=half)
    return run(["install", "cursor"])
def read():
    with open(path) as file:
        return file.read()
results = []
for count in range(1, 200):
    shutil.rmtree(os.path.expanduser("~/.local"), ignore_errors=True)
    with open(path, "w") as file:
        file.write(old)
    status = child(lambda: killed_at(count))
    after = read()
    undone = child(lambda: run(["undo", "cursor"]))
    results.append([status, after, undone, read(), child(lambda: run(["install", "cursor"])), read()])
    if status == 0:
        break
print(json.dumps(results))
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["before", "half"])
def test_the_old_or_the_new_file_is_there_and_can_be_undone(tmp_path: Path, how: str) -> None:
    config = tmp_path / ".config" / "mcp-workbench" / "workbench-config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}))
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    env = environment({**home_environment(tmp_path), "PYTHONPATH": ROOT})
    command = [sys.executable, "-c", DRIVER, str(path), OLD, how]
    done = subprocess.run(command, capture_output=True, timeout=100, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    results = json.loads(done.stdout)
    new = results[-1][1]
    assert results[-1][0] == 0 and len(results) > 30 and '"workbench"' in new
    assert {after for _, after, *_ in results} == {OLD, new}
    for number, (_, after, undone, restored, again, last) in enumerate(results, 1):
        # What was not changed need not be undone; whatever undo says, the old content is what it leaves.
        assert restored == OLD, f"killed at {number}: undo ended with {undone}"
        assert undone == 0 or after == OLD, f"killed at {number}: the new file cannot be undone"
        assert (again, last) == (0, new), f"killed at {number}: no install afterwards"
    assert os.path.exists(path)
