"""Tasks of 2025-11-25 where several servers have them: one list, one capability, no handle that means two things."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.face import tasks as tasks_module
from mcp_workbench.engine.router import task_requests
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import Client, Json, Request, in_process_workbench, settled, until
from tests.support.refusals import refused

TWO = {"server": "legacy", "other": "legacy"}
LISTS: Json = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
UNAVAILABLE = "mcp-workbench/unavailable"


def task(name: str, **more: object) -> Json:
    return {"taskId": name, "status": "working", "ttl": 1000, **more}


async def asked(request: Request, *servers: FakeServer) -> None:
    """Every one of these has been asked for its list."""
    before = [len(server.requests("tasks/list")) for server in servers]
    await until(
        lambda: all(
            len(server.requests("tasks/list")) > count or request.answer is not None
            for server, count in zip(servers, before, strict=True)
        )
    )


def give(server: FakeServer, tasks: Sequence[Json], cursor: str | None = None) -> Json:
    """Answer the last request for a list; returns its params."""
    request = server.requests("tasks/list")[-1]
    server.reply(request, {"tasks": list(tasks), **({} if cursor is None else {"nextCursor": cursor})})
    params: Json = request["params"]
    return params


async def listed(
    client: Client, answers: dict[FakeServer, tuple[Sequence[Json], str | None]], cursor: str | None = None
) -> tuple[Json, dict[FakeServer, Json]]:
    """One page: its result, and what each server was asked."""
    for server in answers:
        server.received.clear()
    request = client.send_request("tasks/list", {} if cursor is None else {"cursor": cursor})
    await asked(request, *answers)
    assert request.answer is None, request.answer
    params = {server: give(server, *page) for server, page in answers.items()}
    await until(lambda: request.answer is not None)
    return request.result, params


@pytest.mark.bridge("tasks")
async def test_the_tasks_of_all_servers_are_one_list_and_no_two_have_the_same_handle() -> None:
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        result, params = await listed(
            client, {server: ([task("1", x=[1]), task("mine")], None), other: ([task("1", x=[2])], None)}
        )
        assert params == {server: {}, other: {}}
        assert "nextCursor" not in result and "_meta" not in result
        first, second, third = result["tasks"]
        assert (first, second) == (task("1", x=[1]), task("mine")), "as the server wrote them"
        assert third == task(third["taskId"], x=[2]) and third["taskId"].startswith("1~")
        for handle, owner, own in (("1", server, "1"), (third["taskId"], other, "1"), ("mine", server, "mine")):
            request = client.send_request("tasks/get", {"taskId": handle})
            call = owner.requests("tasks/get")[-1]
            assert call["params"]["taskId"] == own
            owner.reply(call, task(own))
            assert request.result["taskId"] == handle
        again, _ = await listed(client, {server: ([], None), other: ([task("1")], None)})
        assert [each["taskId"] for each in again["tasks"]] == [third["taskId"]], "the same handle each time"


@pytest.mark.bridge("tasks")
async def test_pages_go_on_for_the_servers_that_have_more() -> None:
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        one, _ = await listed(client, {server: ([task("a")], "s-2"), other: ([task("b")], "o-2")})
        two, params = await listed(
            client, {server: ([task("c")], None), other: ([task("d")], "o-3")}, one["nextCursor"]
        )
        assert params == {server: {"cursor": "s-2"}, other: {"cursor": "o-2"}}
        server.received.clear()
        three, params = await listed(client, {other: ([task("e")], None)}, two["nextCursor"])
        assert params == {other: {"cursor": "o-3"}} and server.requests("tasks/list") == []
        assert [each["taskId"] for page in (one, two, three) for each in page["tasks"]] == list("abcde")
        assert "nextCursor" not in three


@pytest.mark.bridge("tasks")
@pytest.mark.parametrize("cursor", ["nonsense", "", "W10=", "W1siYm94Iiwibm9ib2R5IiwiMSJdXQ==", 5, ["a"]])
async def test_a_cursor_that_we_did_not_give_out_is_refused(cursor: object) -> None:
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client), await workbench.connect(client, "other")
        await refused(workbench, lambda: client.send_request("tasks/list", {"cursor": cursor}), -32602)


@pytest.mark.bridge("tasks")
async def test_only_servers_that_declare_it_are_asked_and_where_none_does_it_is_unknown() -> None:
    async with in_process_workbench(
        "legacy", servers=TWO, capabilities={"server": LISTS, "other": {"tasks": {}}}
    ) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        result, _ = await listed(client, {server: ([task("a")], None)})
        assert [each["taskId"] for each in result["tasks"]] == ["a"] and other.requests("tasks/list") == []
    async with in_process_workbench("legacy", servers=TWO) as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client), await workbench.connect(client, "other")
        await refused(workbench, lambda: client.send_request("tasks/list"), -32601)


@pytest.mark.bridge("tasks")
async def test_a_server_that_cannot_list_its_tasks_is_named_and_the_others_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_requests, "MAX_TASKS_PER_PAGE", 2)
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        for broken in ("nothing", {"tasks": [task("1"), task("2"), task("3")]}):
            other.received.clear()
            request = client.send_request("tasks/list")
            await asked(request, server, other)
            give(server, [task("a")])
            other.reply(other.requests("tasks/list")[-1], broken)
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            assert [each["taskId"] for each in request.result["tasks"]] == ["a"]
            assert "its tasks cannot be listed" in request.result["_meta"][UNAVAILABLE]["box/other"]
        request = client.send_request("tasks/list")
        await asked(request, server, other)
        for each in (server, other):
            each.fail(each.requests("tasks/list")[-1], -32603, "out of order")
        await until(lambda: request.answer is not None)
        assert "[box/server] out of order" in request.error["message"] and "[box/other]" in request.error["message"]


@pytest.mark.bridge("tasks")
async def test_a_server_that_hangs_does_not_keep_the_tasks_of_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than a busy machine keeps this process from running: the other server answers within it.
    monkeypatch.setattr(task_requests, "PAGE_PATIENCE", 0.5)
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        server.offers["tasks/list"] = {"tasks": [task("a")]}
        request = client.send_request("tasks/list")
        await until(lambda: request.answer is not None)
        assert [each["taskId"] for each in request.result["tasks"]] == ["a"]
        assert "did not list its tasks within" in request.result["_meta"][UNAVAILABLE]["box/other"]
        assert [each["requestId"] for each in other.told("notifications/cancelled")] == [
            other.requests("tasks/list")[0]["id"]
        ]


@pytest.mark.bridge("tasks")
async def test_a_list_that_is_cancelled_is_cancelled_at_every_server() -> None:
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        request = client.send_request("tasks/list")
        await asked(request, server, other)
        client.cancel(request)
        await until(lambda: all(each.told("notifications/cancelled") for each in (server, other)))
        await settled()
        assert request.answer is None and workbench.is_clean()


@pytest.mark.bridge("tasks")
async def test_the_list_of_a_sole_server_passes_as_it_is() -> None:
    async with in_process_workbench("legacy", capabilities={"server": LISTS}) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.send_request("tasks/list", {"cursor": "its own"})
        (call,) = server.requests("tasks/list")
        assert call["params"] == {"cursor": "its own"}
        server.reply(call, {"tasks": [task("1"), "strange"], "nextCursor": "more", "x": 1})
        assert request.result == {"tasks": [task("1"), "strange"], "nextCursor": "more", "x": 1}


@pytest.mark.bridge("tasks")
async def test_a_task_that_moves_on_outside_of_calls_is_told_under_the_handle_of_the_client() -> None:
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        handles = []
        for owner, name in ((server, "server"), (other, "other")):
            params = {"name": f"box:{name}:work", "arguments": {}, "task": {"ttl": 1000}}
            request = client.send_request("tools/call", params)
            owner.reply(owner.call, {"task": task("1")})
            handles.append(request.result["task"]["taskId"])
        for owner in (server, other):
            owner.notify("notifications/tasks/status", task("1"))
        assert [told["taskId"] for told in client.told("notifications/tasks/status")] == handles
        assert handles[0] != handles[1]


@pytest.mark.bridge("tasks")
async def test_task_capabilities_of_all_servers_are_declared_to_clients_of_that_revision() -> None:
    some: Json = {"tasks": {"list": {}, "requests": {"tools": {"call": {}}}}}
    more: Json = {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}, "x/y": {"z": {"a": 1}}}}}
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": some, "other": more}) as workbench:
        client = workbench.client("legacy")
        assert "tasks" not in _welcome(client, "2025-11-25"), "nothing is known yet"
        await workbench.connect(client)
        await workbench.connect(client, "other")
        declared = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}, "x/y": {"z": {"a": 1}}}}
        assert _welcome(workbench.client("legacy"), "2025-11-25")["tasks"] == declared
        assert "tasks" not in _welcome(workbench.client("legacy"), "2025-06-18")
        found = workbench.client("modern").send_request("server/discover").result
        assert "tasks" not in found["capabilities"]


def _welcome(client: Client, version: str) -> Json:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "fake"}}
    capabilities: Json = client.send_request("initialize", params).result["capabilities"]
    return capabilities


@pytest.mark.bridge("tasks")
async def test_a_server_that_lists_without_end_does_not_push_out_the_tasks_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks_module, "MAX_TASK_HANDLES_PER_SERVER", 3)
    async with in_process_workbench("legacy", servers=TWO, capabilities={"server": LISTS, "other": LISTS}) as workbench:
        client = workbench.client("legacy")
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        await listed(client, {server: ([task("mine")], None), other: ([task(f"t-{n}") for n in range(9)], None)})
        client.send_request("tasks/get", {"taskId": "mine"})
        assert len(server.requests("tasks/get")) == 1
        await refused(workbench, lambda: client.send_request("tasks/get", {"taskId": "t-0"}), -32602)
        client.send_request("tasks/get", {"taskId": "t-8"})
        assert len(other.requests("tasks/get")) == 1


@pytest.mark.bridge("tasks")
@pytest.mark.parametrize("face", ["proxy", "flat"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_failed_as_a_task_says_which_it_is_as_one_that_failed_at_once(
    era: str, face: FaceName
) -> None:
    failed = {"content": [{"type": "text", "text": "no room"}], "isError": True}
    extension: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    declared = {name: {**LISTS, **extension} for name in TWO}
    servers = dict.fromkeys(TWO, era)
    async with in_process_workbench(era, face=face, servers=servers, capabilities=declared) as workbench:
        client = workbench.client(era, extension)
        await workbench.connect(client)
        other = await workbench.connect(client, "other")
        more: Json = {"task": {"ttl": 1000}} if era == "legacy" else {}
        path = {"toolbox": "box", "server": "other", "tool": "work"}
        call: Json = {"name": "use_tool", "arguments": {"tool": path, "arguments": {}}}
        if face == "flat":
            call = {"name": "box:other:work", "arguments": {}}
        request = client.send_request("tools/call", {**call, **more})
        created = {"task": task("1")} if era == "legacy" else {"resultType": "task", **task("1")}
        other.reply(other.call, created)
        assert "1" in json.dumps(request.result)
        method = "tasks/result" if era == "legacy" else "tasks/get"
        asked = client.send_request(method, {"taskId": "1"})
        (sent,) = other.requests(method)
        done = failed if era == "legacy" else {"resultType": "complete", **task("1"), "result": failed}
        other.reply(sent, done)
        shown = asked.result if era == "legacy" else asked.result["result"]
        if face == "flat":
            assert shown == failed
        else:
            assert shown["content"] == [{"type": "text", "text": "[box/other/work] no room"}]
            assert shown["_meta"]["mcp-workbench/result"] == failed and shown["isError"] is True
