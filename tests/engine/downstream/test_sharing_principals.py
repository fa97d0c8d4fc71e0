"""Two users of one workbench: each thing that is a person's is theirs alone, unless a server is everyone's."""

from __future__ import annotations

from functools import partial

import pytest

from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import (
    ERAS,
    Client,
    InProcessWorkbench,
    Json,
    Request,
    in_process_workbench,
    settled,
    until,
)

LISTS: Json = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
EVERYONE = {"share": "everyone"}
FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}

both_eras = pytest.mark.parametrize("era", ERAS)


async def two(workbench: InProcessWorkbench, era: str) -> tuple[tuple[Client, FakeServer], tuple[Client, FakeServer]]:
    """Two users, each with the server that their calls go to."""
    alice, bob = (workbench.client(era, principal=name) for name in ("alice", "bob"))
    return (alice, await workbench.connect(alice)), (bob, await workbench.connect(bob))


def is_answered(request: Request) -> bool:
    return request.answer is not None


def task(name: str) -> Json:
    return {"taskId": name, "status": "working", "ttl": 60_000, "createdAt": "2026-01-01T00:00:00Z"}


@pytest.mark.requirement("team.principals")
@both_eras
@pytest.mark.parametrize("server_era", ERAS)
async def test_users_have_processes_of_their_own(era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        (alice, hers), (bob, his) = await two(workbench, era)
        assert hers is not his
        assert (hers.connection.principal, his.connection.principal) == ("alice", "bob")
        alice.call()
        assert len(hers.open_calls()) == 1 and not his.open_calls()
        bob.call()
        assert len(his.open_calls()) == 1 and len(hers.open_calls()) == 1


@pytest.mark.requirement("team.principals")
async def test_a_parked_call_is_answered_by_its_own_user_alone() -> None:
    async with in_process_workbench("legacy") as workbench:
        (alice, hers), (bob, his) = await two(workbench, "modern")
        asked = alice.call()
        hers.ask("elicitation/create", FORM)
        await until(lambda: asked.answer is not None)
        (key,) = asked.result["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "mallory"}}}
        stolen = bob.retry(asked, answers)
        await until(lambda: stolen.answer is not None)
        assert stolen.error["code"] == -32602 and not his.open_calls()
        assert len(workbench.parking) == 1, "it waits for its own user"
        alice.retry(asked, answers)
        hers.reply(hers.open_calls()[-1], DONE)
        assert workbench.is_clean()


@pytest.mark.requirement("team.principals")
async def test_a_task_is_asked_for_at_the_server_of_its_own_user() -> None:
    async with in_process_workbench("legacy", capabilities={"server": LISTS}) as workbench:
        (alice, hers), (bob, his) = await two(workbench, "legacy")
        started = alice.call(task={"ttl": 60_000})
        hers.reply(hers.call, {"task": task("t1")})
        assert started.result["task"]["taskId"] == "t1"
        bob.send_request("tasks/get", {"taskId": "t1"})
        await settled()
        assert not hers.requests("tasks/get"), "another's handle leads to nobody but one's own server"
        assert len(his.requests("tasks/get")) == 1


@pytest.mark.requirement("team.principals")
async def test_resource_updates_reach_the_subscribed_user() -> None:
    async with in_process_workbench("legacy") as workbench:
        (alice, hers), (bob, his) = await two(workbench, "legacy")
        watching = alice.send_request("resources/subscribe", {"uri": "test:///one"})
        await until(lambda: watching.answer is not None)
        for server in (hers, his):
            server.notify("notifications/resources/updated", {"uri": "test:///one"})
        await settled()
        assert len(alice.told("notifications/resources/updated")) == 1
        assert not bob.told("notifications/resources/updated")


@pytest.mark.requirement("team.principals")
async def test_a_log_is_told_to_the_user_whose_server_wrote_it() -> None:
    async with in_process_workbench("legacy") as workbench:
        (alice, hers), (bob, _) = await two(workbench, "legacy")
        for client in (alice, bob):
            client.send_request("logging/setLevel", {"level": "debug"})
            client.call()
        hers.notify("notifications/message", {"level": "error", "data": "hers"})
        assert [each["data"] for each in alice.told("notifications/message")] == ["hers"]
        assert not bob.told("notifications/message")


# ── a server that is everyone's ──


@pytest.mark.requirement("team.everyone")
@both_eras
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_server_that_says_so_is_one_for_all_users_with_our_own_credentials(era: str, server_era: str) -> None:
    async with in_process_workbench(server_era, settings=EVERYONE) as workbench:
        (alice, hers), (bob, his) = await two(workbench, era)
        assert hers is his and hers.connection.principal == ""
        first, second = alice.call(), bob.call()
        for number, call in enumerate(hers.open_calls()):
            hers.reply(call, {"content": [{"type": "text", "text": str(number)}]})
        assert first.result["content"][0]["text"] == "0" and second.result["content"][0]["text"] == "1"
        assert "elicitation" not in hers.declared and "roots" not in hers.declared, "it may ask nobody"


@pytest.mark.requirement("team.everyone")
@pytest.mark.parametrize("server_era", [*ERAS, "both"])
@pytest.mark.parametrize("eras", [ERAS, ERAS[::-1]])
async def test_clients_of_both_eras_share_a_server_that_is_everyones(server_era: str, eras: tuple[str, ...]) -> None:
    async with in_process_workbench(server_era, settings=EVERYONE) as workbench:
        clients = [workbench.client(era, principal=name) for era, name in zip(eras, ("alice", "bob"), strict=True)]
        for client in (*clients, *clients):
            await workbench.connect(client)
        assert len(workbench.gateway.fake_servers) == 1
        assert len(workbench.gateway.runtime.pool.connections()) == 1


@pytest.mark.requirement("team.everyone")
async def test_messages_not_tied_to_a_call_reach_no_client() -> None:
    async with in_process_workbench("legacy", settings=EVERYONE) as workbench:
        (alice, server), (bob, _) = await two(workbench, "legacy")
        for client in (alice, bob):
            client.send_request("logging/setLevel", {"level": "debug"})
        alice.call()
        server.notify("notifications/message", {"level": "error", "data": "whose?"})
        server.reply(server.open_calls()[-1], DONE)
        bob.call()
        server.notify("notifications/message", {"level": "error", "data": "whose?"})
        assert not alice.told("notifications/message") and not bob.told("notifications/message")
        id = server.ask("elicitation/create", FORM)
        refusal = server.answer_to(id)
        assert refusal is not None and "error" in refusal, "and nobody is asked"
        assert not alice.questions() and not bob.questions()


@pytest.mark.requirement("team.everyone")
async def test_each_user_has_the_tasks_that_were_theirs() -> None:
    async with in_process_workbench("legacy", capabilities={"server": LISTS}, settings=EVERYONE) as workbench:
        (alice, server), (bob, _) = await two(workbench, "legacy")
        for client, name in ((alice, "t1"), (bob, "t2")):
            client.call(task={"ttl": 60_000})
            server.reply(server.open_calls()[-1], {"task": task(name)})
        for client, name in ((alice, "t1"), (bob, "t2")):
            server.received.clear()
            listed = client.send_request("tasks/list", {})
            await until(lambda: bool(server.requests("tasks/list")))
            server.reply(server.requests("tasks/list")[-1], {"tasks": [task("t1"), task("t2"), task("t3")]})
            await until(partial(is_answered, listed))
            assert [each["taskId"] for each in listed.result["tasks"]] == [name]
        server.received.clear()
        for other in ("t2", "t3"):
            stolen = alice.send_request("tasks/cancel", {"taskId": other})
            assert stolen.error["code"] == -32602
        assert not server.requests("tasks/cancel")


@pytest.mark.requirement("team.everyone")
@pytest.mark.parametrize(
    ("era", "method"),
    [
        ("modern", "tasks/list"),
        ("modern", "tasks/result"),
        ("modern", "tasks/of_a_later_revision"),
        # This server does not declare it.
        ("legacy", "tasks/list"),
        ("legacy", "tasks/update"),
        ("legacy", "tasks/of_a_later_revision"),
    ],
)
async def test_task_requests_to_a_server_of_everyone_are_refused(era: str, method: str) -> None:
    async with in_process_workbench("legacy", capabilities={"server": {"tasks": {}}}, settings=EVERYONE) as workbench:
        _, (bob, server) = await two(workbench, era)
        asked = bob.send_request(method, {"taskId": "t1"})
        await until(lambda: asked.answer is not None or bool(server.requests(method)))
        assert not server.requests(method) and asked.error["code"] == -32601
