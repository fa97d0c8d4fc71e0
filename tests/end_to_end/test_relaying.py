"""What passes while a call runs: progress and cancellation both ways, questions of servers, log messages."""

from __future__ import annotations

import asyncio

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, start_use
from tests.support.client import Json, RawClient, RpcError
from tests.support.workbench import logged, scripted_entry

CAPABILITIES: Json = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
ANSWERS: dict[str, tuple[str, Json]] = {
    "ask": ("elicitation/create", {"action": "accept", "content": {"name": "Ada"}, "x-unknown": [1]}),
    "sample": (
        "sampling/createMessage",
        {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    ),
    "roots": ("roots/list", {"roots": [{"uri": "file:///home", "name": "home", "_meta": {"a": 1}}]}),
}


# Progress


@pytest.mark.requirement("utilities.progress")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_progress_arrives_in_order_under_the_token_of_the_client(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era)}
    async with workbench.serving({"box": box}, era=client_era) as client:
        for token in ("a token", 0, 17):
            client.notifications.clear()
            result = await client.use_tool("box", "server", "progress", {"n": 5}, _meta={"progressToken": token})
            assert result["structuredContent"] == {"sent": 5}
            told = client.received("notifications/progress")
            assert [(params["progressToken"], params["progress"]) for params in told] == [
                (token, n) for n in range(1, 6)
            ]
            assert told[0] == {"progressToken": token, "progress": 1, "total": 5, "message": "step 1"}
        client.notifications.clear()
        result = await client.use_tool("box", "server", "progress", {"n": 5})
        assert result["structuredContent"] == {"sent": 0}
        assert client.notifications == []


@pytest.mark.requirement("utilities.progress")
async def test_two_calls_with_the_same_token_are_distinguished(workbench: Workbench) -> None:
    """The same token on two servers, and a server that reports on calls it does not have."""
    box = {"one": scripted_entry(), "two": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        await open_toolbox(client, "box")
        for server in ("one", "two"):
            await client.use_tool("box", server, "progress", {"n": 2}, _meta={"progressToken": "same"})
        assert [params["progress"] for params in client.received("notifications/progress")] == [1, 2, 1, 2]
        client.notifications.clear()
        for token in (1, 2, 99, "same", None, {"a": 1}):
            stray = {"progressToken": token, "progress": 1}
            await client.use_tool("box", "one", "notify", {"method": "notifications/progress", "params": stray})
        await client.use_tool("box", "one", "notify", {"method": "notifications/progress", "params": {}})
        assert client.received("notifications/progress") == []


# Cancellation


@pytest.mark.requirement("utilities.cancellation")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_cancelled_call_is_cancelled_at_its_server_and_never_answered(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era)}
    async with workbench.serving({"box": box}, era=client_era) as client:
        await client.use_tool("box", "server", "count")
        hanging = await client.start_tool("use_tool", start_use("box", "server", "hang"))
        other = await client.start_tool("use_tool", start_use("box", "server", "hang"))
        await client.cancel(hanging, "no longer needed")
        seen = (await client.use_tool("box", "server", "cancelled", {"wait": 1}))["structuredContent"]["cancelled"]
        assert [cancelled["reason"] for cancelled in seen] == ["no longer needed"]
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 2}
        assert not hanging.answered and not other.answered
        await client.cancel(other)
        await client.use_tool("box", "server", "cancelled", {"wait": 2})
        assert client.unmatched == []


async def test_the_answer_to_a_cancelled_call_is_dropped_when_it_comes_all_the_same(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await client.use_tool("box", "server", "count")
        call = await client.start_tool("use_tool", start_use("box", "server", "echo"))
        await client.cancel(call)
        for _ in range(3):
            await client.use_tool("box", "server", "count")
        late = [message for message in client.unmatched if message.get("id") != call.id]
        assert late == []


async def test_cancelling_finished_unknown_or_malformed_requests_is_harmless(workbench: Workbench) -> None:
    log = workbench.path("log")
    async with workbench.serving({"box": {"server": scripted_entry("--log", log)}}) as client:
        done = await client.start_tool("use_tool", start_use("box", "server", "count"))
        await done.result()
        await client.cancel(done)
        for params in ({"requestId": 99}, {"requestId": None}, {"requestId": {"a": 1}}, {}, {"requestId": "1"}):
            await client.notify("notifications/cancelled", params)
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []})
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 2}
    assert logged(log, "notifications/cancelled") == []


@pytest.mark.requirement("utilities.cancellation")
async def test_a_call_can_be_cancelled_while_its_server_still_starts(workbench: Workbench) -> None:
    gate, log = workbench.path("gate"), workbench.path("log")
    async with workbench.serving({"box": {"server": workbench.held_back(gate, "--log", log)}}) as client:
        cancelled = await client.start_tool("use_tool", start_use("box", "server", "count"))
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        waiting = await client.start_tool("use_tool", start_use("box", "server", "count"))
        await client.cancel(cancelled)
        await client.cancel(opening)
        gate.touch()
        assert (await waiting.result())["structuredContent"] == {"count": 1}
        assert not cancelled.answered and not opening.answered
    assert len(logged(log, "tools/call")) == 1


async def test_a_storm_of_cancellations_leaves_the_rest_alone(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await client.use_tool("box", "server", "count")
        calls = []
        for number in range(200):
            tool = "hang" if number % 2 else "echo"
            calls.append(await client.start_tool("use_tool", start_use("box", "server", tool, {"n": number})))
            if number % 2:
                await client.cancel(calls[-1])
        for number, call in enumerate(calls):
            if number % 2 == 0:
                assert (await call.result())["structuredContent"] == {"n": number}
            else:
                assert not call.answered
        seen = await client.use_tool("box", "server", "cancelled", {"wait": 100})
        assert len(seen["structuredContent"]["cancelled"]) == 100


# Questions of servers


@pytest.mark.parametrize("tool", list(ANSWERS))
async def test_a_question_of_a_legacy_server_reaches_the_client_and_its_answer_the_server(
    workbench: Workbench, tool: str
) -> None:
    method, answer = ANSWERS[tool]
    async with workbench.serving(
        {"box": {"server": scripted_entry("--era", "legacy")}}, capabilities=CAPABILITIES
    ) as client:
        client.handlers[method] = lambda params: answer
        result = await client.use_tool("box", "server", tool)
        assert result["structuredContent"] == {"result": answer}
        (asked,) = client.server_requests
        assert asked["method"] == method
        if tool == "ask":
            assert asked["params"]["message"] == "[box/server] What is your name?"
            assert asked["params"]["requestedSchema"]["required"] == ["name"]

        def refuse(params: Json) -> Json:
            raise RpcError({"code": -1, "message": "User rejected", "data": {"a": 1}})

        client.handlers[method] = refuse
        result = await client.use_tool("box", "server", tool)
        assert result["structuredContent"] == {"error": {"code": -1, "message": "User rejected", "data": {"a": 1}}}


@pytest.mark.parametrize("tool", list(ANSWERS))
async def test_a_question_of_a_modern_server_is_relayed_untouched_with_its_state(
    workbench: Workbench, tool: str
) -> None:
    method, answer = ANSWERS[tool]
    box = {"server": scripted_entry("--era", "modern")}
    async with workbench.serving({"box": box}, era="modern", capabilities=CAPABILITIES) as client:
        needed = await client.use_tool("box", "server", tool)
        assert needed["resultType"] == "input_required"
        assert needed["requestState"] == f"state of {tool}"
        assert needed["inputRequests"]["question"]["method"] == method
        responses = {"question": answer}
        answered = await client.use_tool(
            "box", "server", tool, inputResponses=responses, requestState=needed["requestState"]
        )
        assert answered["structuredContent"] == {"result": answer}
        assert client.server_requests == []


@pytest.mark.requirement("asking.capabilities")
async def test_a_client_without_the_capability_is_not_asked_and_the_server_is_told(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--era", "legacy")}}, capabilities={}) as client:
        for tool in ANSWERS:
            error = (await client.use_tool("box", "server", tool))["structuredContent"]["error"]
            assert error["code"] == -32601
        assert client.server_requests == []


async def test_questions_at_the_same_time_are_answered_each_by_its_own(workbench: Workbench) -> None:
    box = {"one": scripted_entry("--era", "legacy"), "two": scripted_entry("--era", "legacy")}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        client.handlers["elicitation/create"] = lambda params: {
            "action": "accept",
            "content": {"name": params["message"].partition("] ")[2]},
        }
        await open_toolbox(client, "box")
        calls = [
            await client.start_tool("use_tool", start_use("box", server, "ask", {"message": f"{server} {number}"}))
            for number in range(10)
            for server in ("one", "two")
        ]
        answers = [(await call.result())["structuredContent"]["result"]["content"]["name"] for call in calls]
        assert answers == [f"{server} {number}" for number in range(10) for server in ("one", "two")]
        assert len({request["id"] for request in client.server_requests}) == 20


@pytest.mark.requirement("utilities.ping")
async def test_a_server_may_ping_and_the_client_is_not_bothered(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--era", "legacy")}}) as client:
        result = await client.use_tool("box", "server", "request", {"method": "ping"})
        assert result["structuredContent"] == {"result": {}}
        assert client.server_requests == []


class Hesitant:
    """Takes the place of a client's handlers: keeps the questions, and answers none by itself."""

    def __init__(self, client: RawClient) -> None:
        self.questions: list[Json] = []
        self.asked = asyncio.Event()
        client._answer = self._keep  # type: ignore[method-assign]

    async def _keep(self, message: Json) -> None:
        self.questions.append(message)
        self.asked.set()


async def test_a_call_waits_for_its_question_beyond_its_deadline(workbench: Workbench) -> None:
    """People need minutes for a form; the clock of the call stands still meanwhile."""
    box = {"server": scripted_entry("--era", "legacy", timeout=2)}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        hesitant = Hesitant(client)
        call = await client.start_tool("use_tool", start_use("box", "server", "ask"))
        await hesitant.asked.wait()
        # Longer than the timeout by the clock of the workbench: another call has run into it meanwhile.
        assert "did not answer within" in error_text(await client.use_tool("box", "server", "hang"))
        assert not call.answered
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await client.send({"jsonrpc": "2.0", "id": hesitant.questions[0]["id"], "result": answer})
        assert (await call.result())["structuredContent"] == {"result": answer}


async def test_answer_to_the_question_of_a_cancelled_call_is_dropped(
    workbench: Workbench,
) -> None:
    box = {"server": scripted_entry("--era", "legacy")}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        hesitant = Hesitant(client)
        call = await client.start_tool("use_tool", start_use("box", "server", "ask"))
        await hesitant.asked.wait()
        await client.cancel(call)
        await client.use_tool("box", "server", "cancelled", {"wait": 1})
        await client.send({"jsonrpc": "2.0", "id": hesitant.questions[0]["id"], "result": {"action": "cancel"}})
        await client.send({"jsonrpc": "2.0", "id": 4711, "result": {"action": "cancel"}})
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}


async def test_an_answer_without_result_or_error_ends_the_question_all_the_same(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--era", "legacy")}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        hesitant = Hesitant(client)
        call = await client.start_tool("use_tool", start_use("box", "server", "ask"))
        await hesitant.asked.wait()
        await client.send({"jsonrpc": "2.0", "id": hesitant.questions[0]["id"]})
        assert "error" in (await call.result())["structuredContent"]


async def test_a_question_of_a_server_that_died_is_withdrawn(workbench: Workbench) -> None:
    """Nobody will read the form that the client shows; it should not stay open for ever."""
    box = {"server": scripted_entry("--era", "legacy")}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        hesitant = Hesitant(client)
        asking = await client.start_tool("use_tool", start_use("box", "server", "ask"))
        await hesitant.asked.wait()
        await client.use_tool("box", "server", "crash")
        assert "status 3" in error_text(await asking.result())
        (withdrawn,) = await client.wait_notification("notifications/cancelled")
        assert withdrawn["requestId"] == hesitant.questions[0]["id"]


async def test_a_question_that_the_server_cancels_is_withdrawn(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--era", "legacy")}
    async with workbench.serving({"box": box}, capabilities=CAPABILITIES) as client:
        hesitant = Hesitant(client)
        asking = await client.start_tool("use_tool", start_use("box", "server", "ask"))
        await hesitant.asked.wait()
        given_up = {"method": "notifications/cancelled", "params": {"requestId": "ask-0", "reason": "too slow"}}
        await client.use_tool("box", "server", "notify", given_up)
        (withdrawn,) = await client.wait_notification("notifications/cancelled")
        assert withdrawn == {"requestId": hesitant.questions[0]["id"], "reason": "too slow"}
        await client.cancel(asking)


# Log messages


async def test_log_messages_of_a_server_reach_a_legacy_client(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--era", "legacy")}}) as client:
        message = {"level": "warning", "logger": "db", "data": {"text": "é", "n": [1]}}
        await client.use_tool("box", "server", "notify", {"method": "notifications/message", "params": message})
        assert client.received("notifications/message") == [message]
