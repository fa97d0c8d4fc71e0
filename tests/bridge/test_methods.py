"""Methods that only one era knows, and those that nobody knows."""

from __future__ import annotations

from functools import partial

import pytest

from tests.bridge.in_process import ERAS, META, Json, in_process_workbench, until
from tests.support.refusals import refused

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"


@pytest.mark.bridge("one-era-only")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ping", {}),
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "test:///one"}),
        ("resources/unsubscribe", {"uri": "test:///one"}),
    ],
)
async def test_methods_removed_in_the_modern_era_are_unknown_there(server_era: str, method: str, params: Json) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("modern")
        await workbench.connect(client)
        # A legacy server behind us would know it; that is not the point.
        await refused(workbench, lambda: client.send_request(method, params), -32601)


@pytest.mark.bridge("one-era-only")
@pytest.mark.parametrize("server_era", ERAS)
async def test_methods_added_in_the_modern_era_are_unknown_in_the_legacy_one(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        for method in ("server/discover", "subscriptions/listen"):
            await refused(workbench, partial(client.send_request, method, {"notifications": {}}), -32601)


@pytest.mark.bridge("unknown-methods")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_method_that_we_do_not_know_is_passed_on_where_only_one_server_can_be_meant(
    client_era: str, server_era: str
) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.send_request("example/custom", {"a": [1]})
        (call,) = server.requests("example/custom")
        assert call["params"]["a"] == [1]
        assert (META + "protocolVersion" in call["params"].get("_meta", {})) is (server_era == "modern")
        server.reply(call, {"b": 2})
        assert request.result["b"] == 2
        assert client_era == "legacy" or request.result["resultType"] == "complete"


@pytest.mark.bridge("unknown-methods")
@pytest.mark.parametrize("client_era", ERAS)
async def test_where_several_servers_could_be_meant_it_is_unknown(client_era: str) -> None:
    async with in_process_workbench("legacy", servers={"server": "legacy", "other": "modern"}) as workbench:
        client = workbench.client(client_era)
        await refused(workbench, lambda: client.send_request("example/custom"), -32601)
        assert workbench.gateway.fake_servers == []


@pytest.mark.bridge("tasks")
async def test_a_task_of_a_modern_server_is_found_again_by_its_handle() -> None:
    async with in_process_workbench("modern", servers={"server": "modern", "other": "modern"}) as workbench:
        client = workbench.client("modern", {"extensions": {TASKS: {}}})
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        request = client.call()
        server.reply(server.call, {"resultType": "task", "taskId": "t-1", "status": "working", "ttlMs": 1000})
        assert request.result["taskId"] == "t-1"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            asked = client.send_request(method, {"taskId": "t-1"})
            (call,) = server.requests(method)
            server.reply(call, {"resultType": "complete", "taskId": "t-1"})
            assert asked.result["taskId"] == "t-1"
            assert other.requests(method) == []


@pytest.mark.bridge("tasks")
async def test_a_handle_that_another_server_gave_out_is_not_taken_over() -> None:
    task = {"resultType": "task", "taskId": "1", "status": "working", "ttlMs": 1000}
    async with in_process_workbench("modern", servers={"server": "modern", "other": "modern"}) as workbench:
        client = workbench.client("modern", {"extensions": {TASKS: {}}})
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        first = client.call()
        server.reply(server.call, task)
        second = client.send_request("tools/call", {"name": "box:other:work", "arguments": {}})
        call = other.call
        other.reply(call, task)
        handles = [first.result["taskId"], second.result["taskId"]]
        assert handles[0] == "1" and handles[1].startswith("1~")
        for handle, owner, stranger in ((handles[0], server, other), (handles[1], other, server)):
            before = len(stranger.requests("tasks/get"))
            asked = client.send_request("tasks/get", {"taskId": handle})
            call = owner.requests("tasks/get")[-1]
            assert call["params"]["taskId"] == "1", "each server hears its own"
            owner.reply(call, {"resultType": "complete", "taskId": "1", "status": "completed"})
            assert asked.result["taskId"] == handle, "and the client what it was given"
            assert len(stranger.requests("tasks/get")) == before


@pytest.mark.bridge("tasks")
async def test_the_tasks_of_2025_are_passed_on_within_their_era_only() -> None:
    """They were an experiment, and are another protocol than the extension that followed."""
    async with in_process_workbench("legacy") as workbench:
        legacy, modern = workbench.client("legacy"), workbench.client("modern")
        server = await workbench.connect(legacy)
        request = legacy.call(task={"ttl": 1000})
        assert server.call["params"]["task"] == {"ttl": 1000}
        server.reply(server.call, {"task": {"taskId": "t-1"}})
        assert request.result == {"task": {"taskId": "t-1"}}
        legacy.send_request("tasks/result", {"taskId": "t-1"})
        assert [each["params"] for each in server.requests("tasks/result")] == [{"taskId": "t-1"}]
        await refused(workbench, lambda: modern.send_request("tasks/get", {"taskId": "t-1"}), -32602)


@pytest.mark.bridge("tasks")
async def test_the_tasks_of_2025_are_found_again_where_there_are_several_servers() -> None:
    async with in_process_workbench("legacy", servers={"server": "legacy", "other": "legacy"}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        handles = []
        for owner, name in ((server, "server"), (other, "other")):
            params = {"name": f"box:{name}:work", "arguments": {}, "task": {"ttl": 1000}}
            request = client.send_request("tools/call", params)
            owner.reply(owner.call, {"task": {"taskId": "1", "status": "working", "ttl": 1000}, "kept": True})
            assert request.result["kept"] is True
            handles.append(request.result["task"]["taskId"])
        assert handles[0] == "1" and handles[1].startswith("1~")
        for handle, owner, stranger in ((handles[0], server, other), (handles[1], other, server)):
            for method in ("tasks/get", "tasks/cancel", "tasks/result"):
                before = len(stranger.requests(method))
                asked = client.send_request(method, {"taskId": handle})
                call = owner.requests(method)[-1]
                assert call["params"]["taskId"] == "1", "each server hears its own"
                assert len(stranger.requests(method)) == before
                if method == "tasks/result":
                    owner.reply(call, {"content": [], "_meta": {RELATED: {"taskId": "1"}, "other": 1}})
                    assert asked.result["_meta"] == {RELATED: {"taskId": handle}, "other": 1}
                else:
                    owner.reply(call, {"taskId": "1", "status": "working"})
                    assert asked.result == {"taskId": handle, "status": "working"}
        await refused(workbench, lambda: client.send_request("tasks/get", {"taskId": "unknown"}), -32602)
        await refused(workbench, lambda: client.send_request("tasks/update", {"taskId": "1"}), -32601)


@pytest.mark.bridge("tasks")
async def test_a_result_that_is_no_task_passes_though_one_was_asked_for() -> None:
    async with in_process_workbench("legacy", servers={"server": "legacy", "other": "legacy"}) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call(task={"ttl": 1000})
        server.reply(server.call, {"content": [], "task": "none"})
        assert request.result == {"content": [], "task": "none"}


@pytest.mark.bridge("handshake")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_each_handshake_is_that_of_its_own_era(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        if client_era == "modern":
            found = client.send_request("server/discover")
            await until(lambda: found.answer is not None)
            assert found.result["supportedVersions"] == ["2026-07-28"]
        listed = client.send_request("tools/list")
        await until(lambda: listed.answer is not None)
        (server,) = workbench.gateway.fake_servers
        methods = [message["method"] for message in server.received if "method" in message]
        # The era of the client is tried first: a server of both would settle for it.
        tried = ["initialize"] if client_era == "legacy" else ["server/discover"]
        other = ["initialize"] if server_era == "legacy" else ["server/discover"]
        met = tried if client_era == server_era else tried + other
        assert methods[: len(met)] == met
        assert methods[len(met)] == ("notifications/initialized" if server_era == "legacy" else "subscriptions/listen")
        names = [tool["name"] for tool in listed.result["tools"]]
        assert names == ["box:server:work", "box:server:warm_up"]
