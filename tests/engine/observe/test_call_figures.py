"""Every call is counted from its beginning to its end, whatever becomes of it, and nobody counts unless asked."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists, sampled_from

from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.observe.call_figures import (
    BUCKET_BOUNDS,
    MAX_FRESH,
    MAX_ITEMS,
    MAX_ORIGINS,
    MAX_REASON,
    MAX_ROWS,
    OTHER,
    CallFigures,
    Histogram,
)
from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.engine.observe.ended_calls import EndedCalls
from mcp_workbench.engine.steps import (
    MAX_SEARCHED_ANSWER_BYTES,
    CountedPassage,
    GuardedRequest,
    Passage,
    UncheckedPassage,
    call_id,
)
from mcp_workbench.team.policy.approval_socket import ApprovalRequest
from tests.support.client import Json
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with
from tests.support.processes import eventually

OK = b'{"content":[]}'
LONG = b"x" * MAX_SEARCHED_ANSWER_BYTES
FAILED = b'{"content":[],"isError":true}'


def origin(item: str = "tool", *, server: str = "s", method: str = "tools/call", **more: Any) -> GuardedRequest:
    values = {"principal": "", "client": b'{"name":"an editor"}', "session": 0, "body": b"", **more}
    return GuardedRequest(method=method, toolbox="box", server=server, item=item, **values)


def unchecked(figures: CallFigures, request: GuardedRequest | None = None, body: bytes = b"{") -> UncheckedPassage:
    return UncheckedPassage(None, figures, request or origin(), body, None, 1.0)


class Listener:
    """Writes down what it is told, as it was then."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.calls: list[CallRecord] = []

    def begun(self, call: CallRecord) -> None:
        self.told.append(("begun", call.state))
        self.calls.append(call)

    def changed(self, call: CallRecord) -> None:
        self.told.append(("changed", call.state))

    def ended(self, call: CallRecord) -> None:
        self.told.append(("ended", call.end))
        if call not in self.calls:
            self.calls.append(call)


def ends_of(figures: CallFigures) -> dict[str, int]:
    """How many calls ended in which way."""
    found: dict[str, int] = {}
    for row in figures.totals().rows:
        for end, each in row.ends.items():
            if each.calls:
                found[end] = found.get(end, 0) + each.calls
    return found


# ── durations ──


def test_a_duration_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.0011, 300.0, 300.1):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, *[0] * 14, 1, 1]
    assert (histogram.total, round(histogram.seconds, 4)) == (5, 600.1021)


def test_quantiles_are_interpolated_and_unknown_without_calls() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for seconds in (0.0015, 0.003, 0.003, 0.006):
        histogram.observe(seconds)
    assert histogram.quantile(0.25) == 0.002
    assert histogram.quantile(0.5) == 0.0035
    assert histogram.quantile(1.0) == 0.006
    histogram.observe(1000.0)
    assert histogram.quantile(1.0) == 1000.0


def test_quantiles_do_not_exceed_the_maximum() -> None:
    figures = CallFigures()
    figures.on_unchecked_end(unchecked(figures), "result", (OK,), len(OK), 2.2)
    (one,) = figures.totals().by_server().values()
    assert one.durations.quantile(0.5) == one.durations.quantile(0.95) == 1.2
    figures.on_unchecked_end(unchecked(figures), "result", (OK,), len(OK), 2.1)
    figures.on_unchecked_end(unchecked(figures), "error", (OK,), len(OK), 2.3)
    (three,) = figures.totals().by_server().values()
    p50, p95 = three.durations.quantile(0.5), three.durations.quantile(0.95)
    assert p50 is not None and p95 is not None
    assert 1.0 < p50 < p95 < 1.3
    assert three.durations.quantile(1.0) == 1.3


def test_the_time_that_a_call_waited_for_its_server_is_not_the_servers() -> None:
    figures = CallFigures()
    at_once, waiting = unchecked(figures), unchecked(figures)
    waiting.is_waiting, waiting.reached = False, 1001.0
    figures.on_unchecked_end(at_once, "result", (OK,), len(OK), 1.0005)
    figures.on_unchecked_end(waiting, "result", (OK,), len(OK), 1001.0005)
    (row,) = figures.totals().rows
    ok = row.ends["ok"]
    assert ok.from_arrival().counts[0] == 1 and ok.from_arrival().counts[-1] == 1
    assert ok.at_server().counts[0] == 2 and ok.calls == 2


def test_a_call_that_ends_before_it_is_sent_took_no_time_at_its_server() -> None:
    figures = CallFigures()
    passage = unchecked(figures)
    passage.is_waiting = True
    figures.on_unchecked_end(passage, "cancelled", (), 0, 2.0)
    (row,) = figures.totals().rows
    assert row.ends["cancelled"].from_arrival().total == 1 and row.ends["cancelled"].at_server().total == 0


# ── ends ──


def test_each_outcome_is_counted_as_its_kind() -> None:
    figures = CallFigures()
    unchecked(figures).end("result", OK)
    unchecked(figures).end("result", b'{"resultType":"complete",', memoryview(FAILED)[1:])
    unchecked(figures).end("error", b'{"code":1,"message":"x"}')
    unchecked(figures).end("cancelled")
    shown_as_result = unchecked(figures)
    shown_as_result.failure = "timeout"
    shown_as_result.end("result", FAILED)
    assert ends_of(figures) == {"ok": 1, "tool_error": 1, "error": 1, "cancelled": 1, "timeout": 1}
    (row,) = figures.totals().rows
    assert (row.calls, row.errors, row.bytes_in) == (5, 4, 10)
    assert row.bytes_out == len(OK) + len(b'{"resultType":"complete",') + 2 * len(FAILED) - 1 + 24


class NamedServer(NamedTuple):
    toolbox: str
    name: str


SERVER = NamedServer("box", "s")


def counted(figures: CallFigures, item: str = "tool", method: str = "tools/call") -> CountedPassage:
    caller = Caller("ann", "legacy", client=-3)
    info = b'{"name":"an editor"}'
    return CountedPassage(figures, SERVER, method, item, b"{", caller, info, "stdio", None, monotonic())


def test_calls_that_are_only_counted_end_in_the_same_ways() -> None:
    figures = CallFigures()
    counted(figures).end("result", OK)
    counted(figures).end("result", b'{"content":["' + LONG, b'"]}')
    counted(figures).end("result", b'{"structuredContent":{"isError":true},', b'"content":[]}')
    counted(figures).end("result", b'{"resultType":"complete",', memoryview(FAILED)[1:])
    counted(figures).end("result", b'{"resultType":"complete",', b'"content":["' + LONG + b'"],"isError":true}')
    counted(figures).end("error", b'{"code":1,"message":"x"}')
    counted(figures, "file:///x", "resources/read").end("cancelled")
    late = counted(figures)
    late.failure = "timeout"
    late.end("result", FAILED)
    late.end("result", OK)
    assert ends_of(figures) == {"ok": 3, "tool_error": 2, "error": 1, "cancelled": 1, "timeout": 1}
    assert [(row.server, row.method, row.item, row.calls) for row in figures.totals().rows] == [
        ("s", "tools/call", "tool", 7), ("s", "resources/read", "", 1)
    ]  # fmt: skip


def test_calls_that_are_counted_the_short_way_carry_as_many_bytes() -> None:
    figures = CallFigures()
    first = counted(figures)
    parts = b'{"resultType":"complete",', memoryview(OK)[1:]
    first.end("result", *parts)
    target = SimpleNamespace(entry=first.entry, item=first.item, method=b'"tools/call"', body=first.body)
    call: Any = SimpleNamespace(route=SimpleNamespace(decision=target, arrived=monotonic()), is_success=True)
    (row,) = figures.totals().rows
    once = row.bytes_in, row.bytes_out
    assert figures.counts_result(call, parts)
    (row,) = figures.totals().rows
    assert (row.bytes_in, row.bytes_out) == (2 * once[0], 2 * once[1])
    assert once[1] == sum(map(len, parts))


def test_the_caller_of_a_counted_call_is_known() -> None:
    figures = CallFigures()
    figures.begin(passage := counted(figures))
    (call,) = figures.running()
    assert (call.principal, call.client, call.session, call.peer) == ("ann", "an editor", 0, "stdio")
    passage.end("result", OK)
    assert figures.running() == []


def test_no_server_is_kept_for_the_sake_of_its_figures() -> None:
    figures = CallFigures()
    counted(figures).end("result", OK)
    assert figures._row_at
    figures._turn(figures._turn_at)
    assert not figures._row_at and ends_of(figures) == {"ok": 1}


def test_only_the_first_end_of_a_call_counts() -> None:
    figures = CallFigures()
    passage = unchecked(figures)
    passage.end("cancelled")
    passage.end("result", OK)
    assert ends_of(figures) == {"cancelled": 1}


# ── names ──


def test_uris_and_methods_that_clients_make_up_are_not_names_of_rows() -> None:
    figures = CallFigures()
    for number in range(3):
        unchecked(figures, origin(f"file:///{number}", method="resources/read")).end("result", b"{}")
        unchecked(figures, origin("", method=f"made/up{number}")).end("result", b"{}")
    assert [(row.method, row.item, row.calls) for row in figures.totals().rows] == [
        ("resources/read", "", 3), (OTHER, "", 3)
    ]  # fmt: skip


def test_a_server_with_thousands_of_tools_leaves_room_for_others() -> None:
    figures = CallFigures()
    for number in range(MAX_ITEMS + 10):
        unchecked(figures, origin(f"t{number}")).end("result", OK)
    unchecked(figures, origin("t", server="other")).end("result", OK)
    rows = figures.totals().rows
    assert len(rows) == MAX_ITEMS + 2
    assert [(row.server, row.item, row.calls) for row in rows[-2:]] == [("s", OTHER, 10), ("other", "t", 1)]


def test_names_invented_by_clients_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    figures = CallFigures()
    for number in range(MAX_ROWS + 20):
        unchecked(figures, origin("t", server=f"made up {number}")).end("result", OK)
    rows = figures.totals().rows
    assert len(rows) <= MAX_ROWS + 1
    assert sum(row.calls for row in rows) == MAX_ROWS + 20, "none is lost"
    assert [record.getMessage() for record in caplog.records] == [
        f"calls of more than {MAX_ROWS} items and servers are counted together"
    ]
    assert len(figures._row_of) <= MAX_ORIGINS


@pytest.mark.parametrize(("item", "method"), [("file:///{}", "resources/read"), ("", "made/up{}")])
def test_rows_of_what_clients_make_up_are_remembered_up_to_a_bound(item: str, method: str) -> None:
    figures = CallFigures()
    for number in range(2 * MAX_ORIGINS + 10):
        counted(figures, item.format(number), method.format(number)).end("result", OK)
        remembered = sum(len(rows) for servers in figures._row_at.values() for rows in servers.values())
        assert remembered < MAX_ORIGINS and len(figures._row_at) < MAX_ORIGINS
    assert ends_of(figures) == {"ok": 2 * MAX_ORIGINS + 10}


def test_requests_with_a_body_are_not_remembered() -> None:
    figures = CallFigures()
    Passage((), origin(body=b'{"secret":1'), tracker=figures).end("result", OK)
    assert not figures._row_of and ends_of(figures) == {"ok": 1}


# ── what is running, and who listens ──


def test_running_calls_are_known_with_no_listener_and_keep_their_id() -> None:
    figures = CallFigures()
    first, second = unchecked(figures), unchecked(figures, origin("later", principal="ann", peer="stdio"))
    second.arrived, second.is_waiting = 2.0, True
    for passage in (second, first):
        figures.begin(passage)
    calls = figures.running()
    assert [(call.item, call.state, call.sent, call.client) for call in calls] == [
        ("tool", "sent", 1.0, "an editor"), ("later", "waiting", None, "an editor")
    ]  # fmt: skip
    assert [call.id for call in figures.running()] == [call.id for call in calls]
    server = figures.totals().by_server()["box", "s"]
    assert (server.calls, server.running, server.waiting) == (0, 1, 1)
    assert not figures._records and figures._quiet_until, "the next call is counted as if nobody had looked"
    first.end("result", OK)
    assert [call.item for call in figures.running()] == ["later"]
    second.end("cancelled")
    assert figures.running() == []


def test_a_listener_learns_why_a_call_failed() -> None:
    figures, listener = CallFigures(), Listener()
    figures.subscribe(listener)
    unchecked(figures).end("result", OK)
    unchecked(figures).end("error", b'{"code":-32001,"message":"%b"}' % (b"no " * 200))
    for content in (b'[{"type":"image","data":"x"},{"type":"text","text":"no disk"}]', b"[]", b'{"odd":1}'):
        unchecked(figures).end("result", b'{"content":%b,"isError":true}' % content)
    assert [call.reason for call in listener.calls] == ["", ("no " * 200)[:MAX_REASON], "no disk", "", ""]
    assert [call.end for call in listener.calls] == ["ok", "error", *["tool_error"] * 3]
    assert all("reason" not in call.as_json() for call in listener.calls), "it is content, which not all may see"


def test_a_failure_that_an_agent_is_told_in_a_result_has_its_reason() -> None:
    figures, listener = CallFigures(), Listener()
    figures.subscribe(listener)
    crashed = unchecked(figures)
    crashed.failure = "error"
    crashed.end("result", b'{"content":[{"type":"text","text":"the server exited"}],"isError":true}')
    call = listener.calls[-1]
    assert (call.end, call.reason) == ("error", "the server exited")


def test_a_listener_learns_of_each_call_until_it_unsubscribes() -> None:
    figures, listener = CallFigures(), Listener()
    before = unchecked(figures)
    figures.begin(before)
    unsubscribe = figures.subscribe(listener)
    before.end("error", b'{"code":-32001,"message":"x"}')
    passage = unchecked(figures, body=b'{"a":1')
    figures.begin(passage)
    passage.is_waiting = True
    figures.changed(passage)
    passage.is_waiting, passage.reached = False, 1.5
    figures.changed(passage)
    passage.end("result", OK)
    assert listener.told == [
        ("ended", "error"), ("begun", "sent"), ("changed", "waiting"), ("changed", "sent"), ("ended", "ok")
    ]  # fmt: skip
    old, new = listener.calls
    assert (old.error_code, new.error_code, new.sent, new.bytes_in, new.bytes_out) == (-32001, None, 1.5, 7, len(OK))
    assert new.id > old.id
    unsubscribe()
    figures.begin(last := unchecked(figures))
    last.end("result", OK)
    assert len(listener.told) == 5 and ends_of(figures) == {"error": 1, "ok": 2}


def test_ended_calls_are_kept_while_they_are_collected() -> None:
    figures, collector = CallFigures(), EndedCalls(lambda: None)
    stop = figures.collect(collector)
    figures.begin(first := unchecked(figures, body=b'{"a":1'))
    assert figures.running_passages() == [first] and not figures.is_watched
    first.end("result", OK)
    ((passage, kind, end, payload, size, _),) = collector.take()
    assert (passage, kind, end, payload, size) == (first, "result", "ok", (OK,), len(OK))
    stop()
    figures.begin(second := unchecked(figures))
    second.end("result", OK)
    assert collector.take() == [] and ends_of(figures) == {"ok": 2}


def test_of_a_flood_only_failures_and_calls_that_were_shown_are_collected() -> None:
    figures, collector = CallFigures(), EndedCalls(lambda: None, most_ordinary=2)
    figures.collect(collector)
    figures.begin(shown := unchecked(figures))
    id = call_id(shown)
    for _ in range(5):
        figures.begin(each := unchecked(figures))
        each.end("result", OK)
    figures.begin(failed := unchecked(figures))
    failed.end("error", b'{"code":1,"message":"no"}')
    shown.end("result", OK)
    assert [each[2] for each in collector.take()] == ["ok", "ok", "error", "ok"] and shown.id == id
    assert collector.take_missed() == {shown.origin.principal: 3} and ends_of(figures) == {"ok": 6, "error": 1}
    figures.begin(last := unchecked(figures))
    last.end("result", OK)
    assert len(collector.take()) == 1 and not collector.take_missed()


def test_a_listener_that_fails_harms_neither_the_call_nor_other_listeners(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Listener):
        def begun(self, call: CallRecord) -> None:
            raise RuntimeError("no room")

    figures, listener = CallFigures(), Listener()
    figures.subscribe(Failing())
    figures.subscribe(listener)
    figures.begin(unchecked(figures))
    assert listener.told == [("begun", "sent")]
    assert "a listener to calls failed" in caplog.text


# ── in a workbench ──


def answer(name: str, arguments: Json) -> Json:
    if name == "refuse":
        return {"code": -32050, "message": "not today"}
    return {"content": [], "isError": name == "fail"}


SERVERS = ("work", "fail", "refuse")


@pytest.mark.parametrize("audited", [False, True])
async def test_a_workbench_counts_only_while_somebody_wants_figures(tmp_path: Path, audited: bool) -> None:
    servers = {"box": {"s": Server(*map(tool, SERVERS), answer=answer)}}
    settings: dict[str, Any] = {"audit": {"file": str(tmp_path / "audit.jsonl")}} if audited else {}
    async with workbench_with(tmp_path, servers, **settings) as seen:
        runtime = seen.gateway.runtime
        assert not runtime.figures
        assert (seen.gateway.router.steps is not None) is audited
        await seen.use("box/s/work")
        figures = runtime.count_calls()
        assert runtime.count_calls() is figures
        for name in (*SERVERS, "work"):
            await seen.use(f"box/s/{name}")
        assert ends_of(figures) == {"ok": 2, "tool_error": 1, "error": 1}
        assert figures.running() == []
        runtime.stop_counting()
        await seen.use("box/s/work")
        assert ends_of(figures)["ok"] == 3, "somebody else still wants them"
        runtime.stop_counting()
        assert not runtime.figures
        assert (seen.gateway.router.steps is not None) is audited
        await seen.use("box/s/work")
        assert ends_of(figures)["ok"] == 3
    assert runtime.counting.on_change == []


async def test_refusals_by_policy_or_face_are_counted_as_refused(tmp_path: Path) -> None:
    server = Server(tool("work"), tool("drop"))
    policy = [{"tools": ["box/s/drop"], "then": "deny"}, {"then": "allow"}]
    async with workbench_with(tmp_path, {"box": {"s": server}}, policy=policy) as seen:
        figures, listener = seen.gateway.runtime.count_calls(), Listener()
        figures.subscribe(listener)
        await seen.use("box/s/work")
        await seen.use("box/s/drop")
        await seen.use("box/s/missing")
        assert ends_of(figures) == {"ok": 1, "refused": 2}
        assert [(call.item, call.end, call.rule, call.sent is None) for call in listener.calls] == [
            ("work", "ok", "policy[1]", False), ("drop", "refused", "policy[0]", True),
            ("missing", "refused", "face", True),
        ]  # fmt: skip
    assert [name for name, _ in server.calls] == ["work"]


async def test_the_longest_call_is_known_of_calls_that_are_only_counted(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}) as seen:
        figures = seen.gateway.runtime.count_calls()
        await seen.use("box/s/work")
        (row,) = (each for each in figures.totals().rows if each.item == "work")
        row.ends["ok"].at_once.longest = 0.0
        await seen.use("box/s/work")
        assert row.ends["ok"].at_once.longest > 0.0


@given(lists(floats(0, 400) | sampled_from(BUCKET_BOUNDS)))
def test_durations_that_come_together_are_counted_as_one_by_one(durations: list[float]) -> None:
    one_by_one, together = Histogram(), Histogram()
    for each in durations:
        one_by_one.observe(each)
    together.observe_all(sorted(durations))
    assert together.counts == one_by_one.counts and together.longest == one_by_one.longest
    assert together.seconds == pytest.approx(one_by_one.seconds)


def test_calls_that_are_added_are_counted_when_somebody_looks_or_they_are_many() -> None:
    figures = CallFigures()
    for _ in range(MAX_FRESH):
        unchecked(figures).end("result", OK)
        (row,) = figures._rows.values()
        assert len(row.fresh) < MAX_FRESH
    unchecked(figures).end("result", OK)
    (row,) = figures.totals().rows
    assert row.fresh and row.calls == MAX_FRESH + 1 and not row.fresh
    assert (row.bytes_in, row.bytes_out) == (2 * (MAX_FRESH + 1), len(OK) * (MAX_FRESH + 1))


async def test_a_call_to_be_approved_elsewhere_has_not_failed(tmp_path: Path) -> None:
    policy = [{"tools": ["box/s/drop"], "then": "ask"}, {"then": "allow"}]
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("drop"))}}, policy=policy) as seen:
        figures, listener = seen.gateway.runtime.count_calls(), Listener()
        figures.subscribe(listener)
        assert "needs the user's approval" in text_of(await seen.use("box/s/drop"))
        (waiting,) = seen.gateway.waiting_approvals()
        assert [(call.item, call.end, call.rule) for call in listener.calls] == [
            ("drop", "needs_approval", "policy[0]")
        ]
        (totals,) = figures.totals().by_server().values()
        assert (totals.calls, totals.errors, totals.refused, totals.durations.total) == (1, 0, 0, 0)
        assert [(each.calls, each.errors, sum(each.counts)) for each in figures.day("box", "s")] == [(1, 0, 0)]
        assert figures.denied == {}
        seen.gateway.decide(ApprovalRequest(str(waiting["id"])), "ada")
        await seen.use("box/s/drop")
        (totals,) = figures.totals().by_server().values()
        assert (totals.calls, totals.errors) == (2, 0)
        assert ends_of(figures) == {"ok": 1, "needs_approval": 1}


async def test_a_call_waits_for_its_server_then_runs_then_ends(tmp_path: Path) -> None:
    server = Server(tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        figures, listener = seen.gateway.runtime.count_calls(), Listener()
        # Now its tools are known, and it is not running.
        await seen.use("box/s/work")
        (connection,) = seen.gateway.runtime.pool.connections()
        connection.request_stop()
        await connection.wait_stopped()
        server.gate, server.held = asyncio.Event(), []
        figures.subscribe(listener)
        call = asyncio.create_task(seen.use("box/s/work"))
        await eventually(lambda: ("changed", "waiting") in listener.told)
        assert [each.state for each in figures.running()] == ["waiting"]
        server.gate.set()
        await eventually(lambda: bool(server.held))
        assert [each.state for each in figures.running()] == ["sent"]
        server.held[0]()
        await call
        assert listener.told[-1] == ("ended", "ok") and figures.running() == []
        (record,) = listener.calls
        assert record.sent is not None and record.ended is not None
        assert record.arrived < record.sent < record.ended


async def test_a_call_that_a_rule_lets_pass_at_once_is_not_held(tmp_path: Path) -> None:
    server = Server(tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}, policy=[{"then": "allow"}]) as seen:
        figures, listener = seen.gateway.runtime.count_calls(), Listener()
        await seen.use("box/s/work")
        figures.subscribe(listener)
        server.held = []
        call = asyncio.create_task(seen.use("box/s/work"))
        await eventually(lambda: bool(server.held))
        assert listener.told == [("begun", "sent")]
        (record,) = figures.running()
        assert (record.state, record.sent is None) == ("sent", False)
        server.held[0]()
        await call


async def test_calls_that_are_only_counted_are_collected_with_one_id_while_they_run_and_when_they_end(
    tmp_path: Path,
) -> None:
    server = Server(tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        figures, collector = seen.gateway.runtime.count_calls(), EndedCalls(lambda: None)
        figures.collect(collector)
        # The second has a row already, and is counted the short way.
        for _ in range(2):
            await seen.use("box/s/work")
        ended = collector.take()
        assert [(each[0].origin.item, each[2]) for each in ended] == [("work", "ok")] * 2
        assert not figures._running and len({call_id(each[0]) for each in ended}) == 2
        server.held = []
        call = asyncio.create_task(seen.use("box/s/work"))
        await eventually(lambda: bool(server.held))
        (running,) = figures.running_passages()
        id = call_id(running)
        server.held[0]()
        await call
        assert [call_id(each[0]) for each in collector.take()] == [id]
        assert figures.totals().by_server()["box", "s"].calls == 3 and not figures._running
        server.held = None
        few = EndedCalls(lambda: None, most_ordinary=1)
        figures.collect(few)
        for _ in range(3):
            await seen.use("box/s/work")
        assert len(few.take()) == 1 and len(collector.take()) == 3
        assert few.take_missed() == {"": 2} and figures.totals().by_server()["box", "s"].calls == 6


async def test_calls_that_are_only_counted_are_found_while_they_run_and_counted_once(tmp_path: Path) -> None:
    server = Server(tool("other"), tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        figures = seen.gateway.runtime.count_calls()
        # The second has a row already, and is counted the short way.
        for _ in range(2):
            await seen.use("box/s/work")
        server.held = []
        calls = [asyncio.create_task(seen.use(f"box/s/{name}")) for name in ("other", "work")]
        await eventually(lambda: len(server.held or ()) == 2)
        assert not figures._running, "nobody has looked"
        assert [(each.item, each.state) for each in figures.running()] == [("other", "sent"), ("work", "sent")]
        assert figures.totals().by_server()["box", "s"].running == 2
        for each in server.held:
            each()
        await asyncio.gather(*calls)
        assert figures.running() == [] and ends_of(figures) == {"ok": 4}
        assert {row.item: row.calls for row in figures.totals().rows if row.item} == {"work": 3, "other": 1}


async def test_a_listener_that_comes_later_learns_how_running_calls_end(tmp_path: Path) -> None:
    server = Server(tool("other"), tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        figures, listener = seen.gateway.runtime.count_calls(), Listener()
        await seen.use("box/s/work")
        server.held = []
        call = asyncio.create_task(seen.use("box/s/work"))
        await eventually(lambda: bool(server.held))
        figures.subscribe(listener)
        server.held[0]()
        await call
        assert listener.told == [("ended", "ok")] and ends_of(figures) == {"ok": 2}
        assert (listener.calls[0].item, listener.calls[0].bytes_in > 2) == ("work", True)


async def test_a_server_that_does_not_answer_in_time_is_a_timeout(tmp_path: Path) -> None:
    server = Server(tool("work"), timeout=0.01)
    server.held = []
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        figures = seen.gateway.runtime.count_calls()
        assert "did not answer within" in text_of(await seen.use("box/s/work"))
        assert ends_of(figures) == {"timeout": 1}


# ── the day ──


def test_day_has_the_counts_of_each_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    figures = CallFigures()
    start = figures._turn_at - 10
    for _ in range(3):
        figures.on_unchecked_end(unchecked(figures, origin(), b"{"), "result", (OK,), 2, 1.0015)
    monkeypatch.setattr(time, "time", lambda: 1020.0)
    # The first call of a later bucket.
    figures.on_unchecked_end(unchecked(figures), "tool_error", (FAILED,), 2, start + 20)
    assert [(each.at, each.calls, each.errors) for each in figures.day("box", "s")] == [(1000.0, 3, 0), (1020.0, 1, 1)]
    first, second = figures.day("box", "s")
    assert first.counts[1] == 3 and sum(first.counts) == 3
    assert sum(second.counts) == 1 and first.memory is None
    assert figures.day("box", "other") == []


def test_durations_of_the_day_exclude_older_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    figures = CallFigures()
    start = figures._turn_at - 10
    assert figures.day_durations("box", "s").quantile(0.5) is None
    for seconds in (40.0, 50.0):
        figures.on_unchecked_end(unchecked(figures, origin(), b"{"), "result", (OK,), 2, seconds)
    assert 30 < (figures.day_durations("box", "s").quantile(0.5) or 0) <= 50
    monkeypatch.setattr(time, "time", lambda: 1000.0 + 26 * 3600)
    for _ in range(20):
        figures.on_unchecked_end(unchecked(figures, origin(), b"{"), "result", (OK,), 2, start + 20)
    day, ever = figures.day_durations("box", "s"), figures.totals().by_server()["box", "s"].durations
    assert (day.total, ever.total) == (20, 22)
    assert (day.quantile(0.95) or 0) <= (ever.quantile(0.99) or 0)


def test_reading_in_the_middle_of_a_bucket_counts_no_call_twice() -> None:
    figures = CallFigures()
    for _ in range(2):
        unchecked(figures).end("result", OK)
        unchecked(figures).end("error", b'{"code":1,"message":"x"}')
        figures.day("box", "s")
    assert sum(each.calls for each in figures.day("box", "s")) == 4
    assert sum(each.errors for each in figures.day("box", "s")) == 2


def test_memory_and_saved_tokens_are_in_the_day() -> None:
    figures = CallFigures()
    figures.note_memory("box", "s", 5 * 1024)
    figures.note_saved("box", 100)
    figures.note_saved("box", 11)
    assert [each.memory for each in figures.day("box", "s")] == [5 * 1024]
    assert sum(each.saved for each in figures.day("box")) == 111 and figures.saved == {"box": 111}
    assert all(each.calls == 0 for each in figures.day("box"))


def test_buckets_without_calls_cost_nothing() -> None:
    figures = CallFigures()
    assert figures._day.size == 0
    figures._turn(figures._turn_at + 100_000)
    assert figures._day.size == 0 and figures.outlines() == {}
