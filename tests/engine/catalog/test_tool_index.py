"""What is remembered of toolboxes: the words of one configuration are not told of another."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.protocol.handshake import ServerProfile

FILES = {"command": "npx", "args": ["-y", "files"], "env": {"A": "1"}}


def opened(folder: Path, server: dict[str, Any]) -> tuple[Catalog, ToolIndex]:
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"toolboxes": {"box": {"description": "all", "mcpServers": {"server": server}}}}))
    store = ManifestStore(lambda: str(folder / "manifests"))
    catalog = Catalog(load(str(path), {}), store)
    return catalog, ToolIndex(catalog, store)


def summarised(folder: Path) -> None:
    catalog, tool_index = opened(folder, FILES)
    (entry,) = catalog.entries()
    tools = {"read": Raw(b'{"name":"read","description":"Reads a file","inputSchema":{"type":"object"}}')}
    entry.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": tools}))
    tool_index.summarise()


def test_stored_summary_is_read_at_the_next_start(tmp_path: Path) -> None:
    summarised(tmp_path)
    (box,) = opened(tmp_path, {**FILES, "timeout": 7})[1].boxes()
    assert (box.tools, "file" in " ".join(box.words)) == (1, True)


@pytest.mark.parametrize(
    "change",
    [{"args": ["-y", "mail"]}, {"env": {"A": "2"}}, {"cwd": "/"}, {"command": "uvx"}],
)
def test_another_server_of_the_same_name_is_not_introduced_with_its_words(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    summarised(tmp_path)
    (box,) = opened(tmp_path, {**FILES, **change})[1].boxes()
    assert (box.tools, box.words) == (None, ())


def test_filters_apply_to_stored_summaries(tmp_path: Path) -> None:
    summarised(tmp_path)
    (box,) = opened(tmp_path, {**FILES, "toolFilters": ["!read"]})[1].boxes()
    assert (box.tools, box.words) == (0, ())


def test_a_summary_takes_a_tenth_of_the_memory_of_its_tools(tmp_path: Path) -> None:
    """It is made while lists come in: what it takes lies between what stays, and keeps memory from being given back."""
    catalog, tool_index = opened(tmp_path, FILES)
    (entry,) = catalog.entries()
    text = b"Reads a file. " * 1000
    tools = {f"tool_{n}": Raw(b'{"name":"tool_%d","description":"%b"}' % (n, text)) for n in range(100)}
    entry.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": tools}))
    tool_index.summarise()
    tracemalloc.start()
    try:
        tool_index.summarise()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(text) / 10
    assert [box.tools for box in tool_index.boxes()] == [100]


def test_the_collector_does_not_stop_everybody_while_an_index_is_made(tmp_path: Path) -> None:
    """It would look at every object that there is, again and again; and at none of them afterwards."""
    catalog, tool_index = opened(tmp_path, FILES)
    (entry,) = catalog.entries()
    tools = {
        f"tool_{number}": Raw(b'{"name":"tool_%d","description":"Reads file %d"}' % (number, number))
        for number in range(3000)
    }
    entry.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": tools}))
    collections: list[int] = []

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    gc.callbacks.append(watch)
    try:
        tool_index.prepare()
        before = gc.get_freeze_count()
    finally:
        gc.callbacks.remove(watch)
        gc.unfreeze()
    assert collections in ([], [1]) and before > 3000
    assert gc.isenabled() and tool_index.is_indexed
