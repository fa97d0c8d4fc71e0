"""Every client reaches every server: the same conversations in all four combinations of eras, on every route."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.model import FaceName
from tests.bridge.conversation import KINDS, METHODS, Conversation
from tests.bridge.in_process import ERAS, in_process_workbench

# A call of a tool, in the face that shows it and through `use_tool`; a prompt; a resource.
ROUTES: list[tuple[FaceName, str]] = [("flat", "tool"), ("proxy", "tool"), ("flat", "prompt"), ("flat", "resource")]

every_combination = pytest.mark.parametrize(
    ("client_era", "server_era"), [(client, server) for client in ERAS for server in ERAS]
)
every_route = pytest.mark.parametrize(("face", "route"), ROUTES, ids=[f"{face}-{route}" for face, route in ROUTES])


@pytest.mark.bridge("call", "result-type")
@every_combination
@every_route
async def test_a_plain_call_arrives_as_it_was_sent_and_is_answered_as_the_server_said(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        talk = Conversation(client, server, route, member={"kept": [1, None]})
        assert server.call["method"] == METHODS[route]
        assert server.call["params"]["member"] == {"kept": [1, None]}
        result = talk.finish()
        assert client_era == "legacy" or result["resultType"] == "complete"
        assert workbench.is_clean()


@pytest.mark.bridge("question", "parking", "rounds", "page-to-visit")
@every_combination
@every_route
async def test_a_question_of_any_kind_reaches_the_client_and_its_answer_the_server(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        for kind, (method, params, _) in KINDS.items():
            talk = Conversation(client, server, route)
            (asked,) = await talk.ask(kind)
            assert asked["method"] == method
            assert asked["params"] == params, "as the server wrote it"
            talk.finish()
            assert workbench.is_clean()


@pytest.mark.bridge("question", "parking", "rounds")
@every_combination
@every_route
async def test_questions_may_follow_each_other_and_come_at_once(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        talk = Conversation(client, server, route)
        assert len(await talk.ask("form")) == 1
        assert len(await talk.ask("sampling", "roots", "url")) == 3
        assert len(await talk.ask("roots")) == 1
        assert len(await talk.ask("declined form", "sampling")) == 2
        talk.finish()
        assert workbench.is_clean()


@pytest.mark.bridge("progress")
@every_combination
async def test_progress_comes_under_the_token_that_the_client_chose(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call(meta={"progressToken": "mine", "example.test/kept": 1})
        meta = server.call["params"]["_meta"]
        assert meta["progressToken"] == server.call["id"], "two clients may use the same token, so it is ours"
        assert meta["example.test/kept"] == 1
        for step in (1, 2):
            server.notify(
                "notifications/progress", {"progressToken": meta["progressToken"], "progress": step, "total": 2}
            )
        server.reply(server.call, {"content": []})
        server.notify("notifications/progress", {"progressToken": meta["progressToken"], "progress": 3})
        assert [(each["progressToken"], each["progress"]) for each in request.progress] == [("mine", 1), ("mine", 2)]


@pytest.mark.bridge("progress")
@every_combination
async def test_a_client_that_wants_no_progress_gets_none(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        assert "progressToken" not in server.call["params"].get("_meta", {})
        server.notify("notifications/progress", {"progressToken": server.call["id"], "progress": 1})
        assert request.progress == []


@pytest.mark.bridge("cancellation")
@every_combination
@every_route
async def test_a_call_that_the_client_cancels_is_cancelled_at_the_server(
    client_era: str, server_era: str, face: FaceName, route: str
) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call(route)
        call = server.call
        client.cancel(request)
        assert server.told("notifications/cancelled") == [{"requestId": call["id"], "reason": "the test cancels"}]
        server.reply(call, {"content": []})
        assert request.answer is None, "a cancelled call is not answered"
        assert workbench.is_clean()


@pytest.mark.bridge("cancellation")
@every_combination
async def test_a_call_that_is_cancelled_before_its_server_is_there_is_never_sent(
    client_era: str, server_era: str
) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        server.crash()
        request = client.call()
        client.cancel(request)
        await workbench.connect(client)
        again = workbench.gateway.fake_servers[-1]
        assert again is not server
        assert [call["params"]["name"] for call in again.requests("tools/call")] == []
        assert request.answer is None
        assert workbench.is_clean()


@pytest.mark.bridge("cancellation")
@every_combination
async def test_cancelling_an_unknown_or_answered_request_is_ignored(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        for id in (request.id + 1, str(request.id), None, {"a": 1}):
            client.notify("notifications/cancelled", {"requestId": id})
        client.notify("notifications/cancelled")
        server.reply(server.call, {"content": []})
        assert request.result["content"] == []
        client.cancel(request)
        assert server.told("notifications/cancelled") == []
