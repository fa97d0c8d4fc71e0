"""Eight open pages under load keep no more than they are meant to."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from mcp_workbench.seeing.page import captured_calls, streams
from mcp_workbench.seeing.page.streams import MAX_STREAMS_OF_ONE
from tests.app.page_client_of_tests import own_page
from tests.engine.transport.http.server.raw_client import Response
from tests.support.in_process_workbench import Server, tool
from tests.support.processes import eventually

pytestmark = pytest.mark.processes

SOURCE = Path(streams.__file__).parents[2]
MAX_KEPT_CALLS = 50
CALLS = 200
# Less than half of what would be kept if each call left 1 KiB behind, with its arguments.
MAX_GROWTH = 100 * 1024


async def test_memory_stays_the_same_with_eight_pages_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_calls, "MAX_CALLS", MAX_KEPT_CALLS)
    # As often as calls: what is looked at each second is looked at for minutes.
    monkeypatch.setattr(streams, "LOOK_INTERVAL", 0.005)
    monkeypatch.setattr(streams, "CALLS_INTERVAL", 0.005)
    monkeypatch.setattr(streams, "MEMORY_INTERVAL", 0.05)
    told = 0

    async def drain(stream: Response) -> None:
        nonlocal told
        while (chunk := await stream._connection.chunk()) is not None:
            told += chunk.count(b'"state":"ended"')

    async with own_page(tmp_path, {"box": {"one": Server(tool("read"))}}) as browser:
        tabs = [asyncio.create_task(drain(await browser.get("/api/events"))) for _ in range(MAX_STREAMS_OF_ONE)]

        async def load() -> int:
            before = told
            for number in range(CALLS):
                await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"}, {"x": f"{number:1024}"})
            # Everybody is told of all of them.
            await eventually(lambda: told == before + CALLS * MAX_STREAMS_OF_ONE)
            gc.collect()
            # Ours alone: the clients of the tests keep what they were sent.
            found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{SOURCE}/*")])
            return sum(each.size for each in found.statistics("filename"))

        tracemalloc.start()
        try:
            await load()
            before, after = await load(), await load()
        finally:
            tracemalloc.stop()
            for each in tabs:
                each.cancel()
        assert after - before < MAX_GROWTH, f"{after - before} bytes more after {CALLS} calls"
