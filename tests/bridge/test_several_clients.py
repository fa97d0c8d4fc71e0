"""Several clients of one user on one legacy server: nobody is ever asked what may be another's question."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.downstream import pool, server_questions
from mcp_workbench.engine.downstream.server_questions import CANCELLED_CALL_TIMEOUT
from tests.bridge.conversation import FORM, SAMPLE
from tests.bridge.in_process import ERAS, in_process_workbench, settled, until
from tests.bridge.modern_to_legacy import DONE, YES, answered, modern_to_legacy


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("eras", [("legacy", "legacy"), ("modern", "modern"), ("legacy", "modern")])
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "custom/question"])
async def test_a_question_during_calls_of_several_clients_is_refused(eras: tuple[str, str], method: str) -> None:
    """Two clients of one user: neither is asked what may be the other's, and the server is told why."""
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client(eras[0]), workbench.client(eras[1])
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server, "a server that never asks is shared"
        calls = one.call(), other.call()
        refusal = (server.answer_to(server.ask(method, {**FORM, **SAMPLE})) or {})["error"]
        assert refusal["code"] == -32603 and "calls of several clients" in refusal["message"]
        await settled()
        assert [call.answer for call in calls] == [None, None]
        assert one.questions() == other.questions() == []
        for call in server.open_calls():
            server.reply(call, DONE)
        assert all(call.result["content"] == DONE["content"] for call in calls)
        assert workbench.is_clean()


@pytest.mark.bridge("calls-in-flight")
async def test_where_the_stream_says_whose_question_it_is_that_client_is_asked() -> None:
    """As servers over HTTP do: each call has a stream of its own."""
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("modern")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        one.call()
        theirs = other.call()
        first, second = server.open_calls()
        server.ask_about(first, "elicitation/create", FORM)
        assert len(one.questions()) == 1
        await settled()
        assert theirs.answer is None
        server.ask_about(second, "elicitation/create", FORM)
        await until(lambda: theirs.answer is not None)
        assert theirs.result["resultType"] == "input_required" and len(one.questions()) == 1
        assert not server.connection.entry.asks, "it can go on being shared"


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_has_asked_has_a_connection_for_each_client(era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client(era), workbench.client(era)
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        first = one.call()
        server.ask("elicitation/create", FORM)
        await settled()
        second = other.call()
        await until(
            lambda: len(workbench.gateway.fake_servers) == 2 and bool(workbench.gateway.fake_servers[1].open_calls())
        )
        new = workbench.gateway.fake_servers[1]
        assert server.call["params"] == new.call["params"], "one call each"
        question = new.ask("elicitation/create", FORM)
        if era == "modern":
            await until(lambda: second.answer is not None)
            other.retry(second, answered(second))
        else:
            assert (len(one.questions()), len(other.questions())) == (1, 1)
            other.answer(other.questions()[-1], YES)
        assert (new.answer_to(question) or {})["result"] == YES
        if era == "modern":
            await until(lambda: first.answer is not None)
        else:
            # Its own process stays the first one's, with all that it holds.
            one.answer(one.questions()[-1], YES)
            server.reply(server.call, DONE)
            assert first.result["content"] == DONE["content"]
            assert await workbench.connect(one) is server
            assert await workbench.connect(other) is new or new.open_calls()


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_goes_on_when_the_client_leaves_whose_connection_it_has_become(era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client(era)
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        mine, theirs = one.call(), other.call()
        _, second = server.open_calls()
        server.ask("elicitation/create", FORM)
        assert server.connection.entry.asks, "from now on it is the first one's alone"
        one.session.leave()
        await settled()
        assert mine.answer is None and theirs.answer is None and not server.is_stopped
        server.reply(second, DONE)
        assert theirs.result["content"] == DONE["content"]
        await until(lambda: server.is_stopped)
        assert server.connection not in workbench.gateway.runtime.pool.connections()


@pytest.mark.bridge("calls-in-flight")
async def test_calls_of_one_client_share_a_server_that_asks_and_so_do_clients_that_cannot_be_asked() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        server.ask("elicitation/create", FORM)
        assert server.connection.entry.asks
        client.call()
        client.call()
        await settled()
        assert len(server.open_calls()) == 2
        mute = [workbench.client("legacy", {"roots": {}}) for _ in range(3)]
        assert len({id(await workbench.connect(each)) for each in mute}) == 1


@pytest.mark.bridge("calls-in-flight")
async def test_a_connection_made_for_one_client_ends_with_it() -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        one.call()
        server.ask("elicitation/create", FORM)
        own = await workbench.connect(other)
        assert own is not server
        other.session.leave()
        await until(lambda: own.is_stopped)
        assert own.connection not in workbench.gateway.runtime.pool.connections()
        assert not server.is_stopped
        one.session.leave()
        await until(lambda: server.is_stopped)


@pytest.mark.bridge("calls-in-flight")
async def test_how_many_connections_of_their_own_clients_have_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_OWN_CONNECTIONS", 2)
    for era in ERAS:
        async with in_process_workbench("legacy") as workbench:
            clients = [workbench.client(era) for _ in range(5)]
            server = await workbench.connect(clients[0])
            clients[0].call()
            server.ask("elicitation/create", FORM)
            for client in clients[1:]:
                client.call()
            await settled()
            await until(lambda: len(workbench.unanswered()) == 5)
            assert len(workbench.gateway.fake_servers) == 3, "two of their own, and the shared one"


# Cancelled calls


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_question_that_may_belong_to_a_cancelled_call_is_not_sent(era: str, is_cancelled: bool) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client(era)
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        given_up = one.call()
        if is_cancelled:
            one.cancel(given_up)
        else:
            server.advance(server.connection.entry.config.timeout + 1)
            await until(lambda: given_up.answer is not None)
        theirs = other.call()
        refusal = (server.answer_to(server.ask("elicitation/create", FORM)) or {})["error"]
        assert refusal["code"] == -32603 and "calls of several clients" in refusal["message"]
        await settled()
        assert theirs.answer is None and one.questions() == other.questions() == []


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("how", ["answered", "their own"])
async def test_cancelled_calls_that_are_answered_or_ones_own_do_not_count(how: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        asked = one if how == "their own" else other
        given_up = one.call()
        [call] = server.open_calls()
        one.cancel(given_up)
        if how == "answered":
            server.reply(call, DONE)
        asked.call()
        server.ask("elicitation/create", FORM)
        assert len(asked.questions()) == 1


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_question_of_a_cancelled_call_reaches_no_other_client_however_late(is_cancelled: bool) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(other)
        assert await workbench.connect(one) is server
        given_up = one.call()
        if is_cancelled:
            one.cancel(given_up)
        else:
            server.advance(server.connection.entry.config.timeout + 1)
            await until(lambda: given_up.answer is not None)
        server.advance(100 * CANCELLED_CALL_TIMEOUT)
        theirs = other.call()
        refusal = (server.answer_to(server.ask("elicitation/create", FORM)) or {})["error"]
        assert "calls of several clients" in refusal["message"]
        assert one.questions() == other.questions() == []
        server.reply(server.open_calls()[-1], DONE)
        assert theirs.result["content"] == DONE["content"]
        # The client that was refused is asked at its next call, which another process of the server handles.
        again = await workbench.connect(other)
        assert again is not server
        other.call()
        again.ask("elicitation/create", FORM)
        assert len(other.questions()) == 1
        await until(lambda: server.is_stopped)


@pytest.mark.bridge("calls-in-flight")
async def test_many_cancelled_calls_are_not_forgotten_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_questions, "MAX_CANCELLED_CALLS", 1)
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        mine, theirs = other.call(), one.call()
        for client, request in ((other, mine), (one, theirs)):
            client.cancel(request)
        other.call()
        assert "error" in (server.answer_to(server.ask("elicitation/create", FORM)) or {})
        assert one.questions() == other.questions() == []


@pytest.mark.bridge("calls-in-flight")
async def test_a_connection_of_calls_long_cancelled_is_replaced_for_clients_without_a_session() -> None:
    async with in_process_workbench("legacy") as workbench:
        first = workbench.client("modern")
        server = await workbench.connect(first)
        first.call()
        server.ask("elicitation/create", FORM)
        second = workbench.client("modern")
        own = await workbench.connect(second)
        assert own is not server
        second.cancel(second.call())
        third = workbench.client("modern")
        await settled()
        own.advance(CANCELLED_CALL_TIMEOUT + 1)
        replaced = await workbench.connect(third)
        assert replaced is not own
        await until(lambda: own.is_stopped)
        third.call()
        replaced.ask("elicitation/create", FORM)
        assert second.questions() == [] and replaced.answer_to("ask-1") is None


@pytest.mark.bridge("question")
async def test_outside_of_calls_a_question_left_by_a_disconnected_client_is_refused() -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        one.cancel(one.call())
        one.session.leave()
        refusal = (server.answer_to(server.ask("elicitation/create", FORM)) or {})["error"]
        assert "ask during a call" in refusal["message"] and other.questions() == []


# Outside of any call


@pytest.mark.bridge("question")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
async def test_outside_of_calls_a_question_is_refused_while_several_clients_are_connected(method: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        refusal = (server.answer_to(server.ask(method, {**FORM, **SAMPLE})) or {})["error"]
        assert refusal["code"] == -32603 and "several clients use this connection" in refusal["message"]
        assert one.questions() == other.questions() == []


@pytest.mark.bridge("question")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
async def test_outside_of_calls_the_last_of_several_clients_is_not_asked(method: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        other.session.leave()
        refusal = (server.answer_to(server.ask(method, {**FORM, **SAMPLE})) or {})["error"]
        assert refusal["code"] == -32603 and "several clients use this connection" in refusal["message"]
        assert one.questions() == []
        one.call()
        server.ask(method, {**FORM, **SAMPLE})
        assert [question["method"] for question in one.questions()] == [method], "in its own call it is"


@pytest.mark.bridge("question")
async def test_roots_are_asked_of_several_clients_only_with_the_next_call() -> None:
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        asked = server.ask("roots/list", {})
        assert (server.answer_to(asked), one.questions(), other.questions()) == (None, [], [])
        one.call()
        assert [question["method"] for question in one.questions()] == ["roots/list"]
        assert other.questions() == []


@pytest.mark.bridge("question", "parking")
async def test_a_question_that_waits_for_a_call_is_not_put_in_another_clients_call() -> None:
    async with modern_to_legacy() as on:
        ids = [on.server.ask("elicitation/create", FORM), on.server.ask("roots/list", {})]
        stranger = on.workbench.client("modern")
        request = stranger.call()
        await until(lambda: request.answer is not None)
        assert [each["method"] for each in request.result["inputRequests"].values()] == ["roots/list"]
        assert "several clients use this connection" in (on.server.answer_to(ids[0]) or {})["error"]["message"]


@pytest.mark.bridge("calls-in-flight")
@pytest.mark.parametrize("is_calling", [True, False])
async def test_notifications_about_a_cancelled_call_reach_no_other_client(is_calling: bool) -> None:
    """A log message says nothing about its call, and may hold what only the client of that call may see."""
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        request = one.call()
        if is_calling:
            other.call()
        one.cancel(request)
        if not is_calling:
            one.session.leave()
        server.notify("notifications/message", {"level": "error", "data": "the secret of the first client"})
        assert other.told("notifications/message") == []
        for call in server.open_calls():
            server.reply(call, DONE)
        server.notify("notifications/message", {"level": "error", "data": "of nobody else"})
        expected = [] if is_calling else ["of nobody else"]
        assert [each["data"] for each in other.told("notifications/message")] == expected
