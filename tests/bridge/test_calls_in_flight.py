"""Several calls on one legacy connection: whose question it is, and how long everybody's patience lasts."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.downstream.server_questions import MAX_OPEN_QUESTIONS, QUESTION_TIMEOUT
from tests.bridge.conversation import FORM, SAMPLE, Conversation, unattributed
from tests.bridge.in_process import ERAS, Json, in_process_workbench, settled, until
from tests.bridge.modern_to_legacy import DONE, YES, answered, modern_to_legacy

TIMEOUT = 60.0


# Whose question it is


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("client_era", ERAS)
async def test_of_one_clients_calls_a_question_is_put_to_the_youngest(client_era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        first = Conversation(client, server)
        second = Conversation(client, server)
        older, younger = server.open_calls()
        await second.ask("form")
        server.reply(younger, DONE)
        assert second.request.result["content"] == DONE["content"]
        await first.ask("roots")
        server.reply(older, DONE)
        assert first.request.result["content"] == DONE["content"]
        assert workbench.is_clean()


@pytest.mark.bridge("calls-in-flight")
async def test_two_calls_that_ask_alternately_both_get_their_answers() -> None:
    """The question of the older one is put to the client with the younger one; the answer reaches it all the same."""
    async with modern_to_legacy() as on:
        first = on.client.call()
        of_first = on.server.ask("elicitation/create", FORM)
        await until(lambda: first.answer is not None)
        second = on.client.call(arguments={"a": "2"})
        of_second = on.server.ask("sampling/createMessage", SAMPLE)
        await until(lambda: second.answer is not None)
        assert [each["method"] for each in second.result["inputRequests"].values()] == ["sampling/createMessage"]

        back = on.client.retry(first, answered(first))
        assert (on.server.answer_to(of_first) or {})["result"] == YES
        again = on.server.ask("roots/list", {})
        assert back.answer is None
        done = on.client.retry(second, {"question-1": {"role": "assistant"}}, arguments={"a": "2"})
        assert (on.server.answer_to(of_second) or {})["result"] == {"role": "assistant"}
        assert [each["method"] for each in done.result["inputRequests"].values()] == ["roots/list"]
        last = on.client.retry(done, answered(done, {"roots": []}), arguments={"a": "2"})
        assert (on.server.answer_to(again) or {})["result"] == {"roots": []}

        older, younger = on.server.open_calls()
        on.server.reply(older, {"content": [{"type": "text", "text": "first"}]})
        on.server.reply(younger, {"content": [{"type": "text", "text": "second"}]})
        assert back.result["content"][0]["text"] == "first"
        assert last.result["content"][0]["text"] == "second"
        assert on.workbench.is_clean()


@pytest.mark.bridge("calls-in-flight")
async def test_a_question_goes_to_a_call_that_it_can_belong_to() -> None:
    """Completions may not be answered with a question, so it is the older call's."""
    async with modern_to_legacy() as on:
        request = on.client.call()
        ref = {"type": "ref/prompt", "name": "box:server:write"}
        on.client.send_request("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
        on.server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        assert request.result["resultType"] == "input_required"


@pytest.mark.bridge("calls-in-flight")
async def test_a_question_never_reaches_another_principal() -> None:
    async with in_process_workbench("legacy") as workbench:
        mine, theirs = workbench.client("modern"), workbench.client("modern", principal="somebody else")
        my_server, their_server = await workbench.connect(mine), await workbench.connect(theirs)
        assert my_server is not their_server
        my_call, their_call = mine.call(), theirs.call()
        my_server.ask("elicitation/create", FORM)
        await until(lambda: my_call.answer is not None)
        assert their_call.answer is None
        assert theirs.received == []


# Outside of any call


@pytest.mark.bridge("question")
async def test_outside_of_any_call_a_legacy_client_is_asked_at_once() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        id = server.ask("roots/list", {})
        client.answer(client.questions()[-1], {"roots": []})
        assert (server.answer_to(id) or {})["result"] == {"roots": []}


@pytest.mark.bridge("question", "parking")
async def test_a_question_before_the_first_call_is_sent_with_that_call() -> None:
    """Many ask for roots as soon as the handshake is done; a modern client can be asked in a call only."""
    async with modern_to_legacy() as on:
        ids = [on.server.ask("roots/list", {}), on.server.ask("elicitation/create", FORM)]
        ref = {"type": "ref/prompt", "name": "box:server:write"}
        on.client.send_request("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
        await settled()
        assert on.client.received == [], "this one cannot be answered with a question"
        request = on.client.call()
        await until(lambda: request.answer is not None)
        asked = [each["method"] for each in request.result["inputRequests"].values()]
        assert asked == ["roots/list", "elicitation/create"]
        on.client.retry(request, answered(request))
        assert all(on.server.answer_to(id) for id in ids)


@pytest.mark.bridge("question")
async def test_where_no_call_follows_it_is_refused() -> None:
    async with modern_to_legacy() as on:
        on.server.traffic.questions.held_seconds = 0.0
        id = on.server.ask("roots/list", {})
        await until(lambda: on.server.answer_to(id) is not None)
        assert (on.server.answer_to(id) or {})["error"]["code"] == -32601
        assert on.workbench.is_clean()


@pytest.mark.bridge("question")
@pytest.mark.parametrize("how", ["withdrawn", "crashed"])
async def test_a_question_withdrawn_or_lost_before_the_first_call_is_not_asked(how: str) -> None:
    async with modern_to_legacy() as on:
        id = on.server.ask("roots/list", {})
        if how == "withdrawn":
            on.server.withdraw(id)
        else:
            on.server.crash()
        assert on.workbench.is_clean()
        server = await on.workbench.connect(on.client)
        request = on.client.call()
        server.reply(server.call, DONE)
        assert request.result["content"] == DONE["content"]
        assert on.workbench.is_clean()


@pytest.mark.bridge("question", "capabilities")
async def test_a_question_beyond_the_clients_capabilities_is_refused_at_once() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern", {"sampling": {}})
        server = await workbench.connect(client)
        for method in ("roots/list", "elicitation/create", "custom/question"):
            refusal = server.answer_to(server.ask(method, {}))
            assert refusal is not None and refusal["error"]["code"] == -32601


# What becomes of questions


@pytest.mark.bridge("question")
async def test_within_the_legacy_era_a_question_and_its_answer_pass_as_they_are() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        params: Json = {"message": "m", "a": [1, None], "_meta": {"progressToken": "theirs", "kept": 1}}
        for number, method in enumerate(("custom/question", "elicitation/create")):
            id = server.ask(method, params)
            question = unattributed(client.questions()[-1])
            token = question["params"]["_meta"].pop("progressToken")
            expected = {"message": "m", "a": [1, None], "_meta": {"kept": 1}}
            assert (question["method"], question["params"]) == (method, expected)
            client.notify("notifications/progress", {"progressToken": token, "progress": number})
            assert server.told("notifications/progress")[-1] == {"progressToken": "theirs", "progress": number}
            client.answer(question, {"x-unknown": [None]})
            assert (server.answer_to(id) or {})["result"] == {"x-unknown": [None]}
        id = server.ask("roots/list", {})
        client.send_raw({"id": client.questions()[-1]["id"], "error": {"code": 5, "message": "no", "data": [1]}})
        assert (server.answer_to(id) or {})["error"] == {"code": 5, "message": "no", "data": [1]}


@pytest.mark.bridge("question", "capabilities")
async def test_a_legacy_client_is_not_asked_beyond_its_capabilities() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy", {"roots": {}})
        server = await workbench.connect(client)
        client.call()
        for method, params in (("elicitation/create", FORM), ("sampling/createMessage", SAMPLE)):
            refusal = server.answer_to(server.ask(method, params))
            assert refusal is not None and refusal["error"]["code"] == -32601
        assert client.questions() == []


@pytest.mark.bridge("question", "cancellation")
async def test_a_question_that_the_server_cancels_is_cancelled_at_the_client() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        id = server.ask("elicitation/create", FORM)
        server.withdraw(id)
        question = client.questions()[-1]
        reason = "the server changed its mind"
        assert client.told("notifications/cancelled") == [{"requestId": question["id"], "reason": reason}]
        client.answer(question, YES)
        assert server.answer_to(id) is None
        assert len(client.session.questions) == 0


@pytest.mark.bridge("question")
async def test_a_server_that_crashes_takes_its_questions_along() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        server.ask("elicitation/create", FORM)
        server.crash()
        assert [each["requestId"] for each in client.told("notifications/cancelled")] == [client.questions()[-1]["id"]]
        assert "exited with status 9" in request.result["content"][0]["text"]
        assert workbench.is_clean()


@pytest.mark.bridge("question")
async def test_a_legacy_client_that_never_answers_is_waited_for_only_so_long() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        client.session.questions.seconds = 0.0
        server = await workbench.connect(client)
        client.call()
        id = server.ask("elicitation/create", FORM)
        await until(lambda: server.answer_to(id) is not None)
        assert (server.answer_to(id) or {})["error"]["message"] == "the client did not answer in time"
        assert [each["requestId"] for each in client.told("notifications/cancelled")] == [client.questions()[-1]["id"]]
        server.reply(server.call, DONE)
        client.answer(client.questions()[-1], YES)
        assert workbench.is_clean()


@pytest.mark.bridge("question")
async def test_an_answer_that_is_none_is_an_error_to_the_server() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        id = server.ask("elicitation/create", FORM)
        client.send_raw({"id": client.questions()[-1]["id"]})
        assert (server.answer_to(id) or {})["error"]["code"] == -32603


@pytest.mark.bridge("question")
async def test_a_server_has_a_bounded_number_of_open_questions() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        ids = [server.ask("roots/list", {}) for _ in range(MAX_OPEN_QUESTIONS + 3)]
        assert [bool(server.answer_to(id)) for id in ids[-4:]] == [False, True, True, True]
        assert len(client.session.questions) == MAX_OPEN_QUESTIONS


# How long it may take


@pytest.mark.bridge("deadline")
@pytest.mark.parametrize("client_era", ERAS)
async def test_the_clock_of_a_call_stands_still_while_its_client_is_asked(client_era: str) -> None:
    async with in_process_workbench("legacy", timeout=TIMEOUT) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        talk = Conversation(client, server)
        server.advance(TIMEOUT / 2)
        server.ask("elicitation/create", FORM)
        server.advance(TIMEOUT * 5)
        assert server.told("notifications/cancelled") == []
        request = talk.request
        if client_era == "modern":
            await until(lambda: talk.request.answer is not None)
            request = client.retry(request, answered(request))
        else:
            client.answer(client.questions()[-1], YES)
        server.advance(TIMEOUT / 2)
        assert server.told("notifications/cancelled") == [], "and begins anew when it has answered"
        server.advance(TIMEOUT)
        assert [each["requestId"] for each in server.told("notifications/cancelled")] == [server.call["id"]]
        assert "did not answer within 60 s" in request.result["content"][0]["text"]


@pytest.mark.bridge("deadline")
async def test_answering_one_question_does_not_start_the_clock_while_another_is_open() -> None:
    async with in_process_workbench("legacy", timeout=TIMEOUT) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        server.ask("elicitation/create", FORM)
        server.ask("roots/list", {})
        first, second = client.questions()
        client.answer(first, YES)
        server.advance(TIMEOUT * 2)
        assert request.answer is None
        client.answer(second, {"roots": []})
        server.advance(TIMEOUT * 2)
        assert "did not answer" in request.result["content"][0]["text"]


@pytest.mark.bridge("deadline", "progress")
async def test_progress_does_not_bring_the_end_nearer() -> None:
    async with in_process_workbench("legacy", timeout=TIMEOUT) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call(meta={"progressToken": 1})
        progress = {"progressToken": server.call["id"], "progress": 1}
        server.ask("elicitation/create", FORM)
        server.notify("notifications/progress", progress)
        server.advance(QUESTION_TIMEOUT - 1)
        assert request.answer is None, "not while a question is open"
        client.answer(client.questions()[-1], YES)
        server.notify("notifications/progress", progress)
        server.advance(TIMEOUT / 2)
        assert request.answer is None, "nor after one that took longer than progress could ever stretch a call"


@pytest.mark.bridge("deadline")
async def test_a_question_that_the_server_cancels_starts_the_clock_again() -> None:
    async with in_process_workbench("legacy", timeout=TIMEOUT) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        server.withdraw(server.ask("elicitation/create", FORM))
        server.advance(TIMEOUT + 1)
        assert "did not answer" in request.result["content"][0]["text"]


@pytest.mark.bridge("deadline", "calls-in-flight")
async def test_no_call_that_a_question_may_belong_to_runs_out_of_time_over_it() -> None:
    async with in_process_workbench("legacy", timeout=TIMEOUT) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        older, younger = client.call(), client.call()
        server.ask("elicitation/create", FORM)
        server.advance(TIMEOUT * 2)
        assert (older.answer, younger.answer) == (None, None)
        client.answer(client.questions()[-1], YES)
        server.advance(TIMEOUT + 1)
        assert older.answer is not None and younger.answer is not None


@pytest.mark.bridge("deadline", "parking")
async def test_a_client_that_returns_without_answers_cannot_hold_a_call_open_for_ever() -> None:
    async with modern_to_legacy() as on:
        request, _ = await on.ask()
        on.server.advance(QUESTION_TIMEOUT / 2)
        request = on.client.retry(request, {})
        on.server.advance(QUESTION_TIMEOUT / 2)
        request = on.client.retry(request, {})
        assert "did not answer" in request.result["content"][0]["text"]
        assert on.workbench.is_clean()
