"""One folder of the user's for all that outlives a run."""

from __future__ import annotations

import os

import platformdirs
import pytest

from mcp_workbench.engine.config.state_folder import state_path


def test_it_is_where_the_system_keeps_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_state_dir", lambda *_, **__: "/state/mcp-workbench")
    assert state_path("keys") == os.path.join("/state/mcp-workbench", "keys")


@pytest.mark.parametrize("problem", [OSError(), RuntimeError(), KeyError("HOME")])
def test_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def fail(*_: object, **__: object) -> str:
        raise problem

    monkeypatch.setattr(platformdirs, "user_state_dir", fail)
    assert state_path("keys") is None
    monkeypatch.setattr(platformdirs, "user_state_dir", lambda *_, **__: "~/.local/state/mcp-workbench")
    assert state_path("keys") is None, "nobody is called `~`"


def test_it_is_the_clients_own_where_a_workbench_serves_another_environment() -> None:
    assert state_path("trusted", {"XDG_STATE_HOME": "/of/client"}) == "/of/client/mcp-workbench/trusted"
