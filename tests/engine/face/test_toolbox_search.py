"""`open_toolbox` with `query` through the real face: across servers that are known, unknown, slow and broken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.router import toolboxes
from mcp_workbench.engine.router.lists import STARTS_AT_ONCE
from mcp_workbench.errors import DownstreamError
from tests.support.clock import Clock
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with


def boxes() -> dict[str, dict[str, Server]]:
    """Three toolboxes with a few servers and tools each."""
    return {
        "dev": {
            "files": Server(
                tool("read_file", "Reads a file from disk.", path_="string"),
                tool("write_file", "Writes text to a file.", path_="string", text_="string"),
            ),
            "git": Server(
                tool("create_branch", "Creates a branch.", name_="string"),
                tool("log", "Shows the commits of a branch.", branch="string"),
            ),
        },
        "home": {"weather": Server(tool("forecast", "Tells the weather of the next days.", city_="string"))},
        "büro": {
            "post": Server(
                tool("senden", "Verschickt eine Nachricht mit Anhängen.", empfänger_="string"),
                tool("天气查询", "查询城市的天气预报", 城市_="string"),
            )
        },
    }


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tools each index that is built has."""
    built: list[int] = []
    build = Index.build.__func__  # type: ignore[attr-defined]

    def counting(cls: type[Index], entries: Any, *, stamp: str = "") -> Index:
        index: Index = build(cls, entries, stamp=stamp)
        built.append(len(index.keys))
        return index

    monkeypatch.setattr(Index, "build", classmethod(counting))
    return built


async def test_unmatched_need_lists_the_toolboxes(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        answer = await seen.said(query="xylophone")
        assert answer.startswith("Nothing matches.") and "\n- dev" in answer and "\n- home" in answer
        inside = await seen.said(query="xylophone", toolbox_name="dev")
        assert inside.endswith("\nIts tools: read_file, write_file, create_branch, log") and "home" not in inside


async def test_a_need_is_searched_across_servers_that_are_not_listed_yet(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.open(query="what will the weather be like tomorrow")
        lines = text_of(result).split("\n")
        assert lines[1] == "home/weather/forecast(city: string)"
        assert lines[2] == "  Tells the weather of the next days."
        assert [server.starts for box in every.values() for server in box.values()] == [1, 1, 1, 1]


async def test_search_results_state_shown_and_total_counts(tmp_path: Path) -> None:
    many = Server(*(tool(f"read_{number}", "Reads.") for number in range(100)))
    async with workbench_with(tmp_path, {"dev": {"many": many}}) as seen:
        assert (await seen.said(query="read")).startswith("10 of 100: signatures, the first 3 with text\n")
        assert (await seen.said(query="read", limit=3)).startswith("3 of 100: signatures, with text\n")
        assert (await seen.said(query="read", limit=90)).startswith("50 of 100: ")


async def test_a_server_in_many_toolboxes_does_not_displace_different_tools(tmp_path: Path) -> None:
    readers = [tool(f"read_{number}", "Reads " + "pages " * number) for number in range(15)]
    async with workbench_with(tmp_path, {f"box{number}": {"same": Server(*readers)} for number in range(9)}) as seen:
        said = await seen.said(query="read")
        assert said.startswith("10 of 135: ")
        assert len(set(re.findall(r"^box\d/same/(\w+)", said, re.MULTILINE))) == 10
        assert " and 5 more)" in said


async def test_empty_search_gives_a_hint(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert "Try other words" in await seen.said(query="zzzzqqq")


async def test_a_search_inside_a_toolbox_stays_inside(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        text = await seen.said(query="file weather", toolbox_name="dev")
        assert "dev/files/read_file" in text and "home/" not in text
        assert every["home"]["weather"].starts == 0


@pytest.mark.parametrize(
    ("need", "path"),
    [
        ("eine Nachricht verschicken", "büro/post/senden"),
        ("ANHANGEN", "büro/post/senden"),
        ("城市天气", "büro/post/天气查询"),
        ("empfänger", "büro/post/senden"),
    ],
)
async def test_other_languages_are_found(tmp_path: Path, need: str, path: str) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert f"\n{path}(" in await seen.said(query=need)


@pytest.mark.parametrize("detail", ["full", "lean"])
async def test_full_definitions_of_hits_can_be_requested(tmp_path: Path, detail: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        content = (await seen.open(query="weather forecast", detail=detail, limit=1))["structuredContent"]
        (shown,) = content["tools"]
        assert shown["name"] == "forecast"
        assert shown["inputSchema"]["required"] == ["city"]
        assert content["matched"] >= 1


async def test_a_form_that_is_asked_for_is_that_of_every_tool(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert "\nhome/weather/forecast - Tells the weather of the next days." in await seen.said(
            query="forecast", detail="names"
        )


async def test_a_tool_of_the_answer_can_be_used_as_it_is_written(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        path = (await seen.said(query="create a branch")).split("\n")[1].partition("(")[0]
        await seen.use(path, {"name": "x"})
        assert every["dev"]["git"].calls == [("create_branch", {"name": "x"})]


# servers that fail


async def test_a_server_that_fails_is_reported_and_the_others_are_searched(tmp_path: Path) -> None:
    every = boxes()
    every["dev"]["git"].failing = "no licence found"
    async with workbench_with(tmp_path, every) as seen:
        text = await seen.said(query="read a file")
        assert text.split("\n")[1].startswith("dev/files/read_file(")
        assert "Not available: git: no licence found" in text


async def test_repeated_search_does_not_restart_a_server_that_just_failed(tmp_path: Path) -> None:
    every = boxes()
    every["dev"]["git"].failing = "no licence found"
    async with workbench_with(tmp_path, every) as seen:
        await seen.said(query="read a file")
        assert "no licence found" in await seen.said(query="write a file")
        assert every["dev"]["git"].starts == 1


async def searched_until_patience_ends(
    clock: Clock, seen: ConnectedClient, heard: Callable[[], bool], **arguments: Any
) -> str:
    """The answer of a search that has waited as long as it does, for everything but what is `heard`."""
    call = await seen.client.start_tool("open_toolbox", arguments)
    while not heard():
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    clock.advance(toolboxes.SEARCH_PATIENCE)
    return text_of(await call.result())


async def test_a_slow_server_does_not_hold_up_a_search_and_is_reported_as_starting(tmp_path: Path) -> None:
    clock = Clock()
    every = boxes()
    every["home"]["weather"].gate = asyncio.Event()
    async with workbench_with(tmp_path, every) as seen:
        entries = list(seen.gateway.catalog.entries())

        def heard() -> bool:
            return sum(entry.offer is not None for entry in entries) == 3 and every["home"]["weather"].starts == 1

        text = await searched_until_patience_ends(clock, seen, heard, query="read a file")
        assert text.split("\n")[1].startswith("dev/files/read_file(")
        assert "\nStill starting: weather (ask again in a moment)" in text
        assert "Not available" not in text
        every["home"]["weather"].gate.set()
        assert "home/weather/forecast" in await seen.said(query="weather forecast")
        assert every["home"]["weather"].starts == 1


async def test_many_unknown_servers_are_not_started_all_at_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    servers = {f"server{number:02}": Server(tool(f"tool{number:02}", "Works.")) for number in range(30)}
    for server in servers.values():
        server.gate = gate
    async with workbench_with(tmp_path, {"dev": servers}) as seen:
        call = await seen.client.start_tool("open_toolbox", {"query": "tool29"})
        started = [0]
        while started[-1] < STARTS_AT_ONCE:
            await asyncio.sleep(0)
            started.append(sum(server.starts for server in servers.values()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(server.starts for server in servers.values()) == STARTS_AT_ONCE
        gate.set()
        assert "dev/server29/tool29" in text_of(await call.result())


async def test_servers_that_were_started_for_a_search_go_again_unless_they_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolboxes, "LISTED_STAYS", 0.3)
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.said(query="read a file")
        await seen.use("dev/files/read_file", {"path": "x"})
        # Twice where the machine was too slow to call it in time.
        starts = every["dev"]["files"].starts
        states: dict[str, State] = {}
        while len(states) < 4 or list(states.values()).count(State.STOPPED) < 3:
            await asyncio.sleep(0.02)
            states = {each.label: each.state for each in seen.gateway.runtime.pool.connections()}
        assert states.pop("dev/files") is State.READY
        assert set(states.values()) == {State.STOPPED}
        await seen.use("dev/git/log")
        assert (every["dev"]["git"].starts, every["dev"]["files"].starts) == (2, starts)


async def test_thirty_broken_servers_do_not_break_the_budget(tmp_path: Path) -> None:
    servers = {f"server{number}": Server() for number in range(30)}
    for server in servers.values():
        server.failing = "it does not start: " + "stderr " * 500
    async with workbench_with(
        tmp_path, {"dev": {**servers, "files": Server(tool("read", "Reads."))}}, budget=400
    ) as seen:
        text = await seen.said(query="read")
        assert len(text.encode()) <= 4 * 400
        assert "dev/files/read()" in text
        assert "30 servers cannot be used" in text


@pytest.mark.parametrize("budget", [300, 400, 600, 1000, 6000])
@pytest.mark.parametrize("limit", [1, 10, 50])
async def test_an_answer_is_never_over_the_budget(tmp_path: Path, budget: int, limit: int) -> None:
    properties: dict[str, Any] = {f"argument_{number}_": "string" for number in range(20)}
    many = Server(*(tool(f"read_{number}", "Reads. " * 200, **properties) for number in range(60)))
    async with workbench_with(tmp_path, {"dev": {"many": many}}, budget=budget) as seen:
        text = await seen.said(query="read", limit=limit)
        assert len(text.encode()) <= 4 * budget
        assert "dev/many/read_" in text


# the index


async def test_the_index_is_built_once_and_remembered(tmp_path: Path, builds: list[int]) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        for need in ("read", "write", "weather"):
            await seen.said(query=need)
        assert builds == [7]
    async with workbench_with(tmp_path, boxes()) as seen:
        assert "home/weather/forecast" in await seen.said(query="weather")
        assert builds == [7]


async def test_the_index_is_rebuilt_when_a_server_lists_something_else(tmp_path: Path, builds: list[int]) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.said(query="read")
        git = every["dev"]["git"]
        git.tools.append(tool("blame", "Tells who wrote a line.", path_="string"))
        git.say_changed()
        entry = seen.gateway.catalog.toolboxes["dev"]["git"]
        while "blame" not in entry.tools:
            await asyncio.sleep(0.01)
        assert "dev/git/blame" in await seen.said(query="who wrote this line")
        await seen.said(query="read")
        assert builds == [7, 8]


async def test_a_server_that_says_the_same_again_costs_no_new_index(tmp_path: Path, builds: list[int]) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.said(query="read")
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.said(query="read")
        assert every["dev"]["files"].starts == 0
        await seen.open(toolbox_name="dev")
        entry = seen.gateway.catalog.toolboxes["dev"]["files"]
        while not entry.is_live:
            await asyncio.sleep(0.01)
        await seen.said(query="write")
        assert builds == [7]


async def test_a_server_that_failed_for_good_is_not_found_and_costs_no_new_index(
    tmp_path: Path, builds: list[int]
) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        assert "home/weather/forecast" in await seen.said(query="weather")
        entry = seen.gateway.catalog.toolboxes["home"]["weather"]
        (connection,) = (each for each in seen.gateway.runtime.pool.connections() if each.label == "home/weather")
        connection.request_stop()
        await connection.wait_stopped()
        every["home"]["weather"].failing = "gone"
        seen.gateway.catalog.servers.withdraw(entry, DownstreamError("gone"))
        text = await seen.said(query="weather")
        assert "home/weather/forecast" not in text and "Not available: weather: gone" in text
        assert builds == [7]


async def test_without_a_cache_nothing_is_remembered(tmp_path: Path, builds: list[int]) -> None:
    for _ in range(2):
        async with workbench_with(tmp_path, boxes(), options={"use_cache": False}) as seen:
            assert "home/weather/forecast" in await seen.said(query="weather")
    assert builds == [7, 7]
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"\x00" * 1000])
async def test_a_damaged_index_is_rebuilt(tmp_path: Path, builds: list[int], damage: bytes) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.said(query="read")
    (stored,) = tmp_path.rglob("index-*.bin")
    stored.write_bytes(damage)
    async with workbench_with(tmp_path, boxes()) as seen:
        assert "home/weather/forecast" in await seen.said(query="weather")
    assert builds == [7, 7]


async def test_two_searches_at_once_build_one_index(tmp_path: Path, builds: list[int]) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        calls = [await seen.client.start_tool("open_toolbox", {"query": need}) for need in ("read", "weather", "log")]
        for call in calls:
            assert " of " in text_of(await call.result())
        assert builds == [7]


async def test_servers_that_are_only_slow_are_not_said_to_be_unusable(tmp_path: Path) -> None:
    clock = Clock()
    gate = asyncio.Event()
    every: dict[str, dict[str, Server]] = {"dev": {"files": Server(tool("read_file", "Reads a file."))}}
    for number in range(300):
        every[f"box-{number}"] = {"slow": Server(tool("t"))}
        every[f"box-{number}"]["slow"].gate = gate
    every["box-0"]["slow"].gate = None
    every["box-0"]["slow"].failing = "no licence"
    async with workbench_with(tmp_path, every, budget=400) as seen:
        files, broken = (
            seen.gateway.catalog.toolboxes[box][name] for box, name in (("dev", "files"), ("box-0", "slow"))
        )

        def heard() -> bool:
            return files.offer is not None and broken.trouble is not None

        text = await searched_until_patience_ends(clock, seen, heard, query="read a file")
        assert "dev/files/read_file(" in text
        assert "299 servers still starting (ask again in a moment)" in text
        assert "Not available: box-0/slow: 1 server cannot be used" in text
        gate.set()
