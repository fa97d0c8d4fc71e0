"""A command with a workload beside it: its exit status counts, and a workload that failed is no workload."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from soak import beside
from soak.beside import Workload, run_beside
from tests.support.client import RawClient
from tests.support.processes import available

pytestmark = pytest.mark.skipif(not available(), reason="a process that is left behind is found by /proc")

# Looks at its parent's children, and ends when a file appears.
COMMAND = """
import os, pathlib, sys, time
folder, busy, status = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
children = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children if int(pid) != os.getpid()]
assert sum(b"select.select" in line for line in lines) == busy, lines
while not (folder / "enough").exists():
    time.sleep(0.02)
sys.exit(status)
"""


@pytest.fixture
def enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is told when fifty calls have been answered, or one has gone wrong."""

    class Watched(Workload):
        async def call(self, client: RawClient, first: int) -> None:
            while self.answered < 50 and not self.wrong:
                await self.call_once(client, first + self.answered)
            (tmp_path / "enough").touch()
            await super().call(client, first)

    monkeypatch.setattr(beside, "Workload", Watched)


@pytest.mark.usefixtures("enough")
@pytest.mark.parametrize("status", [0, 3])
async def test_a_command_has_busy_processes_and_calls_beside_it_and_its_status_is_kept(
    tmp_path: Path, status: int
) -> None:
    command = [sys.executable, "-c", COMMAND, str(tmp_path), str(beside.BUSY_PROCESSES), str(status)]
    found, workload = await run_beside(command)
    assert (found, workload.wrong) == (status, [])
    assert workload.answered >= 50


@pytest.mark.usefixtures("enough")
async def test_a_workload_that_goes_wrong_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "ECHO", "pid")
    command = [sys.executable, "-c", COMMAND, str(tmp_path), str(beside.BUSY_PROCESSES), "0"]
    status, workload = await run_beside(command)
    assert (status, workload.answered) == (0, 0)
    assert "'pid'" in workload.wrong[0]
