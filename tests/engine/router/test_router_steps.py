"""The router with steps: what each may stop, and that nothing passes beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.face.decisions import Answer, Decision, Learn, Reject
from mcp_workbench.errors import DownstreamError
from tests.engine.router.router_stage import Call, Stage, ended, settle, stage


class Steps:
    """Notes what it is asked, and answers what a test says."""

    plain_tracker = None

    def __init__(self, at: Stage) -> None:
        self.heard: list[str] = []
        self.passes = True
        self.refuses = False
        self.denies = False
        self.notes_answers = False
        self.definition_steps: tuple[object, ...] = ()
        at.router.steps = self

    def _heard(self, what: str, answer: bool = False) -> bool:
        self.heard.append(what)
        return answer

    def lets_pass(self, call: Call, decision: Decision) -> bool:
        return self._heard("lets pass", self.passes)

    def refuses_to_answer(self, call: Call) -> bool:
        return self._heard("refuses", self.refuses)

    def notes(self, call: Call, decision: Decision) -> bool:
        call.route.passage = SimpleNamespace(end=lambda kind: self._heard(f"ended {kind}"))
        return self._heard("notes", self.notes_answers)

    def begin_to_wait(self, call: Call) -> None:
        self._heard("begins to wait")

    def wait_for_server(self, call: Call) -> None:
        self._heard("waits for its server")

    def recall_identity(self, call: Call) -> None:
        self._heard("recalls")

    def denies_again(self, call: Call, decision: Decision) -> bool:
        return self._heard("denies again", self.denies)

    def note_sent(self, call: Call) -> None:
        self._heard("sent")

    def unsent(self, call: Call) -> Any:
        self._heard("unsent")
        return SimpleNamespace(end=lambda kind: self._heard(f"ended {kind}"))

    def judge_by_list(self, *about: object) -> None:
        self._heard("judged by list")

    def admit(self, call: Call, method: str, entry: Any, item: str, body: bytes, send: Any) -> None:
        self._heard(f"admit {method} {body.decode()}")
        if self.passes:
            send()

    def notify(self, sender: Any, method: str, body: bytes, send: Any) -> None:
        self._heard(f"notify {method} {body.decode()}")
        if self.passes:
            send()


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("state", [State.READY, State.CONFIGURED])
async def test_a_call_that_the_steps_hold_goes_nowhere(passes: bool, state: State) -> None:
    async with stage() as at:
        steps = Steps(at)
        steps.passes = passes
        connection = at.connection(at.other)
        connection.state = state
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        await settle()
        assert len(connection.traffic.forwarded) == int(passes) and call.ends == []
        waits = ["waits for its server", "begins to wait", "denies again", "sent"]
        assert steps.heard == ["lets pass", *(waits if passes and state is not State.READY else ())]


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("has_definition_steps", [False, True])
async def test_a_step_about_definitions_needs_them_first(is_listed: bool, has_definition_steps: bool) -> None:
    async with stage() as at:
        steps = Steps(at)
        steps.definition_steps = (object(),) if has_definition_steps else ()
        connection = at.connection(at.other)
        connection.lists.is_done = is_listed
        at.router.call_tool(at.call(at.forward()), {})
        await settle()
        must_list = has_definition_steps and not is_listed
        assert connection.did == (["ready", "listed"] if must_list else [])
        assert len(connection.traffic.forwarded) == 1
        assert ("denies again" in steps.heard) is must_list


async def test_request_denied_by_new_lists_is_not_sent() -> None:
    async with stage() as at:
        steps = Steps(at)
        steps.denies = True
        connection = at.connection(at.other)
        connection.state = State.CONFIGURED
        at.router.call_tool(at.call(at.forward()), {})
        await settle()
        assert connection.traffic.forwarded == [] and "sent" not in steps.heard


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("decision", [Answer(b"{}"), Reject(-32602, "no")], ids=["answer", "rejection"])
async def test_calls_that_reach_no_server_are_counted_once(decision: Decision, refuses: bool) -> None:
    async with stage() as at:
        steps = Steps(at)
        steps.refuses = refuses
        steps.notes_answers = True
        call = at.call(decision)
        at.router.call_tool(call, {})
        if refuses:
            assert call.ends == [] and steps.heard == ["refuses"]
        else:
            assert len(call.ends) == 1 and steps.heard == ["refuses", "notes", "refuses"]


async def test_answer_without_a_recorder_is_given() -> None:
    async with stage() as at:
        steps = Steps(at)
        call = at.call(Answer(b"{}"))
        at.router.call_tool(call, {})
        assert call.ends == [("result", b"{}")] and steps.heard == ["refuses", "notes"]


async def test_a_call_that_never_reached_the_steps_is_recorded() -> None:
    async with stage() as at:
        steps = Steps(at)
        at.lists.failures["other"] = DownstreamError("gone")
        call = at.call(Learn(at.other, item="work"), at.forward())  # type: ignore[arg-type]
        at.router.call_tool(call, {})
        assert await ended(call) == [("failure", "gone")]
        assert steps.heard == ["begins to wait", "recalls", "unsent"]
        at.router.cancel(call, {})
        assert steps.heard[3:] == ["ended cancelled"]


async def test_lists_levels_and_notifications_pass_the_steps() -> None:
    async with stage() as at:
        steps = Steps(at)
        answers: list[object] = []
        sender: Any = Call(at.face)
        for passes in (True, False):
            steps.passes, steps.refuses = passes, not passes
            at.router.list(Call(at.face, "tools/list"), "tools", answers.append)
            at.router.set_log_level(Call(at.face, "logging/setLevel"), "debug", lambda: answers.append("level"))
            at.router.notify_servers(sender, "notifications/x", b'{"a":1}')
        assert answers == [[], "level"] and at.pool.levels == ["debug"]
        assert len(at.connection(at.one).traffic.notified) == 1
        both = ["refuses", 'admit logging/setLevel {"level":"debug"', 'notify notifications/x {"a":1']
        assert steps.heard == [*both, *both]


async def test_a_server_is_listed_before_a_call_is_judged_by_its_lists() -> None:
    async with stage() as at:
        steps = Steps(at)
        connection = at.connection(at.other)
        connection.lists.is_done = False
        await at.router.judge_by_list(Call(at.face), "tools/call", connection, "work", None)
        assert connection.did == []
        steps.definition_steps = (object(),)
        await at.router.judge_by_list(Call(at.face), "tools/call", connection, "work", None)
        assert connection.did == ["listed"] and steps.heard == ["judged by list"] * 2
