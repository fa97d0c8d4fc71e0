"""The life of a connection is a table: nothing that happens leads out of it."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.downstream.lifecycle import (
    CRASH_WINDOW,
    FIRST_DELAY,
    MAX_CRASHES,
    MAX_RESTART_DELAY,
    TRANSITIONS,
    Event,
    ImpossibleTransition,
    RestartPolicy,
    State,
    next_state,
    quiet_future,
    unexpected,
)
from mcp_workbench.errors import NO_MEMORY, SHORTAGE_HINTS, DownstreamError

BEGINNINGS = (State.CONFIGURED, State.KNOWN)
RUNNING = (State.STARTING, State.READY, State.STOPPING)


@given(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(Event), max_size=50))
def test_no_sequence_of_events_leaves_the_table(state: State, events: list[Event]) -> None:
    for event in events:
        if (state, event) in TRANSITIONS:
            state = next_state(state, event)
            assert state in State
        else:
            with pytest.raises(ImpossibleTransition, match=f"{event.value} while {state.value}"):
                next_state(state, event)


def test_every_state_can_be_reached_and_every_event_happens() -> None:
    reached = set(BEGINNINGS)
    while True:
        further = reached | {after for (before, _), after in TRANSITIONS.items() if before in reached}
        if further == reached:
            break
        reached = further
    assert reached == set(State)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_from_every_state_a_server_can_be_had_again() -> None:
    hopeful = {State.READY}
    while True:
        further = hopeful | {before for (before, _), after in TRANSITIONS.items() if after in hopeful}
        if further == hopeful:
            break
        hopeful = further
    assert hopeful == set(State)


@pytest.mark.parametrize("state", [state for state in State if state not in RUNNING])
def test_a_server_that_is_not_running_can_be_started(state: State) -> None:
    assert next_state(state, Event.START) is State.STARTING


@pytest.mark.parametrize("state", RUNNING)
def test_a_running_server_is_never_started_twice(state: State) -> None:
    with pytest.raises(ImpossibleTransition):
        next_state(state, Event.START)


@pytest.mark.parametrize("state", [State.STARTING, State.READY])
def test_running_states_can_crash_and_be_stopped(state: State) -> None:
    assert next_state(state, Event.CRASH) is State.BACKOFF
    assert next_state(state, Event.STOP) is State.STOPPING


# Starting again


def crashed(*moments: float) -> RestartPolicy:
    policy = RestartPolicy(random.Random(1))
    for moment in moments:
        policy.crashed(moment)
    return policy


def test_one_crash_costs_no_delay() -> None:
    assert crashed().delay(0.0) == 0.0
    assert crashed(10.0).delay(10.0) == 0.0


@pytest.mark.requirement("servers.restart")
def test_from_the_second_crash_on_the_delay_doubles_with_jitter() -> None:
    for count in range(2, MAX_CRASHES + 1):
        nominal = min(FIRST_DELAY * 2 ** (count - 2), MAX_RESTART_DELAY)
        delays = {crashed_with(seed, count).delay(1.0) for seed in range(20)}
        assert len(delays) > 1
        assert all(0.8 * nominal <= delay <= 1.2 * nominal for delay in delays)


def crashed_with(seed: int, count: int) -> RestartPolicy:
    policy = RestartPolicy(random.Random(seed))
    for _ in range(count):
        policy.crashed(1.0)
    return policy


def test_time_that_has_passed_counts_towards_the_delay() -> None:
    assert crashed(0.0, 0.0).delay(30.0) == 0.0


@pytest.mark.requirement("servers.given-up")
def test_it_fails_for_good_after_five_crashes_within_a_minute_and_not_before() -> None:
    assert (MAX_CRASHES, CRASH_WINDOW) == (5, 60.0)
    assert not crashed(0, 1, 2, 3).is_exhausted(4)
    assert crashed(0, 1, 2, 3, 4).is_exhausted(5)
    assert crashed(0, 1, 2, 3, 4).is_exhausted(59.9)
    assert not crashed(0, 1, 2, 3, 4).is_exhausted(60.0), "the first one is a minute ago"
    assert not crashed(0, 20, 40, 60, 80).is_exhausted(80)


def test_explicit_request_resets_the_count() -> None:
    policy = crashed(0, 1, 2, 3, 4)
    policy.forgive()
    assert (policy.is_exhausted(5), policy.delay(5), policy.recent(5)) == (False, 0.0, 0)
    assert policy.total == 5


@given(st.lists(st.floats(0, 300), max_size=30), st.floats(0, 400))
def test_policy_counts_crashes_within_the_window(moments: list[float], later: float) -> None:
    moments = sorted(moments)
    now = (moments[-1] if moments else 0.0) + later
    policy = crashed(*moments)
    recent = sum(1 for moment in moments[-MAX_CRASHES:] if now - moment < CRASH_WINDOW)
    assert policy.recent(now) == recent
    assert policy.is_exhausted(now) == (recent >= MAX_CRASHES)
    assert 0.0 <= policy.delay(now) <= 1.2 * MAX_RESTART_DELAY
    assert policy.total == len(moments)


def test_refusal_says_that_the_last_failure_was_of_another_request() -> None:
    refused = crashed(0, 1, 2, 3, 4).refusal(
        DownstreamError("the server exited; it may have acted on the request"), "box", 5
    )
    assert refused.message.endswith("\n(not restarted after 5 failures within 60 s; nothing was sent)")


def test_the_delay_counts_from_the_last_crash() -> None:
    policy = crashed(0.0, 5.0)
    assert 0.8 * FIRST_DELAY <= policy.delay(5.0) <= 1.2 * FIRST_DELAY
    assert policy.delay(5.0 + 1.2 * FIRST_DELAY) == 0.0
    third = crashed(0.0, 1.0, 5.0)
    assert 1.6 * FIRST_DELAY <= third.delay(5.0) <= 2.4 * FIRST_DELAY


def test_servers_that_crashed_together_do_not_start_together() -> None:
    policies = [RestartPolicy() for _ in range(20)]
    for policy in policies:
        policy.crashed(1.0)
        policy.crashed(1.0)
    delays = {policy.delay(1.0) for policy in policies}
    assert len(delays) > 10 and all(0.8 * FIRST_DELAY <= delay <= 1.2 * FIRST_DELAY for delay in delays)


def test_a_server_that_failed_too_often_rests_until_its_first_failure_is_a_minute_ago() -> None:
    assert RestartPolicy().rest(5.0) == 0.0
    policy = crashed(0, 10, 20, 30, 40)
    assert policy.rest(45.0) == 15.0 and "in 15 s" in (policy.refusal(DownstreamError("x"), "box", 45.0).hint or "")
    assert policy.rest(59.9) == policy.rest(70.0) == 1.0, "at least a second, and never less than none"


def test_a_shortage_is_distinguished_from_a_bug_of_ours() -> None:
    shortage, bug = unexpected(MemoryError()), unexpected(KeyError("a"))
    assert (shortage.message, shortage.hint) == (
        f"the server cannot be used: {NO_MEMORY}",
        SHORTAGE_HINTS[NO_MEMORY],
    )
    assert (bug.message, bug.hint) == (
        "the workbench failed to use this server (KeyError)",
        "the log of the workbench says why",
    )


async def test_a_start_that_nobody_waits_for_may_fail_or_be_cancelled_quietly() -> None:
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    failed, cancelled, done = quiet_future(loop), quiet_future(loop), quiet_future(loop)
    failed.set_exception(DownstreamError("gone"))
    cancelled.cancel()
    done.set_result(None)
    await asyncio.sleep(0)
    del failed, cancelled, done
    gc.collect()
    assert complaints == []
