"""The first search after a restart: an index that was made of the same manifests is used, without looking at a single
definition, and finds the same as one that is made anew."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from bench.echo_server import tool_definition
from mcp_workbench.engine.catalog import tool_index as module
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Definitions, Offer
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.economy.fields import document
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.protocol.handshake import ServerProfile

SERVERS = ("first", "second")
TOOLS = 150


class Made:
    """Counts the definitions that are hashed, and the indexes that are built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hashed = self.built = 0
        digest_of, build = module._digest_of, Index.build

        def counting(tools: Definitions) -> str:
            self.hashed += len(tools)
            return digest_of(tools)

        def building(*arguments: Any, **options: Any) -> Index:
            self.built += 1
            return build(*arguments, **options)

        monkeypatch.setattr(module, "_digest_of", counting)
        monkeypatch.setattr(Index, "build", building)

    def taken(self) -> tuple[int, int]:
        taken, self.hashed, self.built = (self.hashed, self.built), 0, 0
        return taken


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def started(folder: Path, **settings: Any) -> tuple[Catalog, ToolIndex]:
    """A workbench that has just been started, with what is on the disk."""
    servers = {name: {"command": "npx", "args": [name], **settings} for name in SERVERS}
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"toolboxes": {"box": {"description": "all", "mcpServers": servers}}}))
    store = ManifestStore(lambda: str(folder / "manifests"))
    catalog = Catalog(load(str(path), {}), store)
    catalog.load(catalog.entries())
    return catalog, ToolIndex(catalog, store)


def learn(folder: Path, *, shift: int = 0) -> None:
    catalog, _ = started(folder)
    for number, entry in enumerate(catalog.entries()):
        definitions = [tool_definition(shift + number * TOOLS + each) for each in range(TOOLS)]
        tools = {each["name"]: Raw(json.dumps(each).encode()) for each in definitions}
        entry.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": tools}))


def test_after_a_restart_no_definition_is_looked_at(tmp_path: Path, made: Made) -> None:
    learn(tmp_path)
    started(tmp_path)[1].index()
    assert made.taken() == (len(SERVERS) * TOOLS, 1)
    index = started(tmp_path)[1].index()
    assert made.taken() == (0, 0)
    assert len(index.keys) == len(SERVERS) * TOOLS


def test_stored_index_finds_the_same_as_a_new_one(tmp_path: Path) -> None:
    learn(tmp_path)
    started(tmp_path)[1].index()
    catalog, tool_index = started(tmp_path)
    stored = tool_index.index()
    documents = [document(tool) for tool in tool_index.tools(catalog.entries())]
    anew = Index.build(documents)
    words = sorted({word for each in documents for word in f"{each.name} {each.description}".replace("_", " ").split()})
    chosen = random.Random(24)
    for _ in range(200):
        query = " ".join(chosen.sample(words, chosen.randint(1, 6)))
        assert stored.search(query, limit=20) == anew.search(query, limit=20), query
        within = set(chosen.sample(stored.keys, 40))
        assert stored.search(query, within=within) == anew.search(query, within=within), query


def test_a_manifest_that_another_process_has_replaced_is_indexed_anew(tmp_path: Path, made: Made) -> None:
    learn(tmp_path)
    started(tmp_path)[1].index()
    learn(tmp_path, shift=1000)
    made.taken()
    catalog, tool_index = started(tmp_path)
    index = tool_index.index()
    assert made.taken() == (len(SERVERS) * TOOLS, 1)
    assert set(index.keys) == {tool.path for tool in tool_index.tools(catalog.entries())}


def test_a_manifest_replaced_while_it_is_read_is_not_taken_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    learn(tmp_path)
    load_offer = ManifestStore.load

    def replaced_meanwhile(store: ManifestStore, key: str) -> Offer | None:
        offer = load_offer(store, key)
        monkeypatch.setattr(ManifestStore, "load", load_offer)
        learn(tmp_path, shift=1000)
        return offer

    monkeypatch.setattr(ManifestStore, "load", replaced_meanwhile)
    old = started(tmp_path)[1].index()
    new = started(tmp_path)[1].index()
    catalog, tool_index = started(tmp_path)
    assert old.keys != new.keys
    assert set(new.keys) == {tool.path for tool in tool_index.tools(catalog.entries())}


def test_a_manifest_in_another_state_with_the_same_tools_is_not_indexed_again(tmp_path: Path, made: Made) -> None:
    learn(tmp_path)
    started(tmp_path)[1].index()
    made.taken()
    for path in (tmp_path / "manifests").glob("*.json"):
        os.utime(path, (1_900_000_000, 1_900_000_000))
    started(tmp_path)[1].index()
    assert made.taken() == (len(SERVERS) * TOOLS, 0)
    started(tmp_path)[1].index()
    assert made.taken() == (0, 0)


def test_index_applies_filters_and_user_lists(tmp_path: Path, made: Made) -> None:
    learn(tmp_path)
    started(tmp_path)[1].index()
    catalog, tool_index = started(tmp_path, toolFilters=["search_*"])
    found = tool_index.index()
    assert 0 < len(found.keys) < len(SERVERS) * TOOLS
    assert all("/search_" in key for key in found.keys)
    _, second = catalog.entries()
    second.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": {"search_all": Raw(b'{"name":"search_all"}')}}))
    catalog.notify(second, frozenset({"tools"}))
    assert "box/second/search_all" in tool_index.index().keys
