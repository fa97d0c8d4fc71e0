"""Every kind of request that reaches a server passes the steps: in both eras on either side, and there is no other way.

A fake server writes down everything that it gets. What we ask it by ourselves is left out; the rest is a client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.app.team_gate import TeamGate
from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.router.step_runner import MAX_HELD_NOTIFICATIONS
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Step, Substitute, Verdict
from tests.bridge.conversation import FORM, Conversation
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import (
    ERAS,
    Client,
    InProcessWorkbench,
    Json,
    in_process_workbench,
    settled,
    until,
)

REFUSED = Denial(-32000, "not today", {"rule": 7})
# What we ask a server by ourselves.
OURS = (
    *("initialize", "notifications/initialized", "server/discover", "tools/list", "prompts/list", "resources/list"),
    *("resources/templates/list", "notifications/cancelled"),
)
LISTEN = {"notifications": {"resourceSubscriptions": ["test:///one"]}}
COMPLETE = {"ref": {"type": "ref/resource", "uri": "test:///one"}, "argument": {"name": "a", "value": "b"}}

# By name: the eras of clients that may send it; method and params; the method and the item that steps see.
KINDS: dict[str, tuple[tuple[str, ...], str, Json, str, str]] = {
    "prompt": (ERAS, "prompts/get", {"name": "box:server:write"}, "prompts/get", "write"),
    "resource": (ERAS, "resources/read", {"uri": "test:///one"}, "resources/read", "test:///one"),
    "completion": (ERAS, "completion/complete", COMPLETE, "completion/complete", "test:///one"),
    "task": (("modern",), "tasks/get", {"taskId": "t-1"}, "tasks/get", "t-1"),
    "task of a sole server": (("legacy",), "tasks/get", {"taskId": "t-1"}, "tasks/get", "tasks/get"),
    "unknown method": (ERAS, "x/unknown", {"a": 1}, "x/unknown", "x/unknown"),
    "subscription": (("legacy",), "resources/subscribe", {"uri": "test:///one"}, "resources/subscribe", "test:///one"),
    "stream": (("modern",), "subscriptions/listen", LISTEN, "resources/subscribe", "test:///one"),
    "log level": (("legacy",), "logging/setLevel", {"level": "error"}, "logging/setLevel", ""),
    "tool": (ERAS, "tools/call", {"name": "box:server:work", "arguments": {"a": "1"}}, "tools/call", "work"),
}
CASES = [
    (kind, client, server)
    for kind in KINDS
    for client in KINDS[kind][0]
    for server in ERAS
    if kind != "task" or server == client
]
# Those that reach every server of the client, where that one is of the legacy era.
FOR_ALL_SERVERS = ("log level",)


class Recorder:
    """A step that decides as it is told, and writes down what it sees."""

    def __init__(self) -> None:
        self.decide: Callable[[], Verdict | Awaitable[Verdict]] = lambda: None
        self.requests: list[GuardedRequest] = []
        self.ended: list[tuple[GuardedRequest, Outcome]] = []

    def check(self, request: GuardedRequest) -> Verdict | Awaitable[Verdict]:
        if request.item == "warm_up":
            return None
        self.requests.append(request)
        return self.decide()

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        if request.item != "warm_up":
            self.ended.append((request, outcome))

    @property
    def outcome(self) -> Outcome:
        ((request, outcome),) = self.ended
        assert [request] == self.requests
        return outcome


class GuardedPair:
    """One client, one server, one step."""

    def __init__(self, workbench: InProcessWorkbench, client: Client, server: FakeServer, step: Recorder) -> None:
        self.workbench = workbench
        self.client = client
        self.server = server
        self.step = step

    def of_clients(self) -> list[str]:
        """What the server got that a client caused."""
        found = [message["method"] for message in self.server.received if message.get("method") not in (*OURS, None)]
        if self.server.era == "modern" and not self.server.listening_to().get("resourceSubscriptions"):
            found = [method for method in found if method != "subscriptions/listen"]
        return found

    def answer_what_is_open(self) -> None:
        for message in list(self.server.received):
            is_request = "id" in message and message.get("method") not in (None, "subscriptions/listen", *OURS)
            if is_request and message["id"] not in self.server._answered:
                self.server.reply(message, {"ok": True})

    def begin_task(self) -> None:
        """A call that the server answers with the handle `t-1`."""
        self.client.call("tool")
        self.server.reply(self.server.call, {"resultType": "task", "taskId": "t-1"})
        self.server.received.clear()
        self.step.requests.clear()
        self.step.ended.clear()


@asynccontextmanager
async def guarded_pair(
    monkeypatch: pytest.MonkeyPatch, client_era: str, server_era: str, face: FaceName = "flat"
) -> AsyncIterator[GuardedPair]:
    step = Recorder()
    steps: tuple[Step, ...] = (step,)
    monkeypatch.setattr(TeamGate, "steps", lambda gate: steps)
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        await settled()
        server.received.clear()
        found = GuardedPair(workbench, client, server, step)
        if (client_era, server_era) == ("modern", "modern"):
            found.begin_task()
        yield found


@pytest.mark.parametrize(("kind", "client_era", "server_era"), CASES)
async def test_a_listening_step_sees_every_request_and_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, kind: str, client_era: str, server_era: str
) -> None:
    _, method, params, seen_as, item = KINDS[kind]
    async with guarded_pair(monkeypatch, client_era, server_era) as on:
        request = on.client.send_request(method, params)
        if kind == "stream":
            await until(lambda: bool(on.client.told("notifications/subscriptions/acknowledged")))
        else:
            await until(lambda: bool(request.answer) or bool(on.of_clients()))
            on.answer_what_is_open()
            await until(lambda: request.answer is not None)
        outcome = on.step.outcome
        (seen,) = on.step.requests
        where = ("", "") if kind in FOR_ALL_SERVERS else ("box", "server")
        assert (seen.method, seen.item, (seen.toolbox, seen.server)) == (seen_as, item, where)
        assert seen.principal == "" and b'"fake"' in seen.client
        assert (seen.session > 0) == (client_era == "legacy")
        assert outcome.kind == "result" and outcome.size > 0 and outcome.sent is not None
        assert outcome.arrived <= outcome.sent <= outcome.ended


@pytest.mark.parametrize(("kind", "client_era", "server_era"), CASES)
async def test_a_refusing_step_keeps_every_request_from_the_server(
    monkeypatch: pytest.MonkeyPatch, kind: str, client_era: str, server_era: str
) -> None:
    _, method, params, *_ = KINDS[kind]
    async with guarded_pair(monkeypatch, client_era, server_era) as on:
        on.step.decide = lambda: REFUSED
        request = on.client.send_request(method, params)
        if kind == "stream":
            await until(lambda: bool(on.client.told("notifications/subscriptions/acknowledged")))
            (acknowledged,) = on.client.told("notifications/subscriptions/acknowledged")
            assert "resourceSubscriptions" not in acknowledged["notifications"]
        else:
            assert request.error == {"code": -32000, "message": "not today", "data": {"rule": 7}}
        await settled()
        assert on.of_clients() == []
        assert (on.step.outcome.kind, on.step.outcome.code, on.step.outcome.sent) == ("error", -32000, None)


@pytest.mark.parametrize(("kind", "client_era", "server_era"), CASES)
async def test_an_answering_step_answers_in_place_of_the_server(
    monkeypatch: pytest.MonkeyPatch, kind: str, client_era: str, server_era: str
) -> None:
    _, method, params, *_ = KINDS[kind]
    async with guarded_pair(monkeypatch, client_era, server_era) as on:
        on.step.decide = lambda: Substitute(b'{"of":"the step"}')
        request = on.client.send_request(method, params)
        if kind == "stream":
            await until(lambda: bool(on.client.told("notifications/subscriptions/acknowledged")))
        else:
            assert request.result["of"] == "the step"
        await settled()
        assert on.of_clients() == []
        assert on.step.outcome.kind == "result" and on.step.outcome.sent is None


@pytest.mark.parametrize(("kind", "client_era", "server_era"), CASES)
async def test_a_holding_step_holds_every_request_until_it_decides(
    monkeypatch: pytest.MonkeyPatch, kind: str, client_era: str, server_era: str
) -> None:
    _, method, params, *_ = KINDS[kind]
    async with guarded_pair(monkeypatch, client_era, server_era) as on:
        decision: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        on.step.decide = lambda: decision
        request = on.client.send_request(method, params)
        await until(lambda: len(on.step.requests) == 1)
        await settled()
        assert request.answer is None and on.of_clients() == [] and on.step.ended == []
        decision.set_result(None)
        if kind == "stream":
            await until(lambda: bool(on.client.told("notifications/subscriptions/acknowledged")))
        else:
            await until(lambda: bool(request.answer) or bool(on.of_clients()))
            on.answer_what_is_open()
            await until(lambda: request.answer is not None)
        assert on.step.outcome.kind == "result"


@pytest.mark.parametrize(("kind", "client_era", "server_era"), [case for case in CASES if case[0] != "stream"])
async def test_a_request_that_is_cancelled_while_it_is_held_never_reaches_the_server(
    monkeypatch: pytest.MonkeyPatch, kind: str, client_era: str, server_era: str
) -> None:
    _, method, params, *_ = KINDS[kind]
    async with guarded_pair(monkeypatch, client_era, server_era) as on:

        async def decide() -> Verdict:
            await asyncio.Event().wait()
            return None

        on.step.decide = decide
        request = on.client.send_request(method, params)
        on.client.cancel(request)
        await settled()
        assert request.answer is None and on.of_clients() == []
        assert (on.step.outcome.kind, on.step.outcome.sent) == ("cancelled", None)


@pytest.mark.parametrize("method", ["notifications/roots/list_changed", "notifications/x/unknown"])
async def test_notifications_to_servers_pass_the_steps(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    async with guarded_pair(monkeypatch, "legacy", "legacy") as on:
        on.client.notify(method)
        assert on.of_clients() == [method]
        assert on.step.outcome.kind == "result"
        assert (on.step.requests[0].method, on.step.requests[0].server) == (method, "")
        on.step.decide = lambda: REFUSED
        on.client.notify(method)
        on.step.decide = lambda: Substitute(b"{}")
        on.client.notify(method)
        assert on.of_clients() == [method]
        assert [outcome.kind for _, outcome in on.step.ended] == ["result", "error", "result"]


async def test_notifications_are_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_pair(monkeypatch, "legacy", "legacy") as on:
        decision: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        on.step.decide = lambda: decision
        for _ in range(MAX_HELD_NOTIFICATIONS + 5):
            on.client.notify("notifications/roots/list_changed")
        assert [outcome.kind for _, outcome in on.step.ended] == ["cancelled"] * 5
        decision.set_result(None)
        await until(lambda: len(on.step.ended) == MAX_HELD_NOTIFICATIONS + 5)
        assert len(on.of_clients()) == MAX_HELD_NOTIFICATIONS


async def test_unsubscribing_passes_the_steps_unless_the_client_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_pair(monkeypatch, "legacy", "legacy") as on:
        subscribed = on.client.send_request("resources/subscribe", {"uri": "test:///one"})
        await until(lambda: subscribed.answer is not None)
        on.step.decide = lambda: REFUSED
        request = on.client.send_request("resources/unsubscribe", {"uri": "test:///one"})
        assert request.error["code"] == -32000 and on.of_clients() == ["resources/subscribe"]
        on.client.session.leave()
        await until(lambda: on.of_clients() == ["resources/subscribe", "resources/unsubscribe"])
        assert [seen.method for seen in on.step.requests] == ["resources/subscribe", "resources/unsubscribe"]


@pytest.mark.parametrize("client_era", ERAS)
async def test_an_agent_can_read_why_its_call_was_refused(monkeypatch: pytest.MonkeyPatch, client_era: str) -> None:
    async with guarded_pair(monkeypatch, client_era, "legacy", face="proxy") as on:
        on.step.decide = lambda: REFUSED
        result = on.client.call("tool").result
        assert result["isError"] and result["content"][0]["text"].startswith("[box/server/work] not today")
        assert on.step.outcome.sent is None


@pytest.mark.parametrize(("client_era", "server_era"), [(a, b) for a in ERAS for b in ERAS])
async def test_a_call_is_checked_once_however_often_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, client_era: str, server_era: str
) -> None:
    """A server that asks in the middle of a call does not make it another one."""
    async with guarded_pair(monkeypatch, client_era, server_era) as on:
        conversation = Conversation(on.client, on.server)
        await conversation.ask("form")
        conversation.finish()
        retries = 1 if (client_era, server_era) == ("modern", "modern") else 0
        # Between two modern ends the retry is a request of the client's own.
        assert len(on.step.requests) == len(on.step.ended) == 1 + retries


async def test_a_parked_call_that_its_client_never_comes_back_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_pair(monkeypatch, "modern", "legacy") as on:
        request = on.client.call("tool")
        on.server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        assert on.step.ended == []
        on.workbench.parking.close()
        assert on.step.outcome.kind == "cancelled"


async def test_an_error_of_the_server_and_its_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_pair(monkeypatch, "legacy", "legacy") as on:
        on.client.call("prompt")
        on.server.fail(on.server.call, -32050, "no")
        on.client.call("prompt")
        on.server.crash()
        assert [outcome.code for _, outcome in on.step.ended] == [-32050, -32603]
