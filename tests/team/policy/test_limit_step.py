"""What is too much is refused: for each principal, each server, or each pair, and never for others."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.config.policy_settings import LimitRule
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Pass
from mcp_workbench.team.identity.identities import Identities
from mcp_workbench.team.policy import limit_step
from mcp_workbench.team.policy.limit_step import LIMIT_REACHED, LastMinute, LimitStep


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(principal: str = "alice", server: str = "one", body: bytes = b"{") -> GuardedRequest:
    return GuardedRequest(
        principal=principal,
        method="tools/call",
        toolbox="box",
        server=server,
        item="tool",
        client=b"{}",
        session=1,
        body=body,
    )


def ended(size: int = 0) -> Outcome:
    return Outcome(kind="result", payload=(b"x" * size,), arrived=0.0, sent=0.0, ended=0.0, size=size)


def step(clock: Clock | None = None, **limit: Any) -> LimitStep:
    return LimitStep([LimitRule(**limit)], Identities(), clock or Clock())


def passes(limits: LimitStep, about: GuardedRequest) -> bool:
    return not isinstance(limits.check(about), Denial)


@pytest.mark.requirement("team.limits")
def test_calls_in_flight_of_each_principal() -> None:
    limits = step(who=("*",), calls_in_flight=2)
    first = request()

    assert passes(limits, first) and passes(limits, request())
    refused = limits.check(request())
    assert isinstance(refused, Denial) and refused.code == LIMIT_REACHED and refused.rule == "limits[0]"
    assert passes(limits, request("bob")), "others have their own"
    limits.on_end(first, ended())
    assert passes(limits, request())


def test_a_refused_call_is_not_counted_and_its_end_changes_nothing() -> None:
    limits = step(who=("*",), calls_in_flight=1)
    first, second = request(), request()
    assert passes(limits, first) and not passes(limits, second)

    limits.on_end(second, ended())
    assert not passes(limits, request()), "the first one is still in flight"
    limits.on_end(first, ended())
    limits.on_end(first, ended())
    assert passes(limits, request()) and not passes(limits, request())


@pytest.mark.requirement("team.limits")
def test_a_server_limit_counts_the_calls_of_all_principals() -> None:
    limits = step(servers=("box/one",), calls_per_minute=2)

    assert passes(limits, request("alice")) and passes(limits, request("bob"))
    assert not passes(limits, request("carol"))
    assert passes(limits, request("carol", "two")), "another server is not limited"


@pytest.mark.requirement("team.limits")
def test_calls_of_each_pair() -> None:
    limits = step(who=("*",), servers=("*",), calls_per_minute=1)

    assert passes(limits, request("alice", "one")) and passes(limits, request("alice", "two"))
    assert passes(limits, request("bob", "one"))
    assert not passes(limits, request("alice", "one"))


def test_a_limit_behind_one_that_is_about_others_holds() -> None:
    others = (
        LimitRule(who=("bob",), calls_per_minute=100),
        LimitRule(servers=("box/two",), calls_per_minute=100),
    )
    limits = LimitStep([*others, LimitRule(who=("*",), calls_per_minute=1)], Identities(), Clock())
    assert passes(limits, request())
    refused = limits.check(request())
    assert isinstance(refused, Denial) and refused.rule == "limits[2]"
    counted = LimitStep([*others, LimitRule(who=("*",), calls_per_minute=1)], Identities(), Clock())
    assert counted.count(request(), 1) is None
    assert isinstance(counted.count(request(), 1), Denial)


@pytest.mark.requirement("team.limits")
def test_a_minute_later_there_is_room_again() -> None:
    clock = Clock()
    limits = step(clock, who=("alice",), calls_per_minute=2)
    assert passes(limits, request())
    clock.now += 30
    assert passes(limits, request())
    refused = limits.check(request())
    assert isinstance(refused, Denial) and refused.data == {"rule": "limits[0]", "retryAfterSeconds": 30}
    clock.now += 30
    assert passes(limits, request()) and not passes(limits, request())
    assert passes(limits, request("bob")), "whom the limit is not about"


@pytest.mark.requirement("team.limits")
def test_bytes_of_arguments_and_results() -> None:
    limits = step(who=("*",), bytes_per_minute=100)
    first = request(body=b"x" * 60)
    assert passes(limits, first)
    limits.on_end(first, ended(39))
    assert passes(limits, request(body=b"x"))
    assert not passes(limits, request(body=b"x"))


@pytest.mark.requirement("team.limits")
def test_the_shortest_time_of_a_call_counts() -> None:
    rules = [LimitRule(who=("*",), call_seconds=9.0), LimitRule(servers=("box",), call_seconds=2.5)]
    limits = LimitStep(rules, Identities(), Clock())
    verdict = limits.check(request())
    assert isinstance(verdict, Pass) and verdict.within == 2.5
    assert verdict.late is not None and verdict.late.code == LIMIT_REACHED


def test_setting_the_log_level_is_not_counted() -> None:
    limits = step(who=("*",), calls_per_minute=1)
    about_nobody = GuardedRequest(principal="alice", method="logging/setLevel", client=b"{}", session=1, body=b"{")
    assert all(limits.check(about_nobody) is None for _ in range(3))


def test_the_last_minute_forgets_second_by_second() -> None:
    minute = LastMinute()
    minute.advance(0.0)
    minute.add(5)
    minute.advance(59.9)
    minute.add(1)
    assert minute.total == 6
    minute.advance(60.0)
    assert minute.total == 1
    minute.advance(100_000.0)
    assert minute.total == 0


@pytest.mark.requirement("team.limits")
def test_principals_with_counts_are_not_evicted_for_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_step, "MAX_LIMIT_COUNTERS", 3)
    clock = Clock()
    limits = step(clock, who=("*",), calls_per_minute=1)
    kept = [request(name) for name in ("alice", "bob", "carol")]
    assert all(passes(limits, each) for each in kept)
    for each in kept:
        limits.on_end(each, ended())
    refused = limits.check(request("dave"))
    assert isinstance(refused, Denial) and refused.code == LIMIT_REACHED and "try again in a minute" in refused.message
    assert not any(passes(limits, each) for each in kept), "what they have used counts on"
    clock.now += 61
    held = request("alice")
    assert passes(limits, held) and passes(limits, request("dave"))
    clock.now += 61
    assert passes(limits, request("erin")), "bob and carol have used nothing since"
    assert len(limits._used) == 3 and held.principal in {key[1] for key in limits._used}, "it has a call in flight"


def test_requests_that_we_answer_ourselves_count_for_their_principal() -> None:
    limits = step(who=("*",), calls_per_minute=2, calls_in_flight=1)
    assert passes(limits, request())
    # One call is in flight, but a search is over at once.
    assert limits.count(request(server=""), 10) is None
    refused = limits.count(request(server=""), 10)
    assert isinstance(refused, Denial) and "2 calls have been made within a minute" in refused.message
    assert limits.count(request("bob", server=""), 10) is None, "others have their own"
    assert not passes(limits, request()), "calls and searches count together"


def test_bytes_of_requests_that_we_answer_ourselves_count_but_server_limits_do_not() -> None:
    limits = LimitStep(
        [LimitRule(servers=("*",), calls_per_minute=1), LimitRule(who=("*",), bytes_per_minute=100)], Identities()
    )
    assert limits.count(request(), 60) is None
    assert limits.count(request(), 60) is not None
    assert limits.count(request(), 40) is None, "what was refused was not counted"


def test_a_limit_counts_only_the_callers_it_applies_to() -> None:
    limits = LimitStep(
        [LimitRule(who=("bob",), calls_per_minute=1), LimitRule(servers=("box/two",), calls_per_minute=1)],
        Identities(),
        Clock(),
    )
    assert all(passes(limits, request("alice", "one")) for _ in range(3))
    assert all(limits.count(request("alice", "one"), 1) is None for _ in range(3))
    assert passes(limits, request("bob", "one")) and not passes(limits, request("bob", "one"))
    assert passes(limits, request("alice", "two")) and not passes(limits, request("alice", "two"))


@pytest.mark.parametrize("seconds", [(2.0, 5.0), (5.0, 2.0)])
def test_the_shortest_of_two_times_counts_wherever_it_stands(seconds: tuple[float, float]) -> None:
    limits = LimitStep([LimitRule(who=("*",), call_seconds=each) for each in seconds], Identities(), Clock())
    verdict = limits.check(request())
    assert isinstance(verdict, Pass) and verdict.within == 2.0


def test_bytes_of_an_answer_count_from_when_it_came() -> None:
    clock = Clock()
    limits = step(clock, who=("*",), bytes_per_minute=100)
    slow = request()
    assert passes(limits, slow)
    clock.now += 50
    limits.on_end(slow, ended(100))
    clock.now += 20
    refused = limits.check(request())
    assert isinstance(refused, Denial) and refused.data == {"rule": "limits[0]", "retryAfterSeconds": 40}
    clock.now += 40
    assert passes(limits, request())


def test_excess_requests_get_a_retry_time() -> None:
    limits = step(who=("*",), calls_in_flight=1)
    assert passes(limits, request())
    refused = limits.check(request())
    assert isinstance(refused, Denial) and refused.data == {"rule": "limits[0]", "retryAfterSeconds": 1}


@pytest.mark.parametrize("use", ["in flight", "calls", "bytes", "none"])
def test_only_users_idle_for_a_minute_are_evicted(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_step, "MAX_LIMIT_COUNTERS", 1)
    clock = Clock()
    limits = step(clock, who=("*",), calls_per_minute=9)
    first = request("alice")
    assert passes(limits, first)
    if use != "in flight":
        clock.now += 59
        limits.on_end(first, ended(5 if use == "bytes" else 0))
    clock.now += 0 if use == "calls" else 60 if use != "bytes" else 30
    for refused in (limits.check(request("bob")), limits.count(request("bob"), 1)):
        assert isinstance(refused, Denial) is (use != "none")
    assert passes(limits, request("alice")) is (use != "none")


def test_room_is_looked_for_further_on_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_step, "MAX_LIMIT_COUNTERS", 2)
    monkeypatch.setattr(limit_step, "_MAX_COUNTERS_EXAMINED", 1)
    clock = Clock()
    limits = step(clock, who=("*",), calls_per_minute=9)
    busy, idle = request("busy"), request("idle")
    assert passes(limits, busy) and passes(limits, idle)
    limits.on_end(idle, ended())
    clock.now += 61
    assert not passes(limits, request("new")), "the first that was looked at is busy"
    assert passes(limits, request("new"))
