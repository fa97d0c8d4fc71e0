"""Fair requests against a naive account of the same events, in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mcp_workbench.engine.downstream import fair_requests
from mcp_workbench.engine.downstream.clients import ForwardedExchange
from mcp_workbench.engine.downstream.fair_requests import FairRequests, WaitingRequest
from mcp_workbench.engine.transport import backlog
from mcp_workbench.errors import WorkbenchError

IN_PROGRESS, AT_LEAST, ROOM = 6, 2, 10
LIVES, EVENTS = 20, 400


class _Caller:
    def __init__(self, client: int) -> None:
        self.client = client


class _Call:
    """What a table needs to know of a client's call."""

    def __init__(self, client: int) -> None:
        self.caller = _Caller(client)
        self.failures: list[str] = []

    def on_failure(self, error: WorkbenchError) -> None:
        self.failures.append(error.message)


class _Known:
    """A request as the account has it."""

    def __init__(self, id: int, client: int, size: int, now: float, timeout: float, fails: bool) -> None:
        self.client, self.size, self.timeout, self.fails = client, size, timeout, fails
        self.deadline, self.latest = now + timeout, now + 2 * timeout
        self.call = _Call(client)
        call: Any = self.call
        self.exchange = ForwardedExchange(
            wire_id=id, timeout=timeout, deadline=self.deadline, latest=self.latest, call=call
        )


class _Life:
    """Who is sent when, what is refused, and when each ends. Some requests fail as soon as they are sent."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.table = FairRequests(self.on_sent)
        self.now = 0.0
        self.count = 0
        self.in_progress: list[_Known] = []
        self.waiting: list[_Known] = []

    def of(self, known: list[_Known], client: int) -> list[_Known]:
        return [each for each in known if each.client == client]

    def share(self) -> int:
        clients = {each.client for each in self.in_progress}
        return max(AT_LEAST, IN_PROGRESS // max(1, len(clients)))

    def on_sent(self, request: WaitingRequest) -> None:
        first = next(each for each in self.waiting if each.exchange is request.exchange)
        assert first is self.of(self.waiting, first.client)[0], "in the order of arrival"
        assert len(self.of(self.in_progress, first.client)) < self.share()
        assert request.parts == (b"x" * first.size,) and request.size == first.size
        self.waiting.remove(first)
        self.in_progress.append(first)
        self.table.by_id[first.exchange.wire_id] = first.exchange
        if first.fails:
            self.in_progress.remove(first)
            assert self.table.remove(first.exchange)

    def request(self) -> None:
        self.count += 1
        client, size, timeout = self.chosen.randint(1, 4), self.chosen.randint(1, 3), float(self.chosen.randint(2, 30))
        known = _Known(self.count, client, size, self.now, timeout, fails=self.chosen.random() < 0.1)
        own = len(self.of(self.in_progress, client))
        if self.table.admits(known.exchange):
            assert own < self.share()
            self.table.by_id[known.exchange.wire_id] = known.exchange
            self.in_progress.append(known)
            return
        assert own >= self.share(), "others do not use it"
        self.table.hold_back(known.exchange, (b"x" * size,), b"tools/call", "box/server/tool")
        if sum(each.size for each in self.waiting) + size <= ROOM:
            self.waiting.append(known)
        else:
            assert "does not fit" in known.call.failures[0]

    def end(self) -> None:
        if not self.in_progress:
            return
        known = self.in_progress.pop(self.chosen.randrange(len(self.in_progress)))
        if self.chosen.random() < 0.5:
            assert self.table.take(b"%d" % known.exchange.wire_id) is known.exchange
        else:
            assert self.table.remove(known.exchange) is True
        assert self.table.remove(known.exchange) is False, "once"

    def report_progress(self) -> None:
        if not self.in_progress:
            return
        known = self.chosen.choice(self.in_progress)
        self.table.extend(known.exchange, self.now)
        known.deadline = min(self.now + known.timeout, known.latest)

    def cancel(self) -> None:
        assert all(self.table.withdraw(each.exchange.wire_id) is False for each in self.in_progress)
        if self.waiting:
            known = self.waiting.pop(self.chosen.randrange(len(self.waiting)))
            assert self.table.withdraw(known.exchange.wire_id) is True
            assert self.table.withdraw(known.exchange.wire_id) is False, "once"
            assert known.call.failures == []

    def stop(self) -> None:
        seconds = self.chosen.randint(1, 20)
        self.now += seconds
        self.table.postpone(float(seconds))
        for known in self.in_progress + self.waiting:
            known.deadline += seconds
            known.latest += seconds

    def wait(self) -> None:
        self.now += self.chosen.randint(1, 3)
        late = [each for each in self.waiting if each.deadline <= self.now]
        self.waiting = [each for each in self.waiting if each.deadline > self.now]
        self.table.fail_late(self.now)
        assert all("was not sent" in each.call.failures[0] for each in late)
        expected = [each for each in self.in_progress if each.deadline <= self.now]
        self.in_progress = [each for each in self.in_progress if each.deadline > self.now]
        assert self.table.expired(self.now) == [each.exchange for each in expected]

    def lose_the_server(self) -> None:
        waiting = sorted(each.exchange.wire_id for each in self.waiting)
        if self.chosen.random() < 0.5:
            assert sorted(each.wire_id for each in self.table.take_waiting()) == waiting
        else:
            found = [each.wire_id for each in self.table.drain()]
            assert found[: len(self.in_progress)] == [each.exchange.wire_id for each in self.in_progress]
            assert sorted(found[len(self.in_progress) :]) == waiting
            self.in_progress = []
        self.waiting = []

    def everybody_has_their_share(self) -> None:
        assert [each.wire_id for each in self.table.values()] == [each.exchange.wire_id for each in self.in_progress]
        assert self.table.waiting_count == len(self.waiting)
        assert {each.wire_id for each in self.table.waiting()} == {each.exchange.wire_id for each in self.waiting}
        for client in {each.client for each in self.waiting}:
            assert len(self.of(self.in_progress, client)) >= self.share(), "somebody waits without a reason"


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_requests, "MAX_REQUESTS_IN_PROGRESS", IN_PROGRESS)
    monkeypatch.setattr(fair_requests, "MIN_CLIENT_REQUESTS", AT_LEAST)
    monkeypatch.setattr(backlog, "MAX_UNSENT_BYTES", ROOM)
    monkeypatch.setattr(backlog, "RESERVED_BYTES", 0)


@pytest.mark.parametrize("seed", range(LIVES))
def test_every_client_has_its_share_and_every_request_ends(seed: int) -> None:
    life = _Life(random.Random(seed))
    events = [life.request] * 12 + [life.end] * 6 + [life.cancel, life.report_progress] * 2 + [life.stop, life.wait] * 2
    for _ in range(EVENTS):
        # Rarely, so that there is something to lose.
        life.chosen.choice([life.lose_the_server] if life.chosen.random() < 0.01 else events)()
        life.everybody_has_their_share()


@pytest.mark.parametrize("id", [b'"1"', b"null", b"7"])
def test_an_answer_to_nothing_is_counted(id: bytes) -> None:
    table = FairRequests(lambda request: None)
    assert table.take(id) is None and table.unmatched == 1
