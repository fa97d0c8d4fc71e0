"""Requests under way: each ends once, with its own answer, and never waits beyond its deadline."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Raw, field

from mcp_workbench.engine.jsonrpc import pending
from mcp_workbench.engine.jsonrpc.pending import (
    DEADLINE_CHECK_INTERVAL,
    REMIND_INTERVAL,
    AwaitedExchange,
    Exchange,
    PendingRequests,
    RemoteError,
    within,
)
from mcp_workbench.errors import DownstreamError


def add(pending: PendingRequests, now: float = 0.0, timeout: float = 10.0, latest: float = 100.0) -> Exchange:
    exchange = Exchange()
    assert pending.add(exchange, now, timeout, latest) == exchange.wire_id
    return exchange


def test_the_first_answer_wins_and_later_ones_are_counted() -> None:
    pending = PendingRequests()
    exchange = add(pending)
    assert pending.take(b"%d" % exchange.wire_id) is exchange
    assert pending.take(b"%d" % exchange.wire_id) is None
    assert (len(pending), pending.unmatched) == (0, 1)


@pytest.mark.parametrize(
    "form", [b'"N"', b"N0", b"-N", b"N.0", b"Ne0", b"null", b"true", b"{}", b"[N]", b"9" * 5000, b'"\\u0031"', b""]
)
def test_an_id_that_is_not_exactly_ours_matches_nothing(form: bytes) -> None:
    pending = PendingRequests()
    exchange = add(pending)
    assert pending.take(Raw(form.replace(b"N", b"%d" % exchange.wire_id))) is None
    assert (len(pending), pending.unmatched) == (1, 1)


def test_only_requests_of_clients_ever_wait_to_be_sent() -> None:
    pending = PendingRequests()
    assert pending.waiting_count == 0
    add(pending)
    assert pending.waiting_count == 0 and len(pending) == 1


def test_ids_are_never_used_twice() -> None:
    pending = PendingRequests()
    seen = set()
    for _ in range(50):
        exchange = add(pending)
        assert exchange.wire_id not in seen
        seen.add(exchange.wire_id)
        pending.remove(exchange)
    assert len(pending) == 0


def test_no_two_tables_use_the_same_id() -> None:
    """Connections over HTTP are shared: what belongs to one table must not pass for what another waits for."""
    one, other = PendingRequests(), PendingRequests()
    ids = [table.add(Exchange(), 0.0, 1.0, 1.0) for table in (one, other, one, other)]
    assert len(set(ids)) == 4
    assert other.take(b"%d" % ids[0]) is None and one.take(b"%d" % ids[0]) is not None


def test_the_answer_to_a_removed_request_is_dropped() -> None:
    pending = PendingRequests()
    exchange = add(pending)
    assert pending.remove(exchange)
    assert not pending.remove(exchange)
    assert pending.take(b"1") is None


def test_a_request_expires_at_its_deadline_and_not_before() -> None:
    pending = PendingRequests()
    early, late = add(pending, timeout=1.0), add(pending, timeout=2.0)
    assert pending.expired(0.99) == []
    assert pending.expired(1.0) == [early]
    assert pending.expired(5.0) == [late]
    assert len(pending) == 0


def test_progress_restarts_the_clock_but_never_beyond_the_latest_moment() -> None:
    pending = PendingRequests()
    exchange = add(pending, now=0.0, timeout=10.0, latest=25.0)
    pending.extend(exchange, 9.0)
    assert exchange.deadline == 19.0
    pending.extend(exchange, 18.0)
    assert exchange.deadline == 25.0
    assert pending.expired(24.9) == []
    assert pending.expired(25.0) == [exchange]


def test_draining_takes_everything_oldest_first() -> None:
    pending = PendingRequests()
    exchanges = [add(pending) for _ in range(3)]
    second = exchanges[1].wire_id
    assert pending.find(second) is exchanges[1]
    assert pending.drain() == exchanges
    assert (len(pending), pending.drain(), pending.find(second)) == (0, [], None)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50)), max_size=20), st.floats(0, 120))
def test_exactly_the_due_requests_expire(requests: list[tuple[float, float]], now: float) -> None:
    pending = PendingRequests()
    exchanges = [add(pending, begun, timeout) for begun, timeout in requests]
    due = [exchange for exchange in exchanges if exchange.deadline <= now]
    assert pending.expired(now) == due
    assert len(pending) == len(exchanges) - len(due)


def test_time_that_passed_without_us_counts_for_no_deadline() -> None:
    pending = PendingRequests()
    exchange = add(pending, now=0.0, timeout=10.0, latest=20.0)
    pending.postpone(30.0)
    assert pending.expired(39.0) == []
    pending.extend(exchange, 45.0)
    assert exchange.deadline == 50.0
    assert pending.expired(50.0) == [exchange]


def test_every_request_is_reminded_of_once_in_an_interval() -> None:
    class Reminded(Exchange):
        at: list[float] = field(default_factory=list)

        def on_waiting(self, now: float) -> None:
            self.at.append(now)

    pending = PendingRequests()
    exchanges = [Reminded(), Reminded()]
    for exchange in exchanges:
        pending.add(exchange, 100.0, 1000.0, 1000.0)
    looks = [100.0 + DEADLINE_CHECK_INTERVAL * look for look in range(200)]
    for now in looks:
        pending.remind(now)
    expected = [now for now in looks if (now - looks[0]) % REMIND_INTERVAL == 0]
    assert [exchange.at for exchange in exchanges] == [expected, expected]


async def test_answer_just_after_an_unobserved_deadline_counts() -> None:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[str] = loop.create_future()

    def stop_the_loop() -> None:
        time.sleep(0.05)
        # Behind the timer of the deadline, which is due.
        loop.call_later(0.001, arrived.set_result, "in time")

    async with within(0.01):
        loop.call_soon(stop_the_loop)
        assert await arrived == "in time"


async def test_time_in_which_we_were_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes while we are stopped, a moment before we go on: as much time is left as was before."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[str] = loop.create_future()
    looks = count(1)
    real_time, stopped = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real_time() + stopped[0])

    def answer_at_the_third_look() -> None:
        if next(looks) < 3:
            loop.call_later(DEADLINE_CHECK_INTERVAL, answer_at_the_third_look)
        else:
            arrived.set_result("in time")

    async with within(60):
        stopped[0] += 60.5
        loop.call_later(DEADLINE_CHECK_INTERVAL, answer_at_the_third_look)
        assert await arrived == "in time"


async def test_missing_answer_times_out() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.01):
            await asyncio.Event().wait()


class Table(RuleBasedStateMachine):
    """Whatever order things happen in, every exchange leaves the table exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingRequests()
        self.inside: dict[int, Exchange] = {}
        self.now = 0.0

    @rule(timeout=st.floats(0.5, 5))
    def begin(self, timeout: float) -> None:
        exchange = add(self.pending, self.now, timeout)
        assert exchange.wire_id not in self.inside
        self.inside[exchange.wire_id] = exchange

    @rule(id=st.integers(0, 12))
    def answer(self, id: int) -> None:
        assert self.pending.take(b"%d" % id) is self.inside.pop(id, None)

    @rule(id=st.integers(0, 12))
    def progress(self, id: int) -> None:
        exchange = self.pending.find(id)
        assert exchange is self.inside.get(id)
        if exchange is not None:
            self.pending.extend(exchange, self.now)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for exchange in self.pending.expired(self.now):
            assert exchange.deadline <= self.now
            assert self.inside.pop(exchange.wire_id) is exchange

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.pending.values() == list(self.inside.values())


TestTable = Table.TestCase


async def test_an_awaited_exchange_returns_its_result() -> None:
    exchange = AwaitedExchange()
    exchange.on_result(Raw(b"{}"))
    exchange.on_failure(DownstreamError("too late"))
    assert bytes(await exchange.future) == b"{}"


async def test_an_awaited_exchange_raises_the_peers_error_with_its_code() -> None:
    exchange = AwaitedExchange()
    exchange.on_error(Raw(b'{"code":-32601,"message":"no such method"}'))
    exchange.on_result(Raw(b"{}"))
    with pytest.raises(RemoteError, match="no such method") as caught:
        await exchange.future
    assert caught.value.code == caught.value.error.code == -32601


async def test_an_unawaited_failure_is_not_logged_as_never_retrieved() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    exchange = AwaitedExchange()
    exchange.on_failure(DownstreamError("gone"))
    del exchange
    await asyncio.sleep(0)
    assert complaints == []


@pytest.mark.parametrize("looks", [0, 2])
async def test_a_deadline_that_was_met_leaves_no_timer(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "DEADLINE_CHECK_INTERVAL", 0.001)
    loop = asyncio.get_running_loop()
    made: list[asyncio.TimerHandle] = []
    real = loop.call_later

    def call_later(*arguments: Any) -> asyncio.TimerHandle:
        made.append(real(*arguments))
        return made[-1]

    monkeypatch.setattr(loop, "call_later", call_later)
    async with within(60):
        while len(made) <= looks:
            await asyncio.sleep(0)
    assert made[-1].cancelled()
