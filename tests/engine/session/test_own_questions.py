"""A call that a rule says to ask about is held, and its user is asked through the calling client, in both eras."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule
from mcp_workbench.engine.session import questions
from mcp_workbench.team.policy.approval_socket import ApprovalRequest
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

ASK = (PolicyRule(tools=("box/server/work",), prompts=("*",), resources=("*",), then="ask"), PolicyRule(then="allow"))
YES = {"action": "accept", "content": {"allow": "once"}}
FOR_SESSION = {"action": "accept", "content": {"allow": "session"}}
FOR_AN_HOUR = {"action": "accept", "content": {"allow": "hour"}}
NO = {"action": "decline"}
ERAS = ("legacy", "modern")
PAIRS = [(client, server) for client in ERAS for server in ERAS]


async def asked(client: Client, request: Request) -> Json:
    """The params of the question that the user of this call is shown."""
    if client.era == "legacy":
        await until(lambda: bool(client.questions()))
        (question,) = client.questions()[-1:]
    else:
        await until(lambda: request.answer is not None)
        assert request.result["resultType"] == "input_required"
        ((_, question),) = request.result["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    params: Json = question["params"]
    return params


async def answered(client: Client, request: Request, answer: Json, route: str = "tool") -> Request:
    """The call that goes on after the user has answered."""
    await asked(client, request)
    if client.era == "legacy":
        client.answer(client.questions()[-1], answer)
        client.received[:] = [each for each in client.received if "method" not in each]
        return request
    (key,) = request.result["inputRequests"]
    return client.retry(request, {key: answer}, route)


def sent(workbench: InProcessWorkbench) -> list[Json]:
    return [call for call in workbench.unanswered() if call["params"].get("name") != "warm_up"]


async def finished(workbench: InProcessWorkbench, request: Request) -> Json:
    """The server gets the call and answers it."""
    await until(lambda: bool(sent(workbench)))
    (call,) = sent(workbench)
    fake = next(each for each in workbench.gateway.fake_servers if call in each.open_calls())
    final: Json = {"content": []} if call["method"] == "tools/call" else {"messages": [], "contents": []}
    fake.reply(call, {**final, **({"resultType": "complete"} if fake.era == "modern" else {})})
    await until(lambda: request.answer is not None)
    return request.result


@pytest.mark.requirement("team.approval")
@pytest.mark.parametrize(("client_era", "server_era"), PAIRS)
@pytest.mark.parametrize("route", ["tool", "prompt", "resource"])
async def test_a_call_is_held_until_its_user_agrees(client_era: str, server_era: str, route: str) -> None:
    async with in_process_workbench(server_era, policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = client.call(route)
        params = await asked(client, request)
        assert "box/server/" in params["message"] and "mode" not in params
        assert not sent(workbench), "held"
        request = await answered(client, request, YES, route)
        await finished(workbench, request)
        assert workbench.is_clean()


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize(
    "answer", [NO, {"action": "cancel"}, {"action": "accept"}, {"action": "accept", "content": {}}]
)
async def test_without_a_plain_yes_nothing_is_sent(client_era: str, answer: Json) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = await answered(client, client.call(), answer)
        await until(lambda: request.answer is not None)
        assert "the user did not approve `box/server/work`" in str(request.answer)
        assert not sent(workbench) and workbench.is_clean()


@pytest.mark.parametrize("client_era", ERAS)
async def test_another_argument_is_another_call(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = client.call(arguments={"a": "1"})
        lasting = FOR_SESSION if client_era == "legacy" else FOR_AN_HOUR
        await finished(workbench, await answered(client, request, lasting))
        await finished(workbench, client.call(arguments={"a": "1"}))
        other = client.call(arguments={"a": "2"})
        assert '/arguments/a: "2", was "1"' in (await asked(client, other))["message"]


async def test_a_modern_client_cannot_come_back_with_other_arguments_or_as_somebody_else() -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("modern", principal="alice")
        await workbench.connect(client)
        request = client.call()
        await asked(client, request)
        (key,) = request.result["inputRequests"]
        changed = client.retry(request, {key: YES}, arguments={"a": "2"})
        stranger = workbench.client("modern", principal="bob").retry(request, {key: YES})
        for refused in (changed, stranger):
            await until(lambda refused=refused: refused.answer is not None)  # type: ignore[misc]
            assert refused.error["code"] == -32602
        assert not sent(workbench)
        await finished(workbench, client.retry(request, {key: YES}))
        again = client.retry(request, {key: YES})
        await until(lambda: again.answer is not None)
        assert again.error["code"] == -32602, "a state opens once"
        assert not sent(workbench)


async def test_a_question_that_was_answered_leaves_no_timer() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        for _ in range(2):
            server.ask("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}})
        first, second = client.questions()
        timers = dict(client.session.questions._timers)
        assert len(timers) == 2
        client.answer(second, {"action": "decline"})
        assert [timers[each["id"]].cancelled() for each in (first, second)] == [False, True]
        client.answer(first, {"action": "decline"})
        assert all(timer.cancelled() for timer in timers.values()) and not client.session.questions._timers


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_client_that_cannot_be_asked_is_told_how_to_allow_it(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era, {})
        await workbench.connect(client)
        refused = client.call()
        await until(lambda: refused.answer is not None)
        assert refused.answer is not None
        (waiting,) = workbench.gateway.waiting_approvals()
        assert f"mcp-workbench team approve {waiting['id']}" in str(refused.answer)
        assert not sent(workbench)
        assert workbench.gateway.decide(ApprovalRequest(str(waiting["id"])), "").found == "box/server/work for local"
        assert workbench.gateway.decide(ApprovalRequest(str(waiting["id"])), "").found is None
        await finished(workbench, client.call())
        refused = client.call()
        await until(lambda: refused.answer is not None)
        assert workbench.gateway.waiting_approvals(), "once"


async def test_a_legacy_client_that_answers_too_late_or_with_an_error_did_not_agree() -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        request = client.call()
        await asked(client, request)
        client.refuse(client.questions()[-1], -32603, "no window")
        await until(lambda: request.answer is not None)
        assert "did not approve" in str(request.answer)
        client.session.questions.seconds = 0.0
        request = client.call()
        await until(lambda: request.answer is not None)
        assert "did not approve" in str(request.answer)
        assert questions.TOO_LATE in str(client.told("notifications/cancelled"))
        assert workbench.is_clean()


async def test_a_modern_client_that_does_not_come_back_did_not_agree() -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("modern")
        await workbench.connect(client)
        workbench.parking.seconds = 0.01
        request = client.call()
        await asked(client, request)
        await until(workbench.is_clean)
        assert not sent(workbench)
        (key,) = request.result["inputRequests"]
        late = client.retry(request, {key: YES})
        await until(lambda: late.answer is not None)
        assert late.error["code"] == -32602


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_cancelled_call_is_not_sent_when_the_user_agrees_after_all(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = client.call()
        if client_era == "modern":
            client.cancel(request)
        else:
            await asked(client, request)
            client.cancel(request)
            client.answer(client.questions()[-1], YES)
        await settled()
        assert not sent(workbench)


async def test_an_approved_call_may_be_asked_something_by_its_server_too() -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("modern")
        fake = await workbench.connect(client)
        request = await answered(client, client.call(), YES)
        await until(lambda: bool(sent(workbench)))
        form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        id = fake.ask("elicitation/create", form)
        await until(lambda: request.answer is not None)
        (key,) = request.result["inputRequests"]
        request = client.retry(request, {key: {"action": "accept", "content": {}}})
        await until(lambda: fake.answer_to(id) is not None)
        await finished(workbench, request)
        assert workbench.is_clean()


async def test_a_modern_server_that_asks_in_between_does_not_have_the_user_asked_again() -> None:
    async with in_process_workbench("modern", policy=ASK) as workbench:
        client = workbench.client("modern")
        fake = await workbench.connect(client)
        request = await answered(client, client.call(), YES)
        await until(lambda: bool(sent(workbench)))
        wanted = {"q": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}}
        fake.reply(fake.call, {"resultType": "input_required", "inputRequests": wanted, "requestState": "theirs"})
        await until(lambda: request.answer is not None)
        request = client.retry(request, {"q": {"action": "accept", "content": {}}})
        await finished(workbench, request)


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_subscription_is_asked_about_where_a_client_can_be_asked(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era, EVERYTHING)
        await workbench.connect(client)
        if client_era == "legacy":
            request = client.send_request("resources/subscribe", {"uri": "test:///one"})
            await asked(client, request)
            client.answer(client.questions()[-1], NO)
            await until(lambda: request.answer is not None)
            assert "error" in (request.answer or {})
        else:
            listen = {"notifications": {"resourceSubscriptions": ["test:///one"]}}
            client.send_request("subscriptions/listen", listen)
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
            (told,) = client.told("notifications/subscriptions/acknowledged")
            assert "resourceSubscriptions" not in told["notifications"]
            assert workbench.gateway.waiting_approvals()


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_call_that_takes_too_long_is_stopped_and_its_server_told(client_era: str) -> None:
    limits = (LimitRule(servers=("*",), call_seconds=0.05),)
    async with in_process_workbench("legacy", limits=limits) as workbench:
        client = workbench.client(client_era)
        fake = await workbench.connect(client)
        request = client.call()
        async with asyncio.timeout(10):
            while request.answer is None:
                await asyncio.sleep(0.005)
        assert "stopped after 0.05 s" in str(request.answer)
        assert any(message.get("method") == "notifications/cancelled" for message in fake.received)
        assert workbench.is_clean()


async def test_an_answer_that_came_while_we_were_stopped_is_read_before_it_is_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    real_time, stopped = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real_time() + stopped[0])
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("legacy")
        await workbench.connect(client)
        client.session.questions.seconds = 30.0
        request = client.call()
        await asked(client, request)
        stopped[0] += client.session.questions.seconds
        # Behind the timer of the question, which is due: as what lies in a pipe is read in the pass after the timers.
        loop.call_later(0.001, client.answer, client.questions()[-1], YES)
        await finished(workbench, request)
        assert "isError" not in request.result


@pytest.mark.requirement("team.approval")
@pytest.mark.parametrize("answer", [YES, FOR_AN_HOUR])
async def test_after_a_page_that_had_to_be_visited_first_the_user_is_not_asked_again(answer: Json) -> None:
    page = {"mode": "url", "elicitationId": "1", "url": "https://example.org", "message": "Sign in"}
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = await answered(client, client.call(), answer)
        for _ in range(2):
            await until(lambda: bool(sent(workbench)))
            server.fail(sent(workbench)[0], -32042, "Sign in first", {"elicitations": [page]})
            ((key, shown),) = request.result["inputRequests"].items()
            assert shown["params"]["mode"] == "url", shown
            request = client.retry(request, {key: {"action": "accept"}})
        assert (await finished(workbench, request))["resultType"] == "complete"
        if answer == YES:
            await asked(client, client.call())


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_held_call_that_is_denied_elsewhere_ends_and_reaches_no_server(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = client.call()
        await asked(client, request)
        (waiting,) = workbench.gateway.waiting_approvals()
        denied = workbench.gateway.decide(ApprovalRequest(str(waiting["id"]), denies=True), "ada (process 7)")
        assert denied.found == "box/server/work for local"
        if client_era == "modern":
            # It has its question, and learns of the denial when it comes back, whatever its user says.
            (key,) = request.result["inputRequests"]
            request = client.retry(request, {key: YES})
        await until(lambda: request.answer is not None)
        assert "was denied by ada (process 7)" in str(request.answer)
        assert not sent(workbench)
        again = client.call()
        await until(lambda: again.answer is not None)
        assert "was denied by ada (process 7)" in str(again.answer)


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_held_call_that_is_approved_elsewhere_is_sent_once(client_era: str) -> None:
    async with in_process_workbench("legacy", policy=ASK) as workbench:
        client = workbench.client(client_era)
        await workbench.connect(client)
        request = client.call()
        await asked(client, request)
        (waiting,) = workbench.gateway.waiting_approvals()
        assert workbench.gateway.decide(ApprovalRequest(str(waiting["id"])), "ada").found is not None
        await until(lambda: len(sent(workbench)) == 1)
        if client_era == "modern":
            (key,) = request.result["inputRequests"]
            request = client.retry(request, {key: YES})
        await finished(workbench, request)
        assert not sent(workbench) and not workbench.gateway.waiting_approvals()
