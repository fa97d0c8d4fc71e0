"""The first search after a restart reads the manifests of what it finds, and answers as if it had read all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.economy.index import Index
from tests.support.in_process_workbench import Server, tool, workbench_with

# No two servers have a word in common.
THINGS = ("invoice", "weather", "calendar", "photo", "recipe", "train", "novel", "garden", "violin", "planet")
BOXES = ("home", "work")


def servers(**settings: Any) -> dict[str, dict[str, Server]]:
    made = {
        thing: Server(tool(f"{thing}_find", f"Find one {thing}"), tool(f"{thing}_add", f"Add one {thing}"), **settings)
        for thing in THINGS
    }
    return {box: {thing: made[thing] for thing in THINGS[place::2]} for place, box in enumerate(BOXES)}


def starts(boxes: dict[str, dict[str, Server]]) -> dict[str, int]:
    return {name: server.starts for box in boxes.values() for name, server in box.items() if server.starts}


class Work:
    """Counts the manifests that are read, and the tools that are indexed."""

    def __init__(self) -> None:
        self.read = 0
        self.indexed: list[int] = []


@contextmanager
def counted() -> Iterator[Work]:
    work = Work()
    load, build = ManifestStore.load, Index.build

    def loading(store: ManifestStore, key: str) -> Offer | None:
        work.read += 1
        return load(store, key)

    def building(*arguments: Any, **options: Any) -> Index:
        index = build(*arguments, **options)
        work.indexed.append(len(index.keys))
        return index

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestStore, "load", loading)
        patch.setattr(Index, "build", building)
        yield work


async def search_once(folder: Path, **settings: Any) -> str:
    """List and index everything, as in a first process."""
    async with workbench_with(folder, servers(), **settings) as workbench:
        return await workbench.said(query="violin")


async def test_only_manifests_of_hits_are_read(tmp_path: Path) -> None:
    said = await search_once(tmp_path)
    boxes = servers()
    with counted() as work:
        async with workbench_with(tmp_path, boxes) as workbench:
            assert await workbench.said(query="violin") == said
            assert (work.read, work.indexed, starts(boxes)) == (1, [], {})
            assert await workbench.said(query="violin") == said
            assert work.read == 1
            found = await workbench.said(query="planet or recipe")
            assert "planet_find" in found and "recipe_find" in found
            assert (work.read, work.indexed, starts(boxes)) == (3, [], {})


async def test_a_search_in_one_toolbox_uses_the_index_of_all(tmp_path: Path) -> None:
    await search_once(tmp_path)
    with counted() as work:
        async with workbench_with(tmp_path, servers()) as workbench:
            found = await workbench.said(query="violin", toolbox_name="home")
            assert "violin_find" in found
            assert "planet" not in await workbench.said(query="planet", toolbox_name="home")
            assert (work.read, work.indexed) == (len(THINGS) // 2, [])
            assert "planet_find" in await workbench.said(query="planet")
            assert (work.read, work.indexed) == (len(THINGS) // 2 + 1, [])


async def test_a_search_in_one_toolbox_indexes_all_that_is_known(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, servers()) as workbench:
        for box in BOXES:
            await workbench.open(toolbox_name=box)
    with counted() as work:
        async with workbench_with(tmp_path, servers()) as workbench:
            await workbench.open(query="violin", toolbox_name="home")
            await workbench.open(query="planet")
    assert work.indexed == [2 * len(THINGS)]


async def test_a_server_without_a_manifest_is_listed_and_the_others_are_not_started(tmp_path: Path) -> None:
    await search_once(tmp_path)
    boxes = servers()
    boxes["work"]["sailing"] = Server(tool("sailing_find", "Find one sailing boat"))
    async with workbench_with(tmp_path, boxes) as workbench:
        assert "sailing_find" in await workbench.said(query="sailing boat")
        assert "planet_find" in await workbench.said(query="planet")
    assert starts(boxes) == {"sailing": 1}


async def test_manifest_written_by_another_process_is_found(tmp_path: Path) -> None:
    await search_once(tmp_path)
    changed = servers()
    changed["work"]["planet"].tools.append(tool("comet_find", "Find one comet"))
    async with workbench_with(tmp_path, changed) as workbench:
        await workbench.open(toolbox_name="work")
        await workbench.use("work/planet/planet_find")
    with counted() as work:
        async with workbench_with(tmp_path, servers()) as workbench:
            assert "comet_find" in await workbench.said(query="comet")
    assert work.indexed == [2 * len(THINGS) + 1]


async def test_a_manifest_that_is_damaged_hides_no_other_server(tmp_path: Path, cache_folder: Path) -> None:
    await search_once(tmp_path)
    found = [path for path in cache_folder.rglob("*.json") if b"violin_find" in path.read_bytes()]
    found[0].write_bytes(b"{")
    boxes = servers()
    async with workbench_with(tmp_path, boxes) as workbench:
        said = await workbench.said(query="violin planet")
        assert "planet_find" in said
        assert "violin_find" in await workbench.said(query="violin planet")
    assert starts(boxes) == {"violin": 1}


async def test_filters_of_a_server_that_was_not_read_count(tmp_path: Path) -> None:
    await search_once(tmp_path)
    boxes = servers(toolFilters=["*_find"])
    async with workbench_with(tmp_path, boxes) as workbench:
        said = await workbench.said(query="add one violin")
        assert "violin_find" in said and "violin_add" not in said
