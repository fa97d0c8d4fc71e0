"""`mcp-workbench up --reload` signals workbenches, and nobody who merely has the process id of one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from mcp_workbench.cli.commands import reload
from mcp_workbench.engine.process_context import make_private, runtime_folder
from tests.cli.in_process import command
from tests.cli.shell import run

STATUS = {
    "config": "a.json",
    "face": "proxy",
    "uptimeSeconds": 1,
    "servers": [],
    "configuration": {"reloads": 0, "rejected": None},
}


@contextmanager
def said_to_be_a_workbench(pid: int) -> Iterator[None]:
    """A socket that names this process, answered by another one: us."""
    make_private(runtime_folder())
    path = os.path.join(runtime_folder(), f"{pid}.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                # Whoever sees that we are somebody else goes without an answer.
                with connection, suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(json.dumps({**STATUS, "pid": pid}).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            os.unlink(path)


def test_a_process_that_is_no_workbench_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        try:
            with said_to_be_a_workbench(other.pid):
                done = run("reload", str(other.pid))
            assert done.status == 1
            assert f"process {other.pid}: another process answers in its place" in done.stdout
            assert other.poll() is None, "SIGHUP would have ended it"
        finally:
            other.kill()


def test_changes_that_need_a_restart_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    after = {**STATUS, "pid": 1, "configuration": {"reloads": 1, "rejected": None, "needsRestart": ["auth"]}}

    async def outcome(pid: int, reloads: int) -> dict[str, Any]:
        return after

    async def running() -> list[dict[str, Any]]:
        return [{**STATUS, "pid": 1}]

    monkeypatch.setattr(reload, "running_workbenches", running)
    monkeypatch.setattr(reload, "_outcome", outcome)
    monkeypatch.setattr(reload, "_hang_up", lambda pid: None)
    done = command(monkeypatch, "reload", "1")
    assert done.status == 0 and "`auth` has changed: restart the workbench to apply it" in done.stdout
