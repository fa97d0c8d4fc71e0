"""A step that judges by what a server says of its items is asked again before every further sending of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from mcp_workbench.app.team_gate import TeamGate
from mcp_workbench.engine.protocol.constants import HEADER_MISMATCH
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Step
from tests.bridge.conversation import FORM, input_required
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import Client, GatewayToFakeServers, in_process_workbench, settled, until

WITHHELD = Denial(-32602, "tool `work` is withheld", rule="lock")


class LikeTheLock:
    """Refuses a tool whose description has changed, as it is listed."""

    judges_definitions = True

    def __init__(self) -> None:
        self.gateway: GatewayToFakeServers | None = None
        self.ended: list[Outcome] = []

    def check(self, request: GuardedRequest) -> Denial | None:
        assert self.gateway is not None
        entry = self.gateway.catalog.toolboxes["box"]["server"]
        definition = entry.tools.get(request.item)
        return WITHHELD if definition is not None and b"changed" in bytes(definition) else None

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        return self.check(request)

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        if request.item == "work":
            self.ended.append(outcome)


@asynccontextmanager
async def judged(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Client, FakeServer, LikeTheLock]]:
    """A modern client of a modern server at an address."""
    step = LikeTheLock()
    steps: tuple[Step, ...] = (step,)
    monkeypatch.setattr(TeamGate, "steps", lambda gate: steps)
    async with in_process_workbench("modern") as workbench:
        step.gateway = workbench.gateway
        client = workbench.client("modern")
        server = await workbench.connect(client)
        (entry,) = workbench.gateway.catalog.entries()
        entry.config = replace(entry.config, url="http://127.0.0.1:1/mcp")
        yield client, server, step


def change(server: FakeServer) -> None:
    for tool in server.offers["tools/list"]["tools"]:
        tool["description"] = "changed"


@pytest.mark.requirement("lock.enforce")
@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_call_whose_headers_were_refused_is_judged_by_the_new_list(
    monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    async with judged(monkeypatch) as (client, server, step):
        request = client.call()
        if is_changed:
            change(server)
        server.fail(server.call, HEADER_MISMATCH, "another header, please")
        if is_changed:
            await until(lambda: request.answer is not None)
            assert "is withheld" in str(request.answer)
            assert len(server.requests("tools/call")) == 1, "it was not sent again"
            assert [(each.decision, each.rules) for each in step.ended] == [("denied", ("lock",))]
        else:
            await until(lambda: len(server.requests("tools/call")) == 2)
            server.reply(server.call, {"resultType": "complete", "content": []})
            assert request.result["content"] == []


async def test_a_server_that_refuses_our_headers_again_gets_no_third_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with judged(monkeypatch) as (client, server, _):
        request = client.call()
        server.fail(server.call, HEADER_MISMATCH, "another header, please")
        await until(lambda: len(server.requests("tools/call")) == 2)
        listed = len(server.requests("tools/list"))
        server.fail(server.call, HEADER_MISMATCH, "another header, please")
        await settled()
        assert request.error["code"] == HEADER_MISMATCH
        assert len(server.requests("tools/call")) == 2 and len(server.requests("tools/list")) == listed


async def test_a_call_ends_with_a_server_that_dies_while_it_is_listed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with judged(monkeypatch) as (client, server, step):
        request, other = client.call(), client.call()
        first, second = server.open_calls()
        del server.offers["tools/list"]
        server.fail(second, HEADER_MISMATCH, "another header, please")
        await until(lambda: bool(server.requests("tools/list")))
        server.crash()
        await until(lambda: other.answer is not None and request.answer is not None)
        assert other.result["isError"] and "status 9" in str(other.result)
        assert [call["id"] for call in server.requests("tools/call")] == [first["id"], second["id"]]
        assert len(step.ended) == 2, "both have ended for those who watch"


@pytest.mark.requirement("lock.enforce")
async def test_a_tool_that_changes_while_its_user_answers_is_not_called_with_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with judged(monkeypatch) as (_, server, step):
        assert step.gateway is not None
        legacy = Client(step.gateway, "legacy", {"elicitation": {"form": {}}}, "", "flat")
        request = legacy.call()
        await until(lambda: bool(server.open_calls()))
        server.reply(server.call, input_required({"q": ("elicitation/create", FORM)}))
        await until(lambda: bool(legacy.questions()))
        change(server)
        server.notify("notifications/tools/list_changed")
        (entry,) = step.gateway.catalog.entries()
        await until(lambda: b"changed" in bytes(entry.tools["work"]))
        legacy.answer(legacy.questions()[0], {"action": "accept", "content": {}})
        await until(lambda: request.answer is not None)
        assert "is withheld" in str(request.answer) and len(server.requests("tools/call")) == 1


@pytest.mark.requirement("lock.enforce")
async def test_a_call_that_goes_to_a_server_which_is_yet_to_be_listed_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with judged(monkeypatch) as (client, server, _):
        request = client.call()
        change(server)
        server.connection.lists.request()
        (call,) = client.session.calls.values()
        call.send_again()
        await until(lambda: request.answer is not None)
        assert "is withheld" in str(request.answer) and len(server.requests("tools/call")) == 1
