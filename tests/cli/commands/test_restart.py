"""`mcp-workbench up --restart` says what is running afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.cli.commands import restart
from mcp_workbench.engine.version import full_version
from mcp_workbench.sharing.front.commanding import Ended
from tests.cli.in_process import command


@pytest.mark.parametrize(("version", "is_said"), [(full_version(), False), ("0.0.1", True)])
def test_another_version_that_was_started_by_a_client_is_reported(
    monkeypatch: pytest.MonkeyPatch, version: str, is_said: bool
) -> None:
    async def running() -> list[dict[str, Any]]:
        before = {"pid": 5, "version": "0.0.1", "clients": [{"callsInFlight": 2}, {"callsInFlight": 0}]}
        return [before, {"pid": 6, "version": "0.0.7"}, {"pid": 7, "version": version}]

    monkeypatch.setattr(restart, "enable_sharing", lambda: None)
    monkeypatch.setattr(restart, "end", lambda command: Ended(5, 1))
    monkeypatch.setattr(restart, "start_shared", lambda: 7)
    monkeypatch.setattr(restart, "load_own", lambda: 0)
    monkeypatch.setattr(restart, "running_workbenches", running)
    done = command(monkeypatch, "restart")
    assert (done.status, done.stdout) == (0, "The shared workbench is running (process 7).\n")
    assert "process 5 finishes 2 calls first; then its clients move over" in done.stderr
    assert ("it is version 0.0.1, because a client of that version started it" in done.stderr) == is_said
