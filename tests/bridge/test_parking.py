"""A legacy server asks, a modern client is away: whatever happens meanwhile, the call ends once and leaves nothing."""

from __future__ import annotations

import time

import pytest

from mcp_workbench.engine.session import parking
from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL
from mcp_workbench.engine.transport.link import SESSION_LOST
from tests.bridge.conversation import FORM, SAMPLE, URL, attributed
from tests.bridge.in_process import EVERYTHING, META, Json, in_process_workbench, settled, until
from tests.bridge.modern_to_legacy import DONE, YES, answered, keys, modern_to_legacy
from tests.support.refusals import refused

pytestmark = pytest.mark.bridge("parking")

# What the client is told


async def test_the_question_names_its_server_and_is_not_cacheable() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask(("elicitation/create", FORM))
        assert set(request.result) == {"resultType", "inputRequests", "requestState", "_meta"}
        assert request.result["_meta"][META + "serverInfo"]["name"] == "fake-server"
        assert list(request.result["inputRequests"].values()) == [
            {"method": "elicitation/create", "params": attributed(FORM)}
        ]


async def test_questions_that_come_together_are_asked_together() -> None:
    async with modern_to_legacy() as on:
        request, ids = await on.ask(
            ("elicitation/create", FORM), ("sampling/createMessage", SAMPLE), ("roots/list", {})
        )
        asked = [question["method"] for question in request.result["inputRequests"].values()]
        assert asked == ["elicitation/create", "sampling/createMessage", "roots/list"]
        retry = on.client.retry(request, dict(zip(keys(request), ({"n": 1}, {"n": 2}, {"n": 3}), strict=True)))
        assert [(on.server.answer_to(id) or {})["result"] for id in ids] == [{"n": 1}, {"n": 2}, {"n": 3}]
        on.server.reply(on.server.call, DONE)
        assert retry.result["content"] == DONE["content"]


async def test_a_question_without_params_is_passed_on_without_params() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.say({"id": 7, "method": "roots/list"})
        await until(lambda: request.answer is not None)
        assert list(request.result["inputRequests"].values()) == [{"method": "roots/list"}]


async def test_a_server_may_name_its_questions() -> None:
    """Each has a key of its own all the same."""
    async with modern_to_legacy() as on:
        chosen = [{"_meta": {"mcp-workbench/inputKey": name}} for name in ("mine", "question-3", "mine", 5, "")]
        request, ids = await on.ask(*(("roots/list", params) for params in chosen))
        assert keys(request)[:2] == ["mine", "question-3"]
        assert len(keys(request)) == 5
        on.client.retry(request, {key: {"roots": [], "key": key} for key in keys(request)})
        assert [(on.server.answer_to(id) or {})["result"]["key"] for id in ids] == keys(request)


async def test_a_question_that_follows_while_the_client_is_away_is_asked_when_it_returns() -> None:
    async with modern_to_legacy() as on:
        request, (first,) = await on.ask()
        second = on.server.ask("roots/list", {})
        retry = on.client.retry(request, answered(request))
        assert on.server.answer_to(first) is not None
        assert [question["method"] for question in retry.result["inputRequests"].values()] == ["roots/list"]
        assert keys(retry) != keys(request)
        last = on.client.retry(retry, answered(retry, {"roots": []}))
        assert (on.server.answer_to(second) or {})["result"] == {"roots": []}
        on.server.reply(on.server.call, DONE)
        assert last.result["content"] == DONE["content"]
        assert on.workbench.is_clean()


@pytest.mark.bridge("progress", "logging")
async def test_progress_and_log_messages_go_only_to_waiting_clients() -> None:
    def report(step: int) -> None:
        on.server.notify("notifications/progress", {"progressToken": on.server.call["id"], "progress": step})
        on.server.notify("notifications/message", {"level": "info", "data": step})

    async with modern_to_legacy() as on:
        level = {META + "logLevel": "info"}
        request = on.client.call(meta={"progressToken": "first", **level})
        report(1)
        request, _ = await on.ask(request=request)
        report(2)
        fields = {"requestState": request.result["requestState"], "inputResponses": answered(request)}
        on.client.call(meta={"progressToken": "second", **level}, **fields)
        report(3)
        told = [(each["progressToken"], each["progress"]) for each in on.client.told("notifications/progress")]
        assert told == [("first", 1), ("second", 3)]
        assert [each["data"] for each in on.client.told("notifications/message")] == [1, 3]


@pytest.mark.bridge("logging")
@pytest.mark.parametrize(
    ("first", "second", "told"), [("info", "error", [1]), ("error", "info", [2]), ("info", None, [1])]
)
async def test_a_retry_sets_its_own_log_level(first: str, second: str | None, told: list[int]) -> None:
    async with modern_to_legacy() as on:
        request = on.client.call(meta={META + "logLevel": first})
        on.server.notify("notifications/message", {"level": "info", "data": 1})
        request, _ = await on.ask(request=request)
        fields = {"requestState": request.result["requestState"], "inputResponses": answered(request)}
        on.client.call(meta={} if second is None else {META + "logLevel": second}, **fields)
        on.server.notify("notifications/message", {"level": "info", "data": 2})
        assert [each["data"] for each in on.client.told("notifications/message")] == told


@pytest.mark.bridge("page-to-visit")
async def test_that_a_page_was_visited_is_not_told_to_modern_clients() -> None:
    """They learn it from the result of their retry; their era does not know the notification."""
    async with modern_to_legacy() as on:
        on.client.call()
        on.server.notify("notifications/elicitation/complete", {"elicitationId": "e-1"})
        assert on.client.received == []


# What the client brings back


async def test_a_question_that_was_left_out_is_asked_again() -> None:
    async with modern_to_legacy() as on:
        request, (form, roots) = await on.ask(("elicitation/create", FORM), ("roots/list", {}))
        retry = on.client.retry(request, {keys(request)[1]: {"roots": []}})
        assert (on.server.answer_to(form), on.server.answer_to(roots) is None) == (None, False)
        assert keys(retry) == keys(request)[:1], "the same question under the same key"
        assert retry.result["requestState"] != request.result["requestState"]
        on.client.retry(retry, answered(retry))
        assert on.server.answer_to(form) is not None


@pytest.mark.parametrize("nothing", [None, {}])
async def test_a_retry_without_answers_is_asked_again(nothing: Json | None) -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        retry = on.client.retry(request, nothing)
        assert retry.result["inputRequests"] == request.result["inputRequests"]
        assert on.server.answer_to(id) is None
        assert len(on.workbench.parking) == 1


async def test_answers_to_nothing_that_was_asked_are_ignored() -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        retry = on.client.retry(request, {**answered(request), "more": {"action": "accept"}, "": {}, "question-99": {}})
        assert (on.server.answer_to(id) or {})["result"] == YES
        assert retry.answer is None, "the call goes on"


@pytest.mark.parametrize(
    "responses", [[], "text", 5, True, {"question-1": 5}, {"question-1": None}, {"question-1": []}]
)
async def test_answers_of_the_wrong_shape_are_refused_and_the_client_may_try_again(responses: object) -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        await refused(on.workbench, lambda: on.client.retry(request, responses), -32602, "inputResponses")
        on.client.retry(request, answered(request))
        assert (on.server.answer_to(id) or {})["result"] == YES


async def test_null_for_all_answers_is_refused() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        fields = {"requestState": request.result["requestState"], "inputResponses": None}
        await refused(on.workbench, lambda: on.client.call(**fields), -32602)


async def test_the_parameters_may_be_written_in_another_order() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call(arguments={"a": "1", "b": [1, {"c": None, "d": 2}]})
        request, (id,) = await on.ask(request=request)
        on.client.retry(request, answered(request), arguments={"b": [1, {"d": 2, "c": None}], "a": "1"})
        assert on.server.answer_to(id) is not None


# What the server does meanwhile


@pytest.mark.parametrize("outcome", ["result", "error", "crash"])
async def test_the_outcome_of_a_call_is_kept_while_the_client_is_away(outcome: str) -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        if outcome == "result":
            on.server.reply(on.server.call, DONE)
        elif outcome == "error":
            on.server.fail(on.server.call, -32050, "out of order", {"part": 1})
        else:
            on.server.crash()
        assert len(on.workbench.parking) == 1
        retry = on.client.retry(request, answered(request))
        if outcome == "result":
            assert retry.result["content"] == DONE["content"]
            assert (on.server.answer_to(id) or {})["result"] == YES, "it asked, so it is answered"
        elif outcome == "error":
            assert retry.error == {"code": -32050, "message": "out of order", "data": {"part": 1}}
        else:
            assert "exited with status 9" in retry.result["content"][0]["text"]
        assert on.workbench.is_clean()


async def test_a_result_that_comes_before_the_client_was_sent_away_is_simply_the_answer() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        id = on.server.ask("elicitation/create", FORM)
        on.server.reply(on.server.call, DONE)
        assert request.result["content"] == DONE["content"]
        assert (on.server.answer_to(id) or {})["result"] == {"action": "cancel"}
        assert on.workbench.is_clean()


async def test_after_a_crash_the_next_call_restarts_the_server() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        on.server.crash()
        assert on.client.retry(request, answered(request)).result["isError"] is True
        assert await on.workbench.connect(on.client) is not on.server


async def test_a_question_that_the_server_cancels_is_not_answered() -> None:
    async with modern_to_legacy() as on:
        request, (form, roots) = await on.ask(("elicitation/create", FORM), ("roots/list", {}))
        on.server.withdraw(form)
        retry = on.client.retry(request, answered(request))
        assert on.server.answer_to(form) is None
        assert on.server.answer_to(roots) is not None
        assert retry.answer is None, "nothing is left to ask, the call goes on"
        on.server.reply(on.server.call, DONE)
        assert retry.result["content"] == DONE["content"]
        assert on.workbench.is_clean()


async def test_a_question_that_is_cancelled_at_once_does_not_reach_the_client() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        on.server.withdraw(on.server.ask("elicitation/create", FORM))
        other = on.server.ask("roots/list", {})
        await until(lambda: request.answer is not None)
        assert [each["method"] for each in request.result["inputRequests"].values()] == ["roots/list"]
        on.client.retry(request, answered(request, {"roots": []}))
        assert on.server.answer_to(other) is not None


async def test_two_questions_under_one_id_get_one_answer() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        for _ in range(2):
            on.server.say({"id": "same", "method": "roots/list", "params": {}})
        await until(lambda: request.answer is not None)
        on.client.retry(request, answered(request, {"roots": []}))
        assert on.server.answer_to("same") is not None
        on.server.reply(on.server.call, DONE)
        assert on.workbench.is_clean()


# How it ends


async def test_the_call_of_a_lost_session_is_not_sent_again_once_its_server_has_asked() -> None:
    """It was accepted, and its arguments are not kept any more."""
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        (exchange,) = on.server.traffic.take_calls()
        exchange.call.send_again()
        await settled()
        assert len(on.server.requests("tools/call")) == 1
        retry = on.client.retry(request, answered(request))
        await until(lambda: retry.answer is not None)
        assert SESSION_LOST in str(retry.answer) and len(on.server.requests("tools/call")) == 1


async def test_a_state_expires_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the event loop stands still while the machine sleeps."""
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        later = time.time() + on.workbench.parking.seconds
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: later)
            await refused(on.workbench, lambda: on.client.retry(request, answered(request)), -32602, "expired")
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None


async def test_the_call_of_a_client_that_never_returns_is_cancelled() -> None:
    async with modern_to_legacy() as on:
        on.workbench.parking.seconds = 0.0
        request, (form, sample, roots) = await on.ask(
            ("elicitation/create", FORM), ("sampling/createMessage", SAMPLE), ("roots/list", {})
        )
        call = on.server.call
        await until(lambda: len(on.workbench.parking) == 0)
        assert (on.server.answer_to(form) or {})["result"] == {"action": "cancel"}
        for id in (sample, roots):
            assert (on.server.answer_to(id) or {})["error"]["code"] == -32603
        reason = "the client did not come back"
        assert on.server.told("notifications/cancelled") == [{"requestId": call["id"], "reason": reason}]
        assert on.workbench.is_clean()
        await refused(on.workbench, lambda: on.client.retry(request, answered(request)), -32602, "expired")
        assert on.server.requests("tools/call") == [call], "and it is not made again"


async def test_an_outcome_is_not_kept_for_ever() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        on.server.reply(on.server.call, DONE)
        (parked,) = on.workbench.parking._parked.values()
        on.workbench.parking._expire(parked)
        assert on.workbench.is_clean()
        assert on.server.told("notifications/cancelled") == [], "there is nothing left to be cancelled"
        await refused(on.workbench, lambda: on.client.retry(request, answered(request)), -32602)


@pytest.mark.bridge("cancellation")
async def test_a_client_that_is_back_may_give_the_call_up() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        retry = on.client.retry(request, answered(request))
        call = on.server.call
        on.client.cancel(retry)
        assert on.server.told("notifications/cancelled") == [{"requestId": call["id"], "reason": "the test cancels"}]
        on.server.reply(call, DONE)
        assert retry.answer is None
        assert on.workbench.is_clean()


@pytest.mark.bridge("cancellation")
async def test_a_client_may_give_the_call_up_before_it_is_sent_away() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call()
        id = on.server.ask("elicitation/create", FORM)
        on.client.cancel(request)
        assert (on.server.answer_to(id) or {})["result"] == {"action": "cancel"}
        assert len(on.server.told("notifications/cancelled")) == 1
        assert request.answer is None
        assert on.workbench.is_clean()


@pytest.mark.bridge("cancellation")
async def test_a_request_that_has_been_answered_with_a_question_cannot_be_cancelled() -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        on.client.cancel(request)
        assert on.server.told("notifications/cancelled") == []
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None


async def test_shutting_down_cancels_open_questions_and_calls() -> None:
    async with modern_to_legacy() as on:
        _, (away,) = await on.ask()
        call = on.server.call
    assert (on.server.answer_to(away) or {})["result"] == {"action": "cancel"}
    assert [each["requestId"] for each in on.server.told("notifications/cancelled")] == [call["id"]]
    assert on.workbench.is_clean()


async def test_shutting_down_answers_a_client_that_is_back() -> None:
    from mcp_workbench.errors import DownstreamError

    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        retry = on.client.retry(request, answered(request))
        on.client.session.end(DownstreamError("shutting down"))
        assert "shutting down" in retry.result["content"][0]["text"]
        assert len(on.workbench.parking) == 0


# How much there may be of it


async def test_a_principal_has_a_bounded_number_of_parked_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED_CALLS", 2)
    async with modern_to_legacy() as on:
        parked = []
        for _ in range(2):
            parked.append(await on.ask())
        over = on.client.call()
        id = on.server.ask("elicitation/create", FORM)
        refusal = on.server.answer_to(id)
        assert refusal is not None and refusal["error"]["code"] == -32603
        assert "2 calls" in refusal["error"]["message"]
        on.server.reply(on.server.open_calls()[-1], DONE)
        assert over.result["content"] == DONE["content"], "the server decides what it makes of that"

        other = on.workbench.client("modern", principal="somebody else")
        server = await on.workbench.connect(other)
        request = other.call()
        server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        assert request.result["resultType"] == "input_required", "what one principal has parked is not another's limit"

        first = parked[0][0]
        on.client.retry(first, answered(first))
        on.server.reply(on.server.open_calls()[0], DONE)
        await on.ask()
        assert len(on.workbench.parking) == 3


async def test_a_call_has_a_bounded_number_of_open_questions() -> None:
    async with modern_to_legacy() as on:
        request, ids = await on.ask(*[("roots/list", {})] * (MAX_QUESTIONS_PER_CALL + 5))
        assert len(request.result["inputRequests"]) == MAX_QUESTIONS_PER_CALL
        assert [bool(on.server.answer_to(id)) for id in ids] == [False] * MAX_QUESTIONS_PER_CALL + [True] * 5


async def test_the_counters_are_gone_when_nothing_is_parked() -> None:
    async with modern_to_legacy() as on:
        for _ in range(3):
            request, _ = await on.ask()
            on.client.retry(request, answered(request))
            on.server.reply(on.server.call, DONE)
        assert on.workbench.is_clean()
        assert on.workbench.parking._counts == {}


# What may be asked


@pytest.mark.bridge("capabilities")
@pytest.mark.parametrize(
    ("declared", "question", "is_asked"),
    [
        ({"elicitation": {}}, ("elicitation/create", FORM), True),
        ({"elicitation": {"form": {}}}, ("elicitation/create", FORM), True),
        ({"elicitation": {"url": {}}}, ("elicitation/create", FORM), False),
        ({"elicitation": {}}, ("elicitation/create", URL), False),
        ({"elicitation": {"form": {}}}, ("elicitation/create", URL), False),
        ({"elicitation": {"url": {}}}, ("elicitation/create", URL), True),
        ({"sampling": {}}, ("elicitation/create", FORM), False),
        ({"sampling": {}}, ("sampling/createMessage", SAMPLE), True),
        ({"sampling": {}}, ("sampling/createMessage", {**SAMPLE, "tools": []}), False),
        ({"sampling": {"tools": {}}}, ("sampling/createMessage", {**SAMPLE, "tools": []}), True),
        ({}, ("roots/list", {}), False),
        ({"roots": {}}, ("roots/list", {}), True),
        (EVERYTHING, ("custom/question", {}), False),
        (EVERYTHING, ("tasks/get", {}), False),
    ],
)
async def test_a_client_is_asked_only_within_its_declared_capabilities(
    declared: Json, question: tuple[str, Json], is_asked: bool
) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern", declared)
        server = await workbench.connect(client)
        request = client.call()
        id = server.ask(*question)
        await until(lambda: request.answer is not None or server.answer_to(id) is not None)
        assert (request.answer is not None) is is_asked
        if not is_asked:
            code = -32602 if question[0].partition("/")[0] in declared else -32601
            assert (server.answer_to(id) or {})["error"]["code"] == code
            server.reply(server.call, DONE)
            assert workbench.is_clean()


@pytest.mark.bridge("capabilities")
async def test_a_retry_that_drops_a_capability_is_not_asked_for_it() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        on.client.capabilities = {"roots": {}}
        on.client.retry(request, answered(request))
        assert on.server.answer_to(on.server.ask("elicitation/create", FORM)) is not None


async def test_a_question_in_the_middle_of_anything_else_is_refused() -> None:
    """Only three requests may be answered with a question."""
    async with modern_to_legacy() as on:
        ref = {"type": "ref/prompt", "name": "box:server:write"}
        request = on.client.send_request("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
        refusal = on.server.answer_to(on.server.ask("elicitation/create", FORM))
        assert refusal is not None and refusal["error"]["code"] == -32601
        on.server.reply(on.server.call, {"completion": {"values": []}})
        assert request.result["completion"] == {"values": []}


# What is held meanwhile


async def test_a_parked_call_does_not_retain_the_request() -> None:
    async with modern_to_legacy() as on:
        request = on.client.call(arguments={"a": "x" * 1_000_000}, meta={"progressToken": "p", "own": "y" * 1_000_000})
        await on.ask(request=request)
        (parked,) = on.workbench.parking._parked.values()
        call = parked.call
        assert call.params == {} and call.meta is None
        assert call.route.decision is not None and call.route.decision.body == b""
        assert bytes(call.progress_token or b"") == b'"p"'
        on.client.retry(request, answered(request), arguments={"a": "x" * 1_000_000})
        on.server.reply(on.server.call, DONE)
        assert on.workbench.is_clean()


async def test_parked_calls_of_a_client_hold_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED_BYTES", 10_000)
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        large = on.server.ask("elicitation/create", {**FORM, "message": "x" * 10_000})
        assert "hold 10000 bytes already" in (on.server.answer_to(large) or {})["error"]["message"]
        on.server.reply(on.server.call, {"content": [{"type": "text", "text": "x" * 10_000}]})
        retry = on.client.retry(request, answered(request))
        assert "arrived while the client was away, and was too large to keep" in retry.error["message"]
        assert on.workbench.is_clean() and not on.workbench.parking._bytes
