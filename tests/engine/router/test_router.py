"""The router alone, between a face that decides what a test says and connections that note what they are asked.

Each decision leads to one end of its call, and nothing else happens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.sharing import SHARED
from mcp_workbench.engine.face.decisions import (
    Answer,
    CallEach,
    Decision,
    HandOver,
    Learn,
    Load,
    Open,
    Reject,
    RunProgram,
    Work,
)
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.router.router import LARGE_TO_SHORTEN, MIN_DEDUPLICATED_BYTES, UNKNOWN_STATE
from mcp_workbench.engine.steps import Denial
from mcp_workbench.errors import DownstreamError
from tests.engine.router.router_stage import LEGACY, MODERN, Call, Connection, Entry, ended, settle, stage

# ── decisions ──


async def test_an_answer_and_a_rejection_end_their_call() -> None:
    async with stage() as at:
        call = at.call(Answer(b"{}"))
        at.router.call_tool(call, {})
        assert call.ends == [("result", b"{}")] and call.route.task is None
        call = at.call(Reject(-32602, "no", {"a": 1}))
        at.router.call_tool(call, {})
        assert call.ends == [("error", -32602, "no", {"a": 1})] and at.connection(at.one).did == []


async def test_a_call_is_handed_over() -> None:
    async with stage() as at:
        taken: list[Any] = []
        call = at.call(HandOver(taken.append))
        at.router.call_tool(call, {})
        assert taken == [call] and call.ends == [] and call.route.task is None


async def test_slow_work_is_done_in_a_thread() -> None:
    async with stage() as at:
        threads: list[bool] = []

        def make() -> bytes:
            threads.append(threading.current_thread() is threading.main_thread())
            return b"{}"

        call = at.call(Work(make))
        at.router.call_tool(call, {})
        assert call.ends == [] and call.route.task is not None
        assert await ended(call) == [("result", b"{}")] and threads == [False]


async def test_a_defect_of_ours_ends_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as at:

        def make() -> bytes:
            raise RuntimeError("a bug of ours")

        call = at.call(Work(make))
        at.router.call_tool(call, {})
        ((kind, code, _, _),) = await ended(call)
        assert (kind, code) == ("error", -32603)


async def test_program_is_run_by_the_given_runner() -> None:
    ran: list[str] = []

    async def run(router: Any, call: Any, decision: RunProgram) -> bytes:
        ran.append(decision.code)
        return b'{"ran":1}'

    async with stage(programs=run) as at:
        call = at.call(RunProgram("1+1"))
        at.router.call_tool(call, {})
        assert await ended(call) == [("result", b'{"ran":1}')] and ran == ["1+1"] and call.route.task is None


async def test_state_of_another_instance_is_fetched_before_the_decision() -> None:
    async with stage() as at:
        order: list[str] = []

        async def recall() -> None:
            order.append("recalled")

        def decide() -> Decision:
            order.append("decided")
            return Answer(b"{}")

        call = at.call(Load((at.one,), decide, recall))  # type: ignore[arg-type]
        at.router.call_tool(call, {})
        assert await ended(call) == [("result", b"{}")]
        assert order == ["recalled", "decided"] and at.lists.loaded == [(at.one,)] and call.route.task is None


async def test_a_toolbox_is_opened_or_another_decision_carried_out() -> None:
    async with stage() as at:
        opened: list[object] = []
        instead: list[Decision | None] = [None, Answer(b"instead")]

        async def open_toolbox(call: Call, decision: Open) -> Decision | None:
            opened.append(decision)
            return instead.pop(0)

        at.router.__dict__["_toolboxes"] = SimpleNamespace(open=open_toolbox)
        decision = Open((), SimpleNamespace())  # type: ignore[arg-type]
        for wanted in ([], [("result", b"instead")]):
            call = at.call(decision)
            at.router.call_tool(call, {})
            await settle()
            assert call.ends == wanted
        assert opened == [decision, decision]


async def test_several_calls_are_made_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_workbench.engine.router import call_list

    async def call_each(router: Any, call: Any, decision: CallEach) -> bytes:
        return b'{"all":1}'

    monkeypatch.setattr(call_list, "call_each", call_each)
    async with stage() as at:
        call = at.call(CallEach((), (), "", 0))
        at.router.call_tool(call, {})
        assert await ended(call) == [("result", b'{"all":1}')] and call.route.task is None


# ── sending ──


async def test_a_call_to_a_ready_server_is_sent_at_once() -> None:
    async with stage() as at:
        call = at.call(at.forward())
        call.meta, call.log_level = Raw(b"{}"), "debug"
        at.router.call_tool(call, {})
        connection = at.connection(at.other)
        assert connection.traffic.forwarded == [(call, TOOLS_CALL, "work", b'{"name":"work"', Raw(b"{}"), LEGACY, 12.5)]
        route = call.route
        assert (route.entry, route.decision, route.traffic, route.wire_id, route.task) == (
            at.other, at.face.decisions[0], connection.traffic, 41, None,
        )  # fmt: skip
        assert connection.levels == ["debug"] and connection.did == [] and call.ends == []
        assert at.connection(at.one).traffic.forwarded == []


async def test_without_a_level_none_is_set() -> None:
    async with stage() as at:
        at.router.call_tool(at.call(at.forward()), {})
        assert at.connection(at.other).levels == []


@pytest.mark.parametrize("takes_retries", [False, True])
@pytest.mark.parametrize("is_retry", [False, True])
async def test_a_retry_never_reaches_a_server_that_takes_it_for_a_new_call(is_retry: bool, takes_retries: bool) -> None:
    async with stage() as at:
        call = at.call(at.forward())
        call.is_retry = is_retry
        traffic = at.connection(at.other).traffic
        traffic.takes_retries = takes_retries
        at.router.call_tool(call, {})
        if is_retry and not takes_retries:
            assert call.ends == [("error", -32602, UNKNOWN_STATE, None)] and traffic.forwarded == []
        else:
            assert call.ends == [] and len(traffic.forwarded) == 1


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("number", [SHARED, 3])
async def test_a_client_without_a_session_is_alone_with_a_server_that_asks(asks: bool, number: int) -> None:
    async with stage() as at:
        at.other.asks = asks
        connection = at.connection(at.other)
        connection.state = State.CONFIGURED
        connection.gate.clear()
        call = at.call(at.forward(), number=number)
        at.router.call_tool(call, {})
        is_alone = asks and number == SHARED
        assert at.pool.alone == ([at.other] if is_alone else [])
        assert call.route.caller.client == (-5 if is_alone else number)
        assert connection.traffic.clients.reserved_for is (call if is_alone else None)
        connection.gate.set()
        await settle()
        assert connection.traffic.clients.reserved_for is None and len(connection.traffic.forwarded) == 1


async def test_a_call_waits_for_its_server() -> None:
    async with stage() as at:
        connection = at.connection(at.other)
        connection.state = State.CONFIGURED
        connection.gate.clear()
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        await settle()
        assert (call.route.entry, call.route.decision) == (at.other, at.face.decisions[0])
        assert call.route.task is not None and connection.traffic.forwarded == []
        connection.gate.set()
        await settle()
        assert len(connection.traffic.forwarded) == 1 and call.route.task is None and call.ends == []


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_whose_server_was_replaced_while_it_waited_is_routed_again(fails: bool) -> None:
    async with stage() as at:
        connection = at.connection(at.other)
        connection.state = State.CONFIGURED
        connection.gate.clear()
        connection.failure = DownstreamError("gone") if fails else None
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        await settle()
        at.other.catalogs.clear()
        connection.gate.set()
        assert await ended(call) == [("routed again",)] and connection.traffic.forwarded == []


async def test_a_call_fails_with_its_server() -> None:
    async with stage() as at:
        connection = at.connection(at.other)
        connection.state, connection.failure = State.CONFIGURED, DownstreamError("it does not start")
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        assert await ended(call) == [("failure", "it does not start")] and connection.traffic.forwarded == []


@pytest.mark.parametrize("state", [State.READY, State.CONFIGURED])
async def test_request_is_sent_again_with_the_demanded_headers(state: State) -> None:
    async with stage() as at:
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        connection = at.connection(at.other)
        connection.state = state
        # What was sent before is never routed again.
        at.other.catalogs.clear()
        at.router.send_again(call, b'{"name":"work","more":1')
        await settle()
        first, second = connection.traffic.forwarded
        assert first[3] == b'{"name":"work"' and second[3] == b'{"name":"work","more":1' and call.ends == []
        assert connection.did == ([] if state is State.READY else ["ready"])
        at.router.forget_body(call)
        assert call.route.decision is not None and call.route.decision.body == b""
        at.router.forget_body(at.call(at.forward()))


async def test_a_request_is_sent_again_once_its_server_was_listed() -> None:
    async with stage() as at:
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        at.router.send_after_listing(call)
        await settle()
        connection = at.connection(at.other)
        assert connection.did == ["ready", "listed again"] and len(connection.traffic.forwarded) == 2
        connection.failure = DownstreamError("it crashed")
        at.router.send_after_listing(call)
        assert await ended(call) == [("failure", "it crashed")] and len(connection.traffic.forwarded) == 2


# ── looking again ──


async def test_of_one_server_the_lists_are_read_again_and_the_face_decides_afresh() -> None:
    async with stage() as at:
        call = at.call(Learn(at.other, item="work"), at.forward())  # type: ignore[arg-type]
        at.router.call_tool(call, {})
        assert (call.route.entry, call.route.item) == (at.other, "work")
        await settle()
        assert at.lists.looked_at == [("other", True)] and at.face.asked == [("tool", False), ("tool", True)]
        assert len(at.connection(at.other).traffic.forwarded) == 1


@pytest.mark.parametrize("failing", ["one", "other", "both", ""])
@pytest.mark.parametrize("is_found", [False, True])
async def test_one_of_two_candidates_may_fail_if_the_other_has_the_tool(failing: str, is_found: bool) -> None:
    async with stage() as at:
        for name in ("one", "other"):
            if failing in (name, "both"):
                at.lists.failures[name] = DownstreamError(f"{name} is gone")
        then = at.forward() if is_found else Answer(b"no such tool")
        learn = Learn(at.one, (at.other,), "first", ("second",))  # type: ignore[arg-type]
        call = at.call(learn, then)
        at.router.call_tool(call, {})
        await settle()
        assert at.lists.looked_at == [("one", False), ("other", False)], "none is started for a guess"
        forwarded = at.connection(at.other).traffic.forwarded
        if is_found:
            assert call.ends == [] and len(forwarded) == 1
        elif failing:
            first = "other" if failing == "other" else "one"
            assert call.ends == [("failure", f"{first} is gone")] and forwarded == []
            item = "second" if first == "other" else "first"
            assert (call.route.entry, call.route.item) == (at.other if first == "other" else at.one, item)
        else:
            assert call.ends == [("result", b"no such tool")] and forwarded == []


async def test_the_only_candidate_must_not_fail() -> None:
    async with stage() as at:
        at.lists.failures["other"] = DownstreamError("other is gone")
        call = at.call(Learn(at.other, item="work"), at.forward())  # type: ignore[arg-type]
        at.router.call_tool(call, {})
        assert await ended(call) == [("failure", "other is gone")]
        assert at.connection(at.other).traffic.forwarded == []


async def test_a_defect_while_one_looks_again_is_no_answer() -> None:
    async with stage() as at:
        at.lists.failures["other"] = RuntimeError("a bug of ours")
        learn = Learn(at.one, (at.other,), "first")  # type: ignore[arg-type]
        call = at.call(learn, at.forward(at.one))
        at.router.call_tool(call, {})
        ((kind, code, *_),) = await ended(call)
        assert (kind, code) == ("error", -32603) and at.connection(at.one).traffic.forwarded == []


@pytest.mark.parametrize("replaced", ["one", "other"])
async def test_if_one_of_the_candidates_was_replaced_meanwhile_the_call_is_routed_again(replaced: str) -> None:
    async with stage() as at:
        call = at.call(Learn(at.one, (at.other,), "first"), at.forward())  # type: ignore[arg-type]
        at.router.call_tool(call, {})
        (at.one if replaced == "one" else at.other).catalogs.clear()
        assert await ended(call) == [("routed again",)]
        assert at.connection(at.other).traffic.forwarded == [] and at.face.asked == [("tool", False)]


@pytest.mark.parametrize(
    ("method", "asked"), [("get_prompt", "prompt"), ("read_resource", "resource"), ("complete", "completion")]
)
async def test_an_unknown_item_is_looked_up_again_after_all_have_been_listed(method: str, asked: str) -> None:
    async with stage() as at:
        waited: list[int] = []

        async def wait() -> None:
            waited.append(len(at.face.asked))

        at.lists.waits = [wait]
        call = at.call(Reject(-32602, "unknown"), at.forward())
        getattr(at.router, method)(call, {})
        await settle()
        assert waited == [1] and [what for what, _ in at.face.asked] == [asked, asked]
        assert len(at.connection(at.other).traffic.forwarded) == 1 and call.ends == [] and call.route.task is None
        # Nothing to wait for; still unknown.
        call = at.call(Reject(-32602, "unknown"))
        getattr(at.router, method)(call, {})
        assert call.ends == [("error", -32602, "unknown", None)]
        # A known one is not looked up twice.
        at.face.asked.clear()
        getattr(at.router, method)(at.call(at.forward()), {})
        assert len(at.face.asked) == 1 and len(at.connection(at.other).traffic.forwarded) == 2


async def test_unknown_methods_are_the_faces_and_those_of_tasks_nobodys() -> None:
    async with stage() as at:
        call = at.call(Answer(b"{}"))
        call.method = "vendor/do"
        at.router.relay(call, {})
        assert call.ends == [("result", b"{}")] and at.face.asked == [("unknown", "vendor/do")]
        for method, code in (("tasks/list", -32601), ("tasks/get", None)):
            call = at.call(Answer(b"{}"))
            call.method, call.revision = method, MODERN
            at.router.relay(call, {})
            assert (call.ends[0][0] == "error") is (code is not None)


# ── ends of a call that is under way ──


async def test_a_cancelled_call_is_cancelled_where_it_is() -> None:
    async with stage() as at:
        sent = at.call(at.forward())
        at.router.call_tool(sent, {})
        at.router.cancel(sent, {"reason": Raw(b'"x"')})
        traffic = at.connection(at.other).traffic
        assert traffic.cancelled == [(41, {"reason": Raw(b'"x"')})]
        connection = at.connection(at.one)
        connection.state = State.CONFIGURED
        connection.gate.clear()
        waiting = at.call(at.forward(at.one))
        at.router.call_tool(waiting, {})
        await settle()
        task = waiting.route.task
        assert task is not None
        at.router.cancel(waiting, {})
        await settle()
        assert task.cancelled() and waiting.route.task is None and connection.traffic.cancelled == []
        connection.gate.set()
        await settle()
        assert connection.traffic.forwarded == [] and waiting.ends == []


async def test_a_call_that_a_limit_stops_is_refused_and_cancelled_at_its_server() -> None:
    async with stage() as at:
        call = at.call(at.forward())
        at.router.call_tool(call, {})
        call.route.passage = SimpleNamespace(failure="")
        at.router.stop(call, Denial(-32000, "too long"))
        ((id, params),) = at.connection(at.other).traffic.cancelled
        assert id == 41 and b"a limit of the workbench was reached" in bytes(params["reason"])
        assert call.ends == [("refused", "too long")] and call.route.passage.failure == "timeout"
        unsent = at.call(at.forward())
        at.router.stop(unsent, Denial(-32000, "too long"))
        assert unsent.ends == [("refused", "too long")] and len(at.connection(at.other).traffic.cancelled) == 1


async def test_a_call_that_has_finished_waiting_is_not_stopped_with_its_task() -> None:
    async with stage() as at:
        release = threading.Event()
        call = at.call(Work(lambda: (release.wait(20), b"{}")[1]))
        at.router.call_tool(call, {})
        at.router.work_done(call)
        at.router.stop_work(call)
        release.set()
        assert await ended(call) == [("result", b"{}")]


async def test_a_cancelled_call_whose_task_never_ran_leaves_no_work(recwarn: pytest.WarningsRecorder) -> None:
    async with stage() as at:
        call = at.call(Work(lambda: b"{}"))
        at.router.call_tool(call, {})
        at.router.cancel(call, {})
        await settle()
        assert call.ends == []


# ── results ──


@pytest.mark.parametrize("has_resources", [False, True])
async def test_a_result_within_its_budget_is_passed_on_untouched(has_resources: bool) -> None:
    async with stage() as at:
        at.other.has_resources = has_resources
        at.face.shown = b"short"
        call = at.call(at.forward(result_budget=100))
        at.router.call_tool(call, {})
        at.router.take_result(call, Raw(b"x" * 100))
        assert call.ends == [("passed on", b"x" * 100, True)] and at.face.worked_in == []
        assert at.face.noted == ([b"x" * 100] if has_resources else [])
        without = Call(at.face)
        at.router.take_result(without, Raw(b"{}"))
        assert without.ends == [("passed on", b"{}", True)]


@pytest.mark.parametrize(
    ("result", "members", "shown"),
    [
        (b'{"a":"%b"}' % (b"x" * 100), {"result_budget": 100}, True),
        (b'{"a":"%b"}' % (b"x" * 100), {"result_budget": 0}, False),
        (b'{"a":1}', {"result_budget": 100, "select": "a"}, True),
        (b'{"a":1}', {"result_budget": 100}, False),
        (b'{"structuredContent":{}}', {"result_budget": 100}, False),
        (b'{"structuredContent":{},"a":"%b"}' % (b"x" * MIN_DEDUPLICATED_BYTES), {"result_budget": 10**6}, True),
        (b'{"resultType":"input_required","a":"%b"}' % (b"x" * 100), {"result_budget": 100}, False),
        (b'{"resultType":"complete","a":"%b"}' % (b"x" * 100), {"result_budget": 100}, True),
        (b'{"a":"%b"}' % (b"x" * LARGE_TO_SHORTEN), {"result_budget": 100}, True),
        (b'{"resultType":"task","a":"%b"}' % (b"x" * LARGE_TO_SHORTEN), {"result_budget": 100}, False),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
@pytest.mark.parametrize("answer", [b"short", b"same", None])
async def test_which_results_are_shortened(
    result: bytes, members: dict[str, Any], shown: bool, answer: bytes | None
) -> None:
    async with stage() as at:
        at.face.shown = answer
        call = at.call(at.forward(**members))
        at.router.call_tool(call, {})
        at.router.take_result(call, Raw(result))
        is_short = shown and answer == b"short"
        assert await ended(call) == [("passed on", b"short" if is_short else result, not is_short)]
        is_large = len(result) > LARGE_TO_SHORTEN
        assert at.face.worked_in == (["thread" if is_large else "loop"] if shown and answer is not None else [])
        assert call.route.task is None


# ── lists ──


@pytest.mark.parametrize("reason", [None, "all servers failed"])
@pytest.mark.parametrize("listed", [(), (b"{}",)])
@pytest.mark.parametrize("is_health_check", [False, True])
async def test_an_empty_list_is_never_a_disguised_failure(
    reason: str | None, listed: Sequence[bytes], is_health_check: bool
) -> None:
    async with stage() as at:
        at.lists.reason, at.face.listed, at.face.is_health_check = reason, list(listed), is_health_check
        answers: list[Sequence[bytes]] = []
        call = Call(at.face)
        at.router.list(call, "tools", answers.append)
        if reason and not listed and not is_health_check:
            assert answers == [] and call.ends == [("error", -32603, reason, None)]
        else:
            assert answers == [list(listed)] and call.ends == []
        at.face.lists_everything = False
        at.router.list(Call(at.face), "tools", answers.append)
        assert answers[-1] == list(listed)


@pytest.mark.parametrize("method", ["when_listed", "when_introducible"])
async def test_work_waiting_for_lists_is_done_after_them(method: str) -> None:
    async with stage() as at:
        order: list[str] = []

        async def wait() -> None:
            order.append("listed")

        at.lists.waits = [wait]
        call = Call(at.face)
        arguments: Any = (call, "tools") if method == "when_listed" else (call,)
        getattr(at.router, method)(*arguments, lambda: order.append("acted"))
        assert order == [] and call.route.task is not None
        await settle()
        assert order == ["listed", "acted"] and call.route.task is None
        getattr(at.router, method)(*arguments, lambda: order.append("at once"))
        assert order[2:] == ["at once"]
        at.lists.waits = [wait]
        await at.router.wait_for_list(call, "tools")
        await at.router.wait_for_list(call, "tools")
        assert order[3:] == ["listed"]


async def test_our_own_resources_come_before_those_of_the_face() -> None:
    async with stage(own_resources={"own://a": lambda view: b'{"b":1}'}) as at:
        at.face.own = {"own://b": b"of the face", "own://a": b"hidden"}
        call = Call(at.face)
        assert at.router.read_own_resource(call, "own://a") is True
        ((_, text),) = call.ends
        assert json.loads(text) == {"contents": [{"uri": "own://a", "mimeType": "application/json", "text": '{"b":1}'}]}
        assert at.router.read_own_resource(other := Call(at.face), "own://b") is True
        assert other.ends == [("result", b"of the face")]
        assert at.router.read_own_resource(none := Call(at.face), "own://c") is False and none.ends == []


# ── servers in general ──


async def test_a_level_is_accepted_and_set() -> None:
    async with stage() as at:
        call, accepted = Call(at.face), []
        at.router.set_log_level(call, "debug", lambda: accepted.append(1))
        assert accepted == [1] and at.pool.levels == ["debug"] and call.ends == [("result", b"{}")]


async def test_notifications_go_to_the_running_legacy_servers() -> None:
    async with stage() as at:
        sender: Any = Call(at.face)
        third = Entry(at.catalog, "third")
        at.pool.by_entry[third] = Connection(third, State.CONFIGURED)
        at.connection(at.one).revision = MODERN
        fourth = Entry(at.catalog, "fourth")
        at.pool.by_entry[fourth] = Connection(fourth)
        at.connection(fourth).revision = None
        at.router.notify_servers(sender, "notifications/roots/list_changed", None)
        notified = {entry.name: each.traffic.notified for entry, each in at.pool.by_entry.items()}
        assert notified == {
            "one": [], "other": [("notifications/roots/list_changed", None)], "third": [], "fourth": [],
        }  # fmt: skip


async def test_a_replaced_catalogue_is_forgotten_where_it_was_listed() -> None:
    async with stage() as at:
        assert len(at.catalog.subscribed) == 1 and at.lists.followed == [at.catalog]
        told: list[tuple[Any, Any]] = []
        at.router.views.on_replaced = lambda catalog, plan: told.append((catalog, plan))
        plan = SimpleNamespace(ending=("x",))
        for each in at.catalog.on_replaced:
            each(plan)
        assert at.lists.forgotten == [("x",)] and told == [(at.catalog, plan)]


async def test_a_client_that_wants_progress_is_reminded(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_workbench.engine.router import routed_call

    monkeypatch.setattr(routed_call, "REMIND_INTERVAL", 0.01)
    async with stage() as at:
        release = threading.Event()
        calls = [at.call(Work(lambda: (release.wait(20), b"{}")[1])) for _ in range(2)]
        calls[1].progress_token = Raw(b"1")
        for call in calls:
            at.router.call_tool(call, {})
        async with asyncio.timeout(20):
            while not calls[1].reminded:
                await asyncio.sleep(0.01)
        release.set()
        for call in calls:
            await ended(call)
        assert calls[0].reminded == 0
