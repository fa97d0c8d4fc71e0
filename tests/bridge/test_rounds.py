"""A modern server asks, a legacy client is asked directly: round after round, and every one of them ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL
from mcp_workbench.engine.session.rounds import MAX_QUESTION_ROUNDS
from mcp_workbench.errors import DownstreamError
from tests.bridge.conversation import FORM, SAMPLE, URL, attributed, input_required
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import (
    EVERYTHING,
    Client,
    InProcessWorkbench,
    Json,
    Request,
    in_process_workbench,
    settled,
    until,
)
from tests.bridge.modern_to_legacy import DONE, YES

pytestmark = pytest.mark.bridge("rounds")

ASK_FORM = {"q": ("elicitation/create", FORM)}


class LegacyToModern:
    """A legacy client in front of a modern server."""

    def __init__(self, workbench: InProcessWorkbench, client: Client, server: FakeServer) -> None:
        self.workbench = workbench
        self.client = client
        self.server = server

    def asked(self, result: Json, route: str = "tool") -> Request:
        """A call that the server has answered with this."""
        request = self.client.call(route)
        self.server.reply(self.server.call, result)
        return request


@asynccontextmanager
async def legacy_to_modern(capabilities: Json = EVERYTHING) -> AsyncIterator[LegacyToModern]:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("legacy", capabilities)
        yield LegacyToModern(workbench, client, await workbench.connect(client))


def failure(request: Request) -> str:
    assert request.result["isError"] is True, request.result
    text: str = request.result["content"][0]["text"]
    assert text.startswith("[box/server/work] ")
    return text


async def test_each_round_carries_its_own_answers_and_state_and_no_others() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required({"one": ("elicitation/create", FORM)}, "first state"))
        on.client.answer(on.client.questions()[-1], YES)
        assert on.server.call["params"]["inputResponses"] == {"one": YES}
        assert on.server.call["params"]["requestState"] == "first state"
        on.server.reply(on.server.call, input_required({"two": ("roots/list", {})}, None))
        on.client.answer(on.client.questions()[-1], {"roots": []})
        assert on.server.call["params"]["inputResponses"] == {"two": {"roots": []}}
        assert "requestState" not in on.server.call["params"], "there was none in this round"
        on.server.reply(on.server.call, input_required({}, "third state"))
        await until(lambda: len(on.server.requests("tools/call")) == 4)
        assert on.server.call["params"]["requestState"] == "third state"
        assert "inputResponses" not in on.server.call["params"], "there was no question in this round"
        assert all(call["params"]["arguments"] == {"a": "1"} for call in on.server.requests("tools/call"))
        on.server.reply(on.server.call, {"resultType": "complete", **DONE})
        assert request.result["content"] == DONE["content"]
        assert on.workbench.is_clean()


async def test_members_that_a_legacy_client_happens_to_send_are_not_mixed_up_with_ours() -> None:
    async with legacy_to_modern() as on:
        on.client.call(inputResponses="theirs", requestState="theirs")
        assert on.server.call["params"]["requestState"] == "theirs", "unknown to their era, and so passed on"
        on.server.reply(on.server.call, input_required(ASK_FORM, "ours"))
        on.client.answer(on.client.questions()[-1], YES)
        assert on.server.call["params"]["requestState"] == "ours"


async def test_each_round_is_a_request_of_its_own() -> None:
    async with legacy_to_modern() as on:
        on.asked(input_required(ASK_FORM))
        on.client.answer(on.client.questions()[-1], YES)
        first, second = on.server.requests("tools/call")
        assert first["id"] != second["id"]


async def test_rounds_are_bounded() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required(ASK_FORM))
        for _ in range(MAX_QUESTION_ROUNDS - 1):
            on.client.answer(on.client.questions()[-1], YES)
            on.server.reply(on.server.call, input_required(ASK_FORM))
        assert request.answer is None
        on.client.answer(on.client.questions()[-1], YES)
        on.server.reply(on.server.call, input_required(ASK_FORM))
        assert f"asked {MAX_QUESTION_ROUNDS} times" in failure(request)
        assert len(on.client.questions()) == MAX_QUESTION_ROUNDS
        assert on.workbench.is_clean()


async def test_a_server_that_only_wants_another_try_gets_it_a_bounded_number_of_times() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required({}, "0"))
        for number in range(1, MAX_QUESTION_ROUNDS + 1):
            await until(lambda: bool(on.server.open_calls()))
            assert on.server.call["params"]["requestState"] == str(number - 1)
            on.server.reply(on.server.call, input_required({}, str(number)))
        assert "times" in failure(request)
        assert on.client.questions() == []
        assert on.workbench.is_clean()


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": None},
        {"resultType": "input_required", "inputRequests": []},
        {"resultType": "input_required", "inputRequests": {"a": "text"}},
        {"resultType": "input_required", "inputRequests": {"a": {"params": {}}}},
        {"resultType": "input_required", "inputRequests": {"a": {"method": 5}}},
        {"resultType": "input_required", "requestState": 5},
        input_required({"a": ("ping", {})}),
        input_required({"a": ("tools/call", {"name": "x"})}),
        input_required({str(number): ("roots/list", {}) for number in range(MAX_QUESTIONS_PER_CALL + 1)}),
    ],
)
async def test_a_question_that_is_none_ends_the_call(result: Json) -> None:
    async with legacy_to_modern() as on:
        request = on.asked(result)
        assert "server" in failure(request)
        assert on.client.questions() == []
        assert len(on.server.requests("tools/call")) == 1
        assert on.workbench.is_clean()


@pytest.mark.bridge("capabilities")
@pytest.mark.parametrize(
    ("declared", "question"),
    [
        ({}, ("elicitation/create", FORM)),
        ({"sampling": {}}, ("elicitation/create", FORM)),
        ({"elicitation": {}}, ("elicitation/create", URL)),
        ({"elicitation": {"url": {}}}, ("elicitation/create", FORM)),
        ({"elicitation": {}}, ("sampling/createMessage", SAMPLE)),
        ({"sampling": {}}, ("sampling/createMessage", {**SAMPLE, "tools": []})),
        ({}, ("roots/list", {})),
    ],
)
async def test_a_client_is_asked_only_within_its_declared_capabilities(
    declared: Json, question: tuple[str, Json]
) -> None:
    async with legacy_to_modern({**declared, "roots": {}} if question[0] != "roots/list" else declared) as on:
        request = on.asked(input_required({"possible": ("roots/list", {}), "impossible": question}))
        assert "does not support" in failure(request)
        assert on.client.questions() == [], "nobody is bothered with the others either"
        assert len(on.server.requests("tools/call")) == 1
        assert on.workbench.is_clean()


async def test_a_client_that_refuses_ends_the_call() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required({"one": ("elicitation/create", FORM), "two": ("roots/list", {})}))
        one, two = on.client.questions()
        on.client.refuse(one, -1, "the user is asleep")
        assert "the user is asleep" in failure(request)
        assert [each["requestId"] for each in on.client.told("notifications/cancelled")] == [two["id"]]
        on.client.answer(two, {"roots": []})
        assert len(on.server.requests("tools/call")) == 1, "nothing is sent to the server"
        assert on.workbench.is_clean()


async def test_an_answer_that_is_none_ends_the_call() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required(ASK_FORM))
        on.client.send_raw({"id": on.client.questions()[-1]["id"]})
        assert "neither result nor error" in failure(request)
        assert on.workbench.is_clean()


@pytest.mark.parametrize(("route", "code"), [("prompt", -32603), ("resource", -32603)])
async def test_where_there_is_no_tool_it_ends_with_an_error(route: str, code: int) -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required(ASK_FORM), route)
        on.client.refuse(on.client.questions()[-1], -1, "no")
        assert request.error["code"] == code
        assert on.workbench.is_clean()


async def test_a_client_that_never_answers_ends_the_call() -> None:
    async with legacy_to_modern() as on:
        on.client.session.questions.seconds = 0.0
        request = on.asked(input_required({"one": ("elicitation/create", FORM), "two": ("roots/list", {})}))
        await until(lambda: request.answer is not None)
        assert "did not answer in time" in failure(request)
        told = {each["requestId"] for each in on.client.told("notifications/cancelled")}
        assert told == {question["id"] for question in on.client.questions()}
        assert on.workbench.is_clean()


@pytest.mark.bridge("cancellation")
async def test_a_cancelled_call_takes_its_questions_along() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required({"one": ("elicitation/create", FORM), "two": ("roots/list", {})}))
        one, two = on.client.questions()
        on.client.answer(one, YES)
        on.client.cancel(request)
        assert [each["requestId"] for each in on.client.told("notifications/cancelled")] == [two["id"]]
        assert on.server.told("notifications/cancelled") == [], "nothing is under way there"
        on.client.answer(two, {"roots": []})
        assert len(on.server.requests("tools/call")) == 1
        assert request.answer is None
        assert on.workbench.is_clean()


@pytest.mark.bridge("cancellation")
async def test_a_call_that_is_cancelled_between_two_rounds_is_not_sent_again() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required({}, "later"))
        on.client.cancel(request)
        other = on.asked(input_required({}, "later"))
        await until(lambda: len(on.server.requests("tools/call")) == 3)
        assert on.server.call["params"]["requestState"] == "later"
        assert (request.answer, other.answer) == (None, None)


@pytest.mark.bridge("cancellation")
async def test_a_call_that_is_cancelled_while_its_server_restarts_is_not_sent() -> None:
    async with legacy_to_modern() as on:
        request = on.asked(input_required(ASK_FORM))
        on.server.crash()
        on.client.answer(on.client.questions()[-1], YES)
        on.client.cancel(request)
        again = await on.workbench.connect(on.client)
        assert again.requests("tools/call") == []
        assert on.workbench.is_clean()


async def test_a_server_that_crashes_between_two_rounds_is_started_again() -> None:
    """Nothing is repeated by that: modern servers keep nothing between two requests, and this is the next one."""
    async with legacy_to_modern() as on:
        request = on.asked(input_required(ASK_FORM))
        on.server.crash()
        on.client.answer(on.client.questions()[-1], YES)
        await until(lambda: bool(on.workbench.unanswered()))
        again = on.workbench.gateway.fake_servers[-1]
        assert again.call["params"]["inputResponses"] == {"q": YES}
        again.reply(again.call, {"resultType": "complete", **DONE})
        assert request.result["content"] == DONE["content"]


async def test_shutting_down_ends_a_round() -> None:
    async with legacy_to_modern() as on:
        asked = on.asked(input_required(ASK_FORM))
        waiting = on.asked(input_required({}, "later"))
        on.client.session.end(DownstreamError("shutting down"))
        assert "shutting down" in failure(asked)
        assert "shutting down" in failure(waiting)
        assert len(on.client.told("notifications/cancelled")) == 1
        await settled()
        assert len(on.server.requests("tools/call")) == 2
        assert on.workbench.is_clean()


async def test_a_client_that_leaves_ends_a_round() -> None:
    async with legacy_to_modern() as on:
        on.asked(input_required(ASK_FORM))
        on.asked(input_required({}, "later"))
        on.client.session.leave()
        await settled()
        assert len(on.server.requests("tools/call")) == 2
        assert on.workbench.is_clean()


@pytest.mark.bridge("page-to-visit")
async def test_a_page_to_visit_gets_the_id_that_legacy_clients_expect() -> None:
    async with legacy_to_modern() as on:
        page = {key: value for key, value in URL.items() if key != "elicitationId"}
        on.asked(input_required({"one": ("elicitation/create", page), "two": ("elicitation/create", page)}))
        first, second = (question["params"] for question in on.client.questions())
        assert {key: value for key, value in first.items() if key != "elicitationId"} == attributed(page)
        assert isinstance(first["elicitationId"], str)
        assert first["elicitationId"] != second["elicitationId"]
