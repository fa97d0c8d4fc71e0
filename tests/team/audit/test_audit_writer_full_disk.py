"""A disk that is really full, behind a workbench whose calls wait for the audit: a file system of some kilobytes, or a
limit on the size of files."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mcp_workbench.team.audit import audit_step, audit_writer
from mcp_workbench.team.audit.audit_chain import verify
from tests.support.in_process_workbench import Server, tool, workbench_with
from tests.support.processes import eventually
from tests.team.test_oversight import lines

# Lines that find room in the queue before calls wait, and in all.
QUEUED, QUEUED_BY_WAITING = 4, 8
DISK_BYTES = 64 * 1024


class Disk(NamedTuple):
    folder: Path
    # From now on nothing more can be written to files that are as large; and again.
    fill: Callable[[], None]
    free: Callable[[], None]


def tmpfs(folder: Path) -> Iterator[Disk]:
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("a file system can be mounted by root alone, and not in every container")
    filler = folder / "filler"

    def fill() -> None:
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))

    try:
        yield Disk(folder, fill, filler.unlink)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def limit(folder: Path) -> Iterator[Disk]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        size = (folder / "audit.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    def free() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    try:
        yield Disk(folder, fill, free)
    finally:
        free()


@pytest.fixture(params=[tmpfs, limit])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    yield from request.param(folder)


@pytest.mark.requirement("audit.bounded")
@pytest.mark.requirement("audit.disk")
@pytest.mark.parametrize("when_full", ["wait", "count"])
async def test_calls_continue_and_lost_lines_are_counted(
    tmp_path: Path, disk: Disk, when_full: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_writer, "MAX_QUEUED_ENTRIES", QUEUED)
    monkeypatch.setattr(audit_step, "MAX_QUEUED_ENTRIES", QUEUED)
    monkeypatch.setattr(audit_step, "MAX_QUEUED_ENTRIES_BY_WAITING", QUEUED_BY_WAITING)
    monkeypatch.setattr(audit_writer, "FULL_DISK_RETRY_INTERVAL", 0.02)
    monkeypatch.setattr(audit_writer, "GATHER_DELAY", 0.0)
    # How long a call waits at most; the document names the real one.
    monkeypatch.setattr(audit_step, "QUEUE_TIMEOUT", 0.05)
    file = disk.folder / "audit.jsonl"
    audit = {"file": str(file), "whenFull": when_full}
    server = Server(tool("read"))
    async with workbench_with(tmp_path, {"box": {"files": server}}, audit=audit) as client:
        calls = 0

        async def call() -> None:
            nonlocal calls
            calls += 1
            assert "isError" not in await client.use("box/files/read"), "the audit does not stop the work"

        def logged(text: str, level: int) -> int:
            return sum(each.levelno == level and text in each.getMessage() for each in caplog.records)

        for _ in range(3):
            await call()
            await eventually(lambda: len(lines(file, "call")) == calls)
        disk.fill()
        while not logged("the audit cannot be written to", logging.ERROR):
            await call()
        # Those that were described already, those in the queue, and more than there is room for.
        for _ in range(2 * QUEUED_BY_WAITING):
            await call()
        disk.free()
        await eventually(lambda: logged("the audit is written to", logging.WARNING) == 1)
        await call()
    assert logged("the audit cannot be written to", logging.ERROR) == 1, "it is said once"
    written = lines(file, "call")
    lost = sum(line.get("lost", 0) for line in lines(file))
    assert lost > 0 and len(written) + lost == calls == len(server.calls)
    assert verify(str(file)).findings == []
    waited = [line for line in written if line.get("heldMs", 0) >= 50]
    assert bool(waited) is (when_full == "wait")
