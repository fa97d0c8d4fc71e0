"""What is remembered of toolboxes: the words of one configuration are not told of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.manifests import ManifestStore
from mcp_workbench.catalog.offer import Offer
from mcp_workbench.catalog.tool_index import ToolIndex
from mcp_workbench.config.load import load
from mcp_workbench.protocol.handshake import ServerProfile

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


def test_what_was_worked_out_is_there_next_time(tmp_path: Path) -> None:
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


def test_filters_count_in_what_is_told_of_the_same_server(tmp_path: Path) -> None:
    summarised(tmp_path)
    (box,) = opened(tmp_path, {**FILES, "toolFilters": ["!read"]})[1].boxes()
    assert (box.tools, box.words) == (0, ())
