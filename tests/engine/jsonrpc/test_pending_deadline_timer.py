"""Deadlines are checked while requests are in progress, and time in which the process was stopped is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp_workbench.engine.jsonrpc.pending import DEADLINE_CHECK_INTERVAL, STOPPED_PROCESS_THRESHOLD, DeadlineTimer


class Loop:
    """A clock that is moved by hand, and what was scheduled on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.scheduled: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.scheduled.append((delay, callback))

    def run(self, seconds: float) -> None:
        self.now += seconds
        ((_, callback),) = self.scheduled
        self.scheduled.clear()
        callback()


def timer(loop: Loop, checks: list[tuple[float, float]], *, more: bool) -> DeadlineTimer:
    def check(looked_at: float, stopped: float) -> bool:
        checks.append((looked_at, stopped))
        return more

    return DeadlineTimer(loop, check)  # type: ignore[arg-type]


def test_it_runs_once_however_often_it_is_started_and_ends_with_the_last_request() -> None:
    loop, checks = Loop(), list[tuple[float, float]]()
    deadlines = timer(loop, checks, more=False)
    deadlines.start()
    deadlines.start()
    assert [delay for delay, _ in loop.scheduled] == [DEADLINE_CHECK_INTERVAL]
    loop.run(DEADLINE_CHECK_INTERVAL)
    assert checks == [(100.0, 0.0)] and not deadlines.is_running and loop.scheduled == []


def test_each_check_is_told_when_the_one_before_it_was() -> None:
    loop, checks = Loop(), list[tuple[float, float]]()
    timer(loop, checks, more=True).start()
    loop.run(DEADLINE_CHECK_INTERVAL)
    loop.run(DEADLINE_CHECK_INTERVAL + STOPPED_PROCESS_THRESHOLD / 2)
    assert checks == [(100.0, 0.0), (100.0 + DEADLINE_CHECK_INTERVAL, 0.0)]


def test_time_in_which_we_were_stopped_is_reported() -> None:
    loop, checks = Loop(), list[tuple[float, float]]()
    timer(loop, checks, more=True).start()
    loop.run(DEADLINE_CHECK_INTERVAL + 60)
    assert checks == [(100.0, 60.0)]


async def test_a_timer_that_is_stopped_checks_nothing_and_can_be_started_again() -> None:
    checked = asyncio.Event()

    def check(looked_at: float, stopped: float) -> bool:
        checked.set()
        return False

    deadlines = DeadlineTimer(asyncio.get_running_loop(), check)
    deadlines.stop()
    assert not deadlines.is_running
    deadlines.start()
    assert deadlines.is_running
    deadlines.stop()
    assert not deadlines.is_running and not checked.is_set()
    deadlines.start()
    await asyncio.wait_for(checked.wait(), 30)
    assert not deadlines.is_running


async def test_it_runs_on_the_loop() -> None:
    checked = asyncio.Event()

    def check(looked_at: float, stopped: float) -> bool:
        checked.set()
        return False

    DeadlineTimer(asyncio.get_running_loop(), check).start()
    await checked.wait()
