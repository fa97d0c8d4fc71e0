"""A look at a cluster from outside: whether its state server can be used, its clock, and whose key it is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.cluster import examination as module
from mcp_workbench.cluster.examination import examine, open_state
from mcp_workbench.cluster.seal import new_key
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.engine.config.cluster_settings import ClusterConfig, KeyFileConfig
from tests.cluster.test_state import state_server
from tests.support.cluster_machines import StateServer, free_port, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server]


def configured(folder: Path, server: StateServer | int, name: str = "key") -> ClusterConfig:
    path = folder / name
    if not path.exists():
        path.write_text(new_key())
        path.chmod(0o600)
    port = server if isinstance(server, int) else server.port
    return ClusterConfig(state=f"valkey://127.0.0.1:{port}/0", key=KeyFileConfig(file=name))


@asynccontextmanager
async def opened(config: ClusterConfig, folder: Path, says: bytes = b"") -> AsyncIterator[ClusterState]:
    state = open_state(config, str(folder), None, lambda: says)
    try:
        yield state
    finally:
        await state.link.close()


async def test_healthy_cluster_has_no_problems(tmp_path: Path) -> None:
    async with state_server() as server:
        config = configured(tmp_path, server)
        async with opened(config, tmp_path, b'{"instance":"one","host":"a"}') as state:
            await state.beat()
        report = await examine(config, str(tmp_path), None)
        assert report.problems == []
        assert [each.instance for each in report.instances] == ["one"]
        assert report.latency_seconds is not None and abs(report.clock_difference_seconds or 0) < 1
        assert report.server is not None


async def test_different_key_is_noticed_by_the_examination_and_the_instance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with state_server() as server:
        own, others = (configured(tmp_path, server, name) for name in ("key", "other"))
        async with opened(own, tmp_path) as first, opened(others, tmp_path) as second:
            await first.beat()
            assert not first.has_other_key
            for _ in range(3):
                await second.beat()
            assert second.has_other_key
            assert caplog.text.count("with another key") == 1
        assert (await examine(own, str(tmp_path), None)).problems == []
        ((text, hint),) = (await examine(others, str(tmp_path), None)).problems
        assert "another key" in text and "the same key" in hint


async def test_state_server_that_is_away_is_reported(tmp_path: Path) -> None:
    report = await examine(configured(tmp_path, free_port()), str(tmp_path), None)
    ((text, _),) = report.problems
    assert "cannot be used" in text


async def test_different_clock_and_long_way_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with state_server() as server:
        config = configured(tmp_path, server)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 60)
        monkeypatch.setattr(module, "LATENCY_LIMIT", 0.0)
        texts = [text for text, _ in (await examine(config, str(tmp_path), None)).problems]
        assert any("clock of the state server differs" in text and "60." in text for text in texts)
        assert any("to answer" in text for text in texts)
