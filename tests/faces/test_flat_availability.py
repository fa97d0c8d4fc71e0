"""The face `flat` and servers that are slow, dead or failed: what is listed when, what is said of the rest."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.downstream.lifecycle import MAX_CRASHES, RestartPolicy
from mcp_workbench.engine.router import lists
from mcp_workbench.engine.router.caller_connections import CallerReach
from tests.faces.harness import ERAS, Bench, Seen
from tests.support.client import RpcError
from tests.support.processes import eventually

every_client = pytest.mark.parametrize("era", ERAS)
CHANGED = "notifications/tools/list_changed"


async def instructions(seen: Seen) -> str:
    told = await (seen.client.discover() if seen.era == "modern" else seen.client.initialize())
    text: str = told["instructions"]
    return text


async def listen(seen: Seen) -> None:
    if seen.era == "modern":
        await seen.client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await seen.client.wait_notification("notifications/subscriptions/acknowledged")


def entry_of(seen: Seen, server: str) -> ServerEntry:
    return seen.gateway.catalog.toolboxes["default"][server]


def echo(*flags: object) -> tuple[object, ...]:
    return ("--tool-names", "echo,crash", *flags)


@pytest.mark.requirement("flat.side-by-side")
async def test_servers_are_started_side_by_side_when_the_list_is_asked_for(bench: Bench) -> None:
    boxes = {"default": {f"server{number}": echo() for number in range(4)}}
    async with bench.within(boxes, "flat", plain=True) as seen:
        gates = [seen.gateway.close_gate(f"default/server{number}") for number in range(4)]
        assert seen.gateway.started == []
        listing = await seen.client.start("tools/list")
        # All of them are under way before any of them is there.
        await seen.gateway.wait_for_arrivals(4)
        assert not listing.answered
        for gate in gates:
            gate.set()
        assert len((await listing.result())["tools"]) == 8


@pytest.mark.requirement("flat.first-list", "flat.later")
@every_client
async def test_the_first_list_waits_within_a_limit_and_late_servers_are_announced(bench: Bench, era: str) -> None:
    boxes = {"default": {"quick": echo(), "slow": echo()}}
    async with bench.within(boxes, "flat", era, plain=True, options={"list_timeout": 1.0}) as seen:
        gate = seen.gateway.close_gate("default/slow")
        assert await seen.names("tools/list") == ["quick:echo", "quick:crash"]
        await listen(seen)
        # Waiting once is enough: the second list does not hold the client up again.
        assert await seen.names("tools/list") == ["quick:echo", "quick:crash"]
        gate.set()
        await seen.client.wait_notification(CHANGED)
        assert await seen.names("tools/list") == ["quick:echo", "quick:crash", "slow:echo", "slow:crash"]


@pytest.mark.requirement("flat.nothing-yet", "flat.later")
@every_client
async def test_a_start_that_is_under_way_is_waited_for_while_there_is_nothing_to_list(bench: Bench, era: str) -> None:
    boxes = {"default": {"one": echo(), "two": echo()}}
    async with bench.within(boxes, "flat", era, plain=True, options={"list_timeout": 0.0}) as seen:
        gates = [seen.gateway.close_gate(f"default/{name}") for name in ("one", "two")]
        await listen(seen)
        # The first one, and one that comes when the first has waited.
        listings = []
        for _ in range(2):
            listings.append(await seen.client.start("tools/list"))
            await seen.gateway.wait_for_arrivals(2)
            for _ in range(100):
                await asyncio.sleep(0)
        assert [listing.answered for listing in listings] == [False, False]
        gates[1].set()
        for listing in listings:
            assert [tool["name"] for tool in (await listing.result())["tools"]] == ["two:echo", "two:crash"]
        gates[0].set()
        await eventually(lambda: entry_of(seen, "one").is_live, what="the start of the other")
        await seen.client.wait_notification(CHANGED)
        assert len(await seen.names("tools/list")) == 4


@pytest.mark.requirement("flat.nothing-yet", "flat.all-failed")
@every_client
async def test_the_list_is_an_error_when_the_last_start_has_failed_and_not_before(bench: Bench, era: str) -> None:
    boxes = {"default": {"dead": ("--exit-at-start", 1), "slow": ("--exit-at-start", 2)}}
    async with bench.within(boxes, "flat", era, plain=True, options={"list_timeout": 0.0}) as seen:
        gate = seen.gateway.close_gate("default/slow")
        listing = await seen.client.start("tools/list")
        await eventually(lambda: entry_of(seen, "dead").trouble is not None, what="the end of the first one")
        assert not listing.answered
        gate.set()
        with pytest.raises(RpcError, match="status 2"):
            await listing.result()


@pytest.mark.requirement("flat.later")
async def test_a_client_that_gave_the_list_up_is_told_when_there_is_something_to_see(bench: Bench) -> None:
    async with bench.within({"default": {"slow": echo()}}, "flat", plain=True) as seen:
        gate = seen.gateway.close_gate("default/slow")
        listing = await seen.client.start("tools/list")
        await seen.gateway.wait_for_arrivals(1)
        await seen.client.cancel(listing)
        gate.set()
        await seen.client.wait_notification(CHANGED)
        assert await seen.names("tools/list") == ["slow:echo", "slow:crash"]


@pytest.mark.requirement("flat.first-list")
@every_client
async def test_the_first_list_has_everything_that_is_there_in_time(bench: Bench, era: str) -> None:
    boxes = {"default": {"one": echo(), "two": echo()}}
    async with bench.within(boxes, "flat", era, plain=True, options={"list_timeout": 30.0}) as seen:
        gate = seen.gateway.close_gate("default/two")
        listing = await seen.client.start("tools/list")
        await seen.gateway.wait_for_arrivals(1)
        gate.set()
        assert len((await listing.result())["tools"]) == 4


@pytest.mark.requirement("flat.known")
@every_client
async def test_known_servers_are_listed_at_once_and_started_when_they_are_called(bench: Bench, era: str) -> None:
    boxes = {"default": {"one": echo(), "two": echo("--instructions", "Two.")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        first = await seen.names("tools/list")
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        assert await seen.names("tools/list") == first
        assert (await seen.client.call_tool("two:echo", {"n": 1}))["structuredContent"] == {"n": 1}
        assert seen.gateway.started == ["default/two"]
        assert "From two:\nTwo." in await instructions(seen)


@every_client
async def test_old_lists_of_known_servers_are_fetched_again_and_recent_ones_are_not(
    bench: Bench, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "CACHE_REFRESH_DELAY", 0.0)
    boxes = {"default": {name: echo("--instructions", name) for name in ("one", "two", "three")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        await seen.names("tools/list")
    ages = {"one": 2.0, "two": 0.5, "three": 3.0}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        known = {entry.key_here: entry.name for entry in seen.gateway.catalog.entries()}
        monkeypatch.setattr(ManifestStore, "age", lambda _, key: ages[known[key]] * lists.CACHE_MAX_AGE)
        gate = seen.gateway.close_gate("default/three")
        await seen.names("tools/list")
        await seen.names("tools/list")
        await seen.gateway.wait_for_arrivals(1)
        assert seen.gateway.started == ["default/three"], "the oldest first, and no other beside it"
        gate.set()
        entries = {entry.name: entry for entry in seen.gateway.catalog.entries()}
        await eventually(lambda: entries["one"].is_live, what="the second refresh")
        assert seen.gateway.started == ["default/three", "default/one"]


@every_client
async def test_old_lists_are_not_fetched_while_a_call_is_in_progress(
    bench: Bench, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "CACHE_REFRESH_DELAY", 0.0)
    monkeypatch.setattr(lists, "IDLE_POLL_INTERVAL", 0.0)
    boxes = {"default": {"one": echo(), "two": ("--tool-names", "hang")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        await seen.names("tools/list")
    asked: list[bool] = []
    is_busy = CallerReach.is_busy

    def note(reach: CallerReach) -> bool:
        asked.append(is_busy(reach))
        return asked[-1]

    monkeypatch.setattr(CallerReach, "is_busy", note)
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        monkeypatch.setattr(ManifestStore, "age", lambda _, key: 2 * lists.CACHE_MAX_AGE)
        call = await seen.client.start("tools/call", {"name": "two:hang", "arguments": {}})
        await eventually(lambda: any(each.traffic.call_count for each in seen.gateway.runtime.pool.connections()))
        await seen.names("tools/list")
        await eventually(lambda: len(asked) > 2, what="waiting for the call to end")
        assert all(asked) and seen.gateway.started == ["default/two"]
        await seen.client.cancel(call)
        entries = {entry.name: entry for entry in seen.gateway.catalog.entries()}
        await eventually(lambda: entries["one"].is_live, what="the refresh")


@pytest.mark.requirement("flat.dead")
@every_client
async def test_a_dead_server_blocks_nothing_and_is_named_in_log_and_instructions(
    bench: Bench, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {"default": {"alive": echo(), "dead": ("--exit-at-start", 7)}}
    with caplog.at_level(logging.WARNING, "mcp_workbench"):
        async with bench.within(boxes, "flat", era, plain=True, options={"list_timeout": 60.0}) as seen:
            assert await seen.names("tools/list") == ["alive:echo", "alive:crash"]
            told = (await instructions(seen)).splitlines()
            assert "- alive" in told
            (line,) = [line for line in told if line.startswith("- dead")]
            assert "not available" in line and "exited with status 7" in line
    assert any("[default/dead]" in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("flat.all-failed")
@every_client
async def test_a_list_that_is_empty_because_everything_failed_is_an_error(bench: Bench, era: str) -> None:
    boxes = {"default": {"one": ("--exit-at-start", 1), "two": ("--exit-at-start", 2)}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            with pytest.raises(RpcError) as caught:
                await seen.client.request(method)
            assert caught.value.code == -32603
            for part in ("[default/one]", "status 1", "[default/two]", "status 2"):
                assert part in caught.value.message


@pytest.mark.requirement("flat.all-failed")
@every_client
async def test_a_server_without_tools_is_no_failure(bench: Bench, era: str) -> None:
    boxes = {"default": {"empty": ("--tools", 0), "dead": ("--exit-at-start", 1)}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        assert await seen.names("tools/list") == []


@pytest.mark.requirement("flat.crashed")
@every_client
async def test_tools_of_a_crashed_server_stay_listed_and_work_again(bench: Bench, era: str) -> None:
    boxes = {"default": {"server": echo()}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        before = await seen.names("tools/list")
        await listen(seen)
        assert (await seen.client.call_tool("server:crash"))["isError"] is True
        assert await seen.names("tools/list") == before
        assert (await seen.client.call_tool("server:echo", {"n": 1}))["structuredContent"] == {"n": 1}
        assert seen.client.received(CHANGED) == []


@pytest.mark.requirement("flat.withdrawn", "flat.mended")
@every_client
async def test_tools_of_a_server_that_failed_for_good_are_withdrawn_and_come_back_when_it_is_mended(
    bench: Bench, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long to wait between two starts is not what is tested here.
    monkeypatch.setattr(RestartPolicy, "delay", lambda self, now: 0.0)
    boxes = {"default": {"server": echo(), "other": echo()}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        whole = await seen.names("tools/list")
        await listen(seen)
        seen.gateway.forbid("default/server")
        await seen.client.call_tool("server:crash")
        connection = seen.gateway.only_connection("default/server")
        while connection.policy.total < MAX_CRASHES:
            assert (await seen.client.call_tool("server:echo"))["isError"] is True
        await seen.client.wait_notification(CHANGED)
        assert await seen.names("tools/list") == ["other:echo", "other:crash"]
        assert "- server (not available:" in await instructions(seen)
        result = await seen.client.call_tool("server:echo")
        assert result["isError"] is True and "not restarted" in result["content"][0]["text"]

        seen.gateway.allow("default/server")
        connection.failed_at = float("-inf")  # as if half a minute had passed
        await seen.client.request("tools/list")
        await seen.client.wait_notification(CHANGED, 2)
        assert await seen.names("tools/list") == whole
        assert (await seen.client.call_tool("server:echo", {"n": 1}))["structuredContent"] == {"n": 1}
        assert "not available" not in await instructions(seen)


@pytest.mark.requirement("flat.first-list")
async def test_extensions_of_servers_are_announced_from_the_first_start_on(bench: Bench) -> None:
    boxes = {"default": {"plain": echo(), "tasks": echo("--tasks", "--era", "modern")}}
    async with bench.within(boxes, "flat", "modern", plain=True) as seen:
        told = await seen.client.discover()
        assert told["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert sorted(seen.gateway.started) == ["default/plain", "default/tasks"]
    async with bench.within(boxes, "flat", "modern", plain=True) as seen:
        told = await seen.client.discover()
        assert told["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert seen.gateway.started == [], "what is known is not started for it"


async def test_the_introduction_waits_for_no_server_that_takes_its_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "INTRODUCTION_TIMEOUT", 0.0)
    boxes = {"default": {"fast": echo(), "slow": echo()}}
    async with bench.within(boxes, "flat", "modern", plain=True) as seen:
        gate = seen.gateway.close_gate("default/slow")
        told = await seen.client.discover()
        assert told["instructions"]
        listing = await seen.client.start("tools/list")
        gate.set()
        assert len((await listing.result())["tools"]) == 4, "the list still waits for it"


@pytest.mark.requirement("flat.first-list")
@pytest.mark.parametrize("face", ["flat", "proxy"])
async def test_extensions_that_the_cache_knows_are_announced_in_the_first_handshake(bench: Bench, face: str) -> None:
    """Of a legacy client that comes to a new workbench, in which no server runs."""
    boxes = {"default": {"plain": echo(), "tasks": echo("--tasks", "--era", "modern")}}
    async with bench.within(boxes, "flat", "modern", plain=True) as seen:
        await seen.names("tools/list")
    async with bench.within(boxes, face, "legacy", plain=True) as seen:
        assert (await seen.client.initialize())["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert seen.gateway.started == []
