"""What lists of tools leave out is counted for each toolbox, and nothing where everything is listed."""

from __future__ import annotations

from pathlib import Path

from mcp_workbench.engine.economy.costs import definition_tokens
from tests.support.in_process_workbench import Server, tool, workbench_with

LONG = "Explains at length what it does. " * 100


async def test_list_saves_the_cost_of_omitted_tools(tmp_path: Path) -> None:
    boxes = {"small": {"s": Server(tool("a", "Short."))}, "large": {"s": Server(tool("b", LONG), tool("c", LONG))}}
    async with workbench_with(tmp_path, boxes, face="proxy") as seen:
        for each in ("small/s/a", "large/s/b"):
            await seen.use(each)
        figures = seen.gateway.runtime.count_calls()
        call = await seen.client.start("tools/list", {})
        shown = (await call.result())["tools"]
        assert len(shown) == 2
        full = [
            definition_tokens(definition)
            for servers in seen.gateway.catalog.toolboxes.values()
            for definition in servers["s"].tools.values()
        ]
        assert 0 < figures.saved["large"] < sum(full)
        assert figures.saved["large"] > 10 * figures.saved.get("small", 0)
        assert sum(bucket.saved for bucket in figures.day("large")) == figures.saved["large"]


async def test_a_list_of_everything_saves_nothing(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"large": {"s": Server(tool("b", LONG), tool("c"))}}, face="flat") as seen:
        figures = seen.gateway.runtime.count_calls()
        call = await seen.client.start("tools/list", {})
        assert len((await call.result())["tools"]) == 2
        assert figures.saved == {}


async def test_nothing_is_counted_unless_somebody_wants_figures(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"large": {"s": Server(tool("b", LONG))}}) as seen:
        call = await seen.client.start("tools/list", {})
        await call.result()
        assert seen.gateway.gate._saved_tokens is None
