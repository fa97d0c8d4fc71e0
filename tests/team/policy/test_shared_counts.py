"""One limit for several instances: what each tells the others, and what they make of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcp_workbench.engine.config.policy_settings import LimitRule
from mcp_workbench.engine.lasting_state import LastingState
from mcp_workbench.engine.steps import Denial
from mcp_workbench.team.identity.identities import Identities
from mcp_workbench.team.policy import shared_counts
from mcp_workbench.team.policy.limit_step import LimitStep
from mcp_workbench.team.policy.shared_counts import SharedCounts
from tests.team.policy.test_limit_step import request


class Bus:
    """Carries notices between states in one process, at once."""

    def __init__(self) -> None:
        self.members: list[TellingState] = []


class TellingState(LastingState):
    is_shared = True

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.heard: dict[str, Callable[[bytes], None]] = {}
        self.blind = False
        bus.members.append(self)

    @property
    def is_blind(self) -> bool:
        return self.blind

    def tell(self, subject: str, body: bytes) -> None:
        for each in self._bus.members:
            if each is not self:
                each.heard[subject](body)

    def on_told(self, subject: str, heard: Callable[[bytes], None]) -> None:
        self.heard[subject] = heard


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steps() -> tuple[Clock, list[TellingState], list[SharedCounts], list[LimitStep]]:
    bus, clock = Bus(), Clock()
    states = [TellingState(bus) for _ in range(3)]
    counts = [SharedCounts(state, clock) for state in states]
    rule = LimitRule(servers=("*",), calls_per_minute=10)
    return clock, states, counts, [LimitStep([rule], Identities(), clock, each) for each in counts]


Steps = tuple[Clock, list[TellingState], list[SharedCounts], list[LimitStep]]


async def test_limit_holds_over_three_instances(steps: Steps) -> None:
    clock, _, counts, limits = steps
    passed = 0
    for number in range(30):
        passed += not isinstance(limits[number % 3].check(request()), Denial)
        counts[number % 3].exchange()
    assert passed == 10
    clock.now += 61
    for each in counts:
        each.exchange()
    assert not isinstance(limits[1].check(request()), Denial), "a minute later there is room again"
    for each in counts:
        each.close()


async def test_counts_of_an_ended_instance_expire(steps: Steps) -> None:
    clock, _, counts, limits = steps
    for _ in range(10):
        assert not isinstance(limits[0].check(request()), Denial)
    counts[0].exchange()
    counts[0].close()
    assert isinstance(limits[1].check(request()), Denial)
    clock.now += shared_counts.ENDED_INSTANCE_COUNT_LIFETIME + 1
    assert not isinstance(limits[1].check(request()), Denial)
    counts[1].close()


async def test_limited_calls_are_refused_if_instances_may_not_count_alone(steps: Steps) -> None:
    _, states, counts, limits = steps
    states[1].blind = True
    refused = limits[1].check(request())
    assert isinstance(refused, Denial) and "away" in refused.message
    states[1].blind = False
    for _ in range(10):
        assert not isinstance(limits[1].check(request()), Denial), "the refused call was not counted"
    counts[1].close()
