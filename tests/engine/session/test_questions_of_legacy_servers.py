"""What a modern client is asked in a legacy server's name: together what came together, under the server's keys."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.session import parking
from tests.bridge.conversation import KINDS
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import Json, in_process_workbench, until

FORM = KINDS["form"]


def named(key: str, kind: str = "form") -> tuple[str, Json]:
    method, params, _ = KINDS[kind]
    return method, {**params, "_meta": {parking.INPUT_KEY: key}}


def result_of(server: FakeServer, question: str) -> object:
    answer = server.answer_to(question)
    assert answer is not None
    return answer["result"]


async def test_questions_that_are_asked_side_by_side_are_put_to_the_client_together() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        for kind in ("form", "sampling", "roots"):
            server.ask(*KINDS[kind][:2])
            assert request.answer is None, "another question may follow"
        await until(lambda: request.answer is not None)
        asked = [each["method"] for each in request.result["inputRequests"].values()]
        assert asked == ["elicitation/create", "sampling/createMessage", "roots/list"]


async def test_a_server_that_never_stops_asking_does_not_keep_its_client_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking, "GATHER_PAUSE", 3600.0)
    monkeypatch.setattr(parking, "GATHER_AT_LATEST", 0.01)
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        server.ask(*FORM[:2])
        await until(lambda: request.answer is not None)
        assert request.result["resultType"] == "input_required"


async def test_a_call_that_ends_while_questions_are_gathered_is_answered_with_its_result() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        question = server.ask(*FORM[:2])
        server.reply(server.call, {"content": []})
        assert request.result["resultType"] == "complete"
        assert result_of(server, question) == {"action": "cancel"}, "nobody will answer it any more"
        assert workbench.is_clean()


async def test_a_question_that_is_cancelled_while_questions_are_gathered_is_not_asked() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        server.withdraw(server.ask(*FORM[:2]))
        server.ask(*named("kept"))
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"]) == ["kept"]


async def test_a_question_has_the_key_that_its_server_chose() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        first, again = server.ask(*named("user")), server.ask(*named("user"))
        unnamed = server.ask(*FORM[:2])
        await until(lambda: request.answer is not None)
        keys = list(request.result["inputRequests"])
        assert keys[0] == "user" and len(set(keys)) == 3, "two cannot have the same"
        answers = {key: {"action": "accept", "content": {"name": key}} for key in keys}
        client.retry(request, answers)
        for key, question in zip(keys, (first, again, unnamed), strict=True):
            assert result_of(server, question) == answers[key]


@pytest.mark.parametrize("key", [7, None, "", {"a": 1}])
async def test_a_key_that_is_no_name_is_not_used(key: object) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        method, params, _ = FORM
        server.ask(method, {**params, "_meta": {parking.INPUT_KEY: key}})
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"]) == ["question-1"]


@pytest.mark.parametrize("url", ["http://evil.example/", "javascript:alert(1)"])
async def test_a_question_that_was_refused_is_not_asked(url: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        page = {"mode": "url", "url": url, "message": "Go there.", "elicitationId": "e"}
        refused = server.ask("elicitation/create", page)
        assert (server.answer_to(refused) or {})["error"]["code"] == -32602
        assert len(workbench.parking) == 0, "nothing waits for an answer of the user"
        server.ask(*named("kept"))
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"]) == ["kept"] and url not in str(client.received)
        client.retry(request, {"kept": {"action": "decline"}})
        # `answer_to` fails for a question with two answers.
        assert "error" in (server.answer_to(refused) or {})


async def test_an_answer_that_comes_with_the_first_call_is_used_once() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        answer = {"action": "accept", "content": {"name": "ü"}}
        request = client.call(inputResponses={"user": answer, "nobody asked": {"action": "accept"}})
        question = server.ask(*named("user"))
        assert result_of(server, question) == answer
        assert request.answer is None
        server.ask(*named("user"))
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"]) == ["user"], "the server was not content, so the client is asked"


@pytest.mark.parametrize("responses", [{"user": 12345}, {"other": {"action": "accept"}}, None, [], "user"])
async def test_question_is_asked_despite_unrelated_answers(responses: object) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call(inputResponses=responses)
        server.ask(*named("user"))
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"]) == ["user"]
