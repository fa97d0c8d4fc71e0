"""`taskIds` in `subscriptions/listen`: the states of tasks, reported by the servers that own them."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.downstream import server_subscriptions
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import META, Client, Request, in_process_workbench, settled, until

Json = dict[str, Any]

TASKS = META + "tasks"
SUBSCRIPTION = META + "subscriptionId"
EXTENSION: Json = {"extensions": {TASKS: {}}}
TWO = {"server": "modern", "other": "modern"}
BOTH: dict[str, Json] = {"server": EXTENSION, "other": EXTENSION}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

pytestmark = pytest.mark.bridge("tasks")


def start_task(client: Client, owner: FakeServer, name: str, own: str) -> str:
    """A call that becomes a task; returns the client's id of it."""
    request = client.send_request("tools/call", {"name": f"box:{name}:work", "arguments": {}})
    owner.reply(owner.call, {"resultType": "task", "taskId": own, "status": "working", "ttlMs": 60_000})
    handle: str = request.result["taskId"]
    return handle


async def listen(client: Client, handles: list[str]) -> tuple[Request, Json]:
    before = len(client.told(ACKNOWLEDGED))
    stream = client.send_request("subscriptions/listen", {"notifications": {"taskIds": handles}})
    await until(lambda: len(client.told(ACKNOWLEDGED)) > before)
    granted: Json = client.told(ACKNOWLEDGED)[-1]["notifications"]
    return stream, granted


def task_stream(server: FakeServer) -> Json:
    """The newest stream that names tasks."""
    asked = [each for each in server.requests("subscriptions/listen") if "taskIds" in each["params"]["notifications"]]
    return asked[-1]


def report(server: FakeServer, own: str, **members: object) -> None:
    state = {"taskId": own, "status": "completed", **members}
    server.notify("notifications/tasks", {**state, "_meta": {SUBSCRIPTION: task_stream(server)["id"]}})


async def test_states_of_tasks_come_from_the_servers_that_own_them() -> None:
    async with in_process_workbench("modern", servers=TWO, capabilities=BOTH) as workbench:
        client, bystander = (workbench.client("modern", EXTENSION) for _ in range(2))
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        first, second = start_task(client, server, "server", "1"), start_task(client, other, "other", "1")
        assert first != second
        stream, granted = await listen(client, [first, second, "unknown"])
        assert granted == {"taskIds": [first, second]}
        for owner in (server, other):
            asked = task_stream(owner)["params"]
            assert asked["notifications"] == {"taskIds": ["1"]}
            assert asked["_meta"][META + "clientCapabilities"] == EXTENSION
        report(other, "1", result={"content": []}, _x=1)
        assert client.told("notifications/tasks") == [
            {
                "taskId": second,
                "status": "completed",
                "result": {"content": []},
                "_x": 1,
                "_meta": {SUBSCRIPTION: stream.id},
            }
        ]
        report(other, "2")
        assert len(client.told("notifications/tasks")) == 1
        assert bystander.received == []


async def test_two_streams_share_one_at_the_server_and_end_on_their_own() -> None:
    async with in_process_workbench("modern", capabilities=BOTH) as workbench:
        client, second = (workbench.client("modern", EXTENSION) for _ in range(2))
        server = await workbench.connect(client)
        handles = [start_task(client, server, "server", own) for own in ("1", "2")]
        (stream, _), (kept, _) = await listen(client, handles), await listen(second, handles[1:])
        report(server, "2")
        assert [len(each.told("notifications/tasks")) for each in (client, second)] == [1, 1]
        client.cancel(stream)
        report(server, "2")
        assert [len(each.told("notifications/tasks")) for each in (client, second)] == [1, 2]
        await until(lambda: server.listening_to() == {"taskIds": ["2"]})
        # A server reports on a stream once it has acknowledged it.
        await settled()
        report(server, "2")
        assert [len(each.told("notifications/tasks")) for each in (client, second)] == [1, 3]
        second.cancel(kept)
        await until(lambda: "taskIds" not in server.listening_to())


async def test_at_the_limit_a_task_that_is_reported_gets_further_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_subscriptions, "MAX_SUBSCRIBED_RESOURCES", 2)
    async with in_process_workbench("modern", capabilities=BOTH) as workbench:
        client, second = (workbench.client("modern", EXTENSION) for _ in range(2))
        server = await workbench.connect(client)
        handles = [start_task(client, server, "server", own) for own in ("1", "2", "3")]
        _, granted = await listen(client, handles)
        assert granted == {"taskIds": handles[:2]}
        _, granted = await listen(second, handles[1:])
        assert granted == {"taskIds": handles[1:2]}, "it costs the server nothing more"
        assert task_stream(server)["params"]["notifications"] == {"taskIds": ["1", "2"]}


async def test_tasks_that_the_server_does_not_report_are_not_acknowledged() -> None:
    async with in_process_workbench("modern", servers=TWO, capabilities=BOTH) as workbench:
        client = workbench.client("modern", EXTENSION)
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        first, second = start_task(client, server, "server", "1"), start_task(client, other, "other", "2")
        server.refused.add("subscriptions/listen")
        _, granted = await listen(client, [first, second])
        assert granted == {"taskIds": [second]}
        assert server.connection.subscriptions.announces("tools"), "its lists are still announced"


async def test_a_question_in_a_state_says_which_server_asks() -> None:
    async with in_process_workbench("modern", servers=TWO, capabilities=BOTH) as workbench:
        client = workbench.client("modern", {**EXTENSION, "elicitation": {"form": {}}})
        await workbench.connect(client)
        other = await workbench.connect(client, "other")
        handle = start_task(client, other, "other", "1")
        await listen(client, [handle])
        params = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        asked = {"sure": {"method": "elicitation/create", "params": params}}
        report(other, "1", status="input_required", inputRequests=asked)
        (told,) = client.told("notifications/tasks")
        assert told["inputRequests"]["sure"]["params"]["message"].startswith("[box/other]")


async def test_nothing_precedes_the_acknowledgement() -> None:
    async with in_process_workbench("modern", servers=TWO, capabilities=BOTH) as workbench:
        client = workbench.client("modern", EXTENSION)
        server, other = await workbench.connect(client), await workbench.connect(client, "other")
        first, second = start_task(client, server, "server", "1"), start_task(client, other, "other", "2")
        client.send_request("subscriptions/listen", {"notifications": {"taskIds": [first, second]}})
        await until(lambda: bool(other.requests("subscriptions/listen")))
        report(server, "1")
        assert client.told("notifications/tasks") == []
        await until(lambda: bool(client.told("notifications/tasks")))
        methods = [message.get("method") for message in client.received]
        assert methods.index(ACKNOWLEDGED) < methods.index("notifications/tasks")


async def test_a_hidden_task_is_not_subscribed_to() -> None:
    rules = (PolicyRule(then="hide", tools=("box/other/work",)), PolicyRule(then="allow"))
    async with in_process_workbench("modern", servers=TWO, capabilities=BOTH, policy=rules) as workbench:
        client = workbench.client("modern", EXTENSION)
        server = await workbench.connect(client)
        handle = start_task(client, server, "server", "1")
        other = await workbench.connect(client, "other")
        tasks = workbench.gateway.router.tasks.handles
        tasks._note("", True, other.connection.entry, "2", "work")
        _, granted = await listen(client, ["2", handle])
        assert granted == {"taskIds": [handle]}
        assert all("taskIds" not in each["params"]["notifications"] for each in other.requests("subscriptions/listen"))
