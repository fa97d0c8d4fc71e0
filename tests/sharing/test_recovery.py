"""Nothing is worse than alone: what clients notice when the shared workbench dies, restarts or is taken down."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.client import Call, RawClient, RpcError
from tests.support.processes import alive, eventually, wait_until
from tests.support.workbench import logged, scripted_entry, write_config

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def boxes(folder: Path, *flags: object) -> dict[str, dict[str, object]]:
    """One server that says when it is started, and what it was asked."""
    starts, log = folder / "starts", folder / "log"
    return {"box": {"server": scripted_entry("--offers", "test", "--starts", starts, "--log", log, *flags)}}


def starts(folder: Path) -> list[int]:
    path = folder / "starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def hanging_call(client: RawClient, folder: Path) -> Call:
    """A call that the server has received and does not answer."""
    arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "hang"}, "arguments": {}}
    call = await client.start_tool("use_tool", arguments)
    log = folder / "log"
    wait_until(lambda: log.exists() and '"hang"' in log.read_text())
    return call


@pytest.mark.requirement("sharing.recovery")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_killed_workbench_fails_requests_in_flight_and_the_client_continues(
    shared: Shared, tmp_path: Path, era: str
) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path), era=era) as client:
        call = await hanging_call(client, tmp_path)
        shared.kill()
        with pytest.raises(RpcError, match=r"the shared workbench died; .* not repeated"):
            await call.result()
        echoed = await client.use_tool("box", "server", "echo", {"text": "again"})
        assert echoed["structuredContent"] == {"text": "again"}
        assert client.garbage == [] and client.unmatched == []
        calls = [each for each in logged(tmp_path / "log", "tools/call") if each["params"]["name"] == "hang"]
        assert len(calls) == 1, "nothing is replayed"
        first, second = starts(tmp_path)
        wait_until(lambda: not alive(first))
        assert alive(second)
        assert "joined the one of process" in client.stderr
    assert len(shared.pids) == 2


@pytest.mark.requirement("sharing.recovery")
async def test_the_state_of_a_legacy_client_is_restored(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path, "--era", "legacy"), "--face", "dynamic") as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        before = await client.request("tools/list")
        await client.request("logging/setLevel", {"level": "error"})
        await client.request("resources/subscribe", {"uri": "test:///one"})
        await shared.kill_under(client)
        assert await client.request("tools/list") == before
        wait_until(lambda: len(logged(tmp_path / "log", "resources/subscribe")) == 2)
        await client.call_tool("box__server_log", {"levels": ["info", "error"]})
        await client.call_tool("box__server_update_resource", {"uri": "test:///one"})
        assert await client.wait_notification(UPDATED) == [{"uri": "test:///one", "x-unknown": 1}]
        told = [each["params"]["level"] for each in client.notifications if each["method"].endswith("/message")]
        assert told == ["error"]
        assert client.unmatched == [], "the answers to what was repeated are not for the client"


@pytest.mark.requirement("sharing.recovery")
async def test_a_stream_of_a_modern_client_goes_on(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path), era="modern") as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        wanted = {"notifications": {"resourceSubscriptions": ["test:///one"], "promptsListChanged": True}}
        stream = await client.start("subscriptions/listen", wanted)
        await client.wait_notification(ACKNOWLEDGED)
        await shared.kill_under(client)
        wait_until(lambda: (tmp_path / "log").read_text().count("test:///one") == 2)
        await client.use_tool("box", "server", "update_resource", {"uri": "test:///one"})
        (update,) = await client.wait_notification(UPDATED)
        assert update["_meta"] == {SUBSCRIPTION: stream.id}
        assert not stream.answered
        assert len([each for each in client.notifications if each["method"] == ACKNOWLEDGED]) == 1


@pytest.mark.requirement("sharing.recovery")
async def test_a_signal_during_a_long_call_keeps_the_streams_of_a_modern_client(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path), era="modern") as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        uris = ["test:///one", "test:///two"]
        streams = []
        for number, uri in enumerate(uris, 1):
            wanted = {"notifications": {"resourceSubscriptions": [uri]}}
            streams.append(await client.start("subscriptions/listen", wanted))
            await client.wait_notification(ACKNOWLEDGED, number)
        call = await hanging_call(client, tmp_path)
        # Unlike `up --restart`, a signal gives calls a few seconds only.
        os.kill(shared.pids[-1], signal.SIGTERM)
        assert (await call.result())["isError"] is True

        def subscribed() -> list[object]:
            asked = (each["params"]["notifications"] for each in logged(tmp_path / "log", "subscriptions/listen"))
            return [each.get("resourceSubscriptions") for each in asked]

        wait_until(lambda: subscribed().count(uris) >= 2)
        for uri in uris:
            await client.use_tool("box", "server", "update_resource", {"uri": uri})
        updates = await client.wait_notification(UPDATED, 2)
        assert [(each["uri"], each["_meta"][SUBSCRIPTION]) for each in updates] == [
            (uri, stream.id) for uri, stream in zip(uris, streams, strict=True)
        ]
        assert not any(stream.answered for stream in streams)
        assert client.garbage == [] and client.unmatched == []


async def test_an_open_question_is_withdrawn_when_the_workbench_dies(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path, "--era", "legacy"), capabilities={"elicitation": {}}) as client:
        arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "ask"}, "arguments": {}}
        client.silent.add("elicitation/create")
        call = await client.start_tool("use_tool", arguments)
        await client.wait_for(lambda: bool(client.server_requests), "the question")
        (question,) = client.server_requests
        shared.kill()
        (withdrawn,) = await client.wait_notification("notifications/cancelled")
        assert withdrawn["requestId"] == question["id"]
        with pytest.raises(RpcError, match="the shared workbench died"):
            await call.result()
        await client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}})
        call = await client.start_tool("use_tool", arguments)
        await client.wait_for(lambda: len(client.server_requests) == 2, "the next question")
        assert client.server_requests[1]["id"] != question["id"]


async def test_a_restart_is_not_noticed(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path)) as client, shared.client(boxes(tmp_path), era="modern") as other:
        await client.use_tool("box", "server", "echo", {"text": "before"})
        done = run("restart")
        assert done.status == 0, done
        for each in (client, other):
            echoed = await each.use_tool("box", "server", "echo", {"text": "after"})
            assert echoed["structuredContent"] == {"text": "after"}
            assert each.unmatched == [] and each.garbage == []
    assert len(shared.pids) == 2


async def test_a_restart_waits_for_a_call_that_asks_its_user(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path, "--era", "legacy"), capabilities={"elicitation": {}}) as client:
        client.silent.add("elicitation/create")
        arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "ask"}, "arguments": {}}
        call = await client.start_tool("use_tool", arguments)
        await client.wait_for(lambda: bool(client.server_requests), "the question")
        assert (await asyncio.to_thread(run, "restart")).status == 0
        assert len(shared.pids) == 2 and not call.answered
        (question,) = client.server_requests
        await client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}})
        assert "isError" not in await call.result()
        await client.wait_for(lambda: "joined the one of process" in client.stderr, "the front end to move over")
        assert await client.use_tool("box", "server", "echo", {"text": "after"})


async def test_a_signal_ends_a_workbench_that_finishes_calls_at_once(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path)) as client:
        call = await hanging_call(client, tmp_path)
        assert (await asyncio.to_thread(run, "restart")).status == 0
        os.kill(shared.pids[0], signal.SIGTERM)
        assert (await call.result())["isError"] is True
        assert await client.use_tool("box", "server", "echo", {"text": "after"})


@pytest.mark.parametrize("is_shared", [False, True])
async def test_down_also_ends_a_workbench_that_finishes_calls(shared: Shared, tmp_path: Path, is_shared: bool) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path), shared=is_shared) as client:
        call = await hanging_call(client, tmp_path)
        assert (await asyncio.to_thread(run, "restart")).status == 0
        done = await asyncio.to_thread(run, "down")
        assert done.status == 0 and done.stdout.count(" has ended.") == 2, done
        assert "1 client goes on alone" in done.stdout
        assert (await call.result())["isError"] is True
        echoed = await client.use_tool("box", "server", "echo", {"text": "alone"})
        assert echoed["structuredContent"] == {"text": "alone"}
        assert "the shared workbench was stopped; serving alone from now on" in client.stderr
    assert not shared.is_running and len(shared.pids) == 2


@pytest.mark.requirement("sharing.alone")
async def test_after_down_a_client_goes_on_alone(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path, "--era", "legacy"), "--face", "dynamic") as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        before = await client.request("tools/list")
        await client.request("resources/subscribe", {"uri": "test:///one"})
        done = run("down")
        assert "1 client goes on alone" in done.stdout
        assert await client.request("tools/list") == before
        wait_until(lambda: len(logged(tmp_path / "log", "resources/subscribe")) == 2)
        await client.call_tool("box__server_update_resource", {"uri": "test:///one"})
        await client.wait_notification(UPDATED)
        assert "the shared workbench was stopped; serving alone from now on" in client.stderr
        assert client.unmatched == []
    assert not shared.is_running


@pytest.mark.requirement("sharing.alone")
async def test_a_workbench_that_keeps_dying_is_abandoned(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path)) as client:
        for _ in range(3):
            await shared.kill_under(client)
        shared.kill()
        await client.wait_for(lambda: "serving alone" in client.stderr, "the front end to give up")
        assert "died 4 times within a minute; serving alone from now on" in client.stderr
        echoed = await client.use_tool("box", "server", "echo", {"text": "alone"})
        assert echoed["structuredContent"] == {"text": "alone"}
    assert not shared.is_running


async def test_a_killed_front_end_leaves_nothing_to_do(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    toolboxes = boxes(tmp_path)
    toolboxes["own"] = {"server": scripted_entry("--starts", tmp_path / "own", share="session")}
    async with shared.client(toolboxes, expect_exit=False) as client:
        own = (await client.use_tool("own", "server", "pid", {}))["structuredContent"]["pid"]
        await hanging_call(client, tmp_path)
        os.kill(client.pid, signal.SIGKILL)
        wait_until(lambda: "leaves: the front end was closed" in shared.log)
        wait_until(lambda: not alive(own), what="the end of a server that was its own")
        wait_until(lambda: len(logged(tmp_path / "log", "notifications/cancelled")) == 1, what="the end of its call")
    (server,) = starts(tmp_path)
    assert alive(server), "it is there for others until it has been idle for a while"


async def test_a_signal_lets_calls_finish(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path), expect_exit=False) as client:
        await client.use_tool("box", "server", "echo", {"text": "ready"})
        arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "slow"}, "arguments": {"seconds": 0.5}}
        call = await client.start_tool("use_tool", arguments)
        wait_until(lambda: '"slow"' in (tmp_path / "log").read_text())
        os.kill(client.pid, signal.SIGTERM)
        assert "error" not in await call.response()
        assert await client.wait_exit() == 0


async def test_a_restart_costs_no_call_that_is_quick(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    done: list[str] = []
    is_over = asyncio.Event()

    async def call_on_and_on(client: RawClient, name: str) -> None:
        while not is_over.is_set():
            text = f"{name}-{len(done)}"
            echoed = await client.use_tool("box", "server", "echo", {"text": text})
            assert echoed["structuredContent"] == {"text": text}
            done.append(text)

    async with shared.client(boxes(tmp_path)) as one, shared.client(boxes(tmp_path), era="modern") as other:
        async with asyncio.TaskGroup() as group:
            group.create_task(call_on_and_on(one, "one"))
            group.create_task(call_on_and_on(other, "other"))
            for verb in ("restart", "restart", "down"):
                assert (await asyncio.to_thread(run, verb)).status == 0
                before = len(done)
                await eventually(lambda count=before: len(done) > count + 10)  # type: ignore[misc]
            is_over.set()
        for client in (one, other):
            assert client.garbage == [] and client.unmatched == []
    called = [each["params"]["arguments"]["text"] for each in logged(tmp_path / "log", "tools/call")]
    assert sorted(called) == sorted(done), "each was carried out, and none twice"


async def test_the_state_of_a_client_is_restored_however_long_it_is(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(boxes(tmp_path, "--era", "legacy")) as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        # Together more than a front end holds back of a message.
        uris = [f"test:///{number}-{'x' * 4000}" for number in range(300)]
        for uri in uris:
            await client.request("resources/subscribe", {"uri": uri})
        assert client.garbage == []
        await shared.kill_under(client)
        assert await client.request("ping") == {}

        def subscribed() -> list[str]:
            return [each["params"]["uri"] for each in logged(tmp_path / "log", "resources/subscribe")]

        await eventually(lambda: len(subscribed()) >= 2 * len(uris))
        assert sorted(subscribed()) == sorted(2 * uris)
        assert client.garbage == [] and client.unmatched == []


@pytest.mark.requirement("sharing.recovery")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_toolboxes_that_came_and_went_meanwhile_are_reported_with_the_next_result(
    shared: Shared, tmp_path: Path, era: str
) -> None:
    shared.up()
    box = boxes(tmp_path)
    async with shared.client({**box, "old": {"server": scripted_entry()}}, era=era) as client:
        assert len((await client.use_tool("box", "server", "echo", {"text": "1"}))["content"]) == 1
        os.kill(shared.pids[-1], signal.SIGSTOP)
        write_config(shared.folder, {**box, "fresh": {"server": scripted_entry()}}, budget=None)
        await shared.kill_under(client)
        result = await client.use_tool("box", "server", "echo", {"text": "1"})
        assert result["content"][-1]["text"] == (
            "Note: these toolboxes are new: fresh.\nNote: these toolboxes were removed: old."
        )
        assert len((await client.use_tool("box", "server", "echo", {"text": "1"}))["content"]) == 1, "once"
