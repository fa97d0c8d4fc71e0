from __future__ import annotations

import os
import subprocess

import pytest

from mcp_workbench.engine.observe.process_memory import memory_of


@pytest.mark.processes
def test_memory_is_that_of_the_whole_group() -> None:
    pipe = subprocess.PIPE
    child = subprocess.Popen(["sh", "-c", "cat; true"], stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"ready\n")
        child.stdin.flush()
        # Right after its start, the kernel may still count no memory for a program.
        assert child.stdout.readline() == b"ready\n"
        assert memory_of([child.pid])[child.pid] > 0
    finally:
        child.communicate()
    assert memory_of([child.pid]) == {} == memory_of([])


@pytest.mark.processes
def test_without_proc_ps_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ps(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, b"  7  100\n  7   50\n odd\n 8 1\n")

    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    monkeypatch.setattr(subprocess, "run", ps)
    assert memory_of([7]) == {7: 150 * 1024} and asked == [["ps", "-axo", "pgid=,rss="]]

    def missing(command: list[str], **_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert memory_of([7]) == {}
