"""What a router makes for itself: of what it is given, when it is needed, and once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_workbench.engine.face.gate import Gate
from mcp_workbench.engine.router import step_runner, subscriptions, task_requests, toolboxes, traced_steps
from tests.engine.router.router_stage import stage


class Made:
    """Notes of what it was made."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class MadeTraced(Made):
    pass


async def test_lazy_parts_of_the_router_are_made_once_from_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((toolboxes, "Toolboxes"), (subscriptions, "Subscriptions"), (task_requests, "TaskRequests")):
        monkeypatch.setattr(module, name, Made)
    state, on_opened = object(), (print,)
    async with stage(state=state, on_opened=on_opened) as at:
        router = at.router
        first = [router._toolboxes, router.subscriptions, router.tasks]
        made_of_toolboxes, made_of_subscriptions, made_of_tasks = (each.parts for each in first)
        catalog, connections, lists, start, opened = made_of_toolboxes
        assert (catalog, connections, lists, opened) == (at.catalog, router.connections, at.lists, on_opened)
        assert made_of_subscriptions == (router,) and made_of_tasks == (router, at.pool, at.lists, state)
        done: list[str] = []

        async def work() -> None:
            done.append("work")

        await start(work())
        assert done == ["work"] and first == [router._toolboxes, router.subscriptions, router.tasks]


@pytest.mark.parametrize(
    ("steps", "tracker", "tracer", "runner"),
    [
        ((), None, None, None),
        ((), None, "tracer", None),
        (("step",), None, None, Made),
        (("step",), None, "tracer", Made),
        ((), "tracker", None, Made),
        (("step",), "tracker", None, Made),
        ((), "tracker", "tracer", MadeTraced),
    ],
)
async def test_gate_decides_which_runner_is_made(
    monkeypatch: pytest.MonkeyPatch, steps: Any, tracker: Any, tracer: Any, runner: Any
) -> None:
    monkeypatch.setattr(step_runner, "StepRunner", Made)
    monkeypatch.setattr(traced_steps, "TracedStepRunner", MadeTraced)
    monkeypatch.setattr(Gate, "steps", lambda gate: steps)
    monkeypatch.setattr(Gate, "tracker", tracker)
    monkeypatch.setattr(Gate, "tracer", tracer)
    async with stage() as at:
        router = at.router
        made: Any = router.steps
        if runner is None:
            assert made is None
        else:
            means = (router.start_for, router.in_background, router.stop, router.act)
            traced = (tracer,) if runner is MadeTraced else ()
            assert type(made) is runner and made.parts == (steps, tracker, *means, *traced)


async def test_a_router_follows_its_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    followers: list[Any] = []
    monkeypatch.setattr(Gate, "follow", lambda gate, follower: followers.append(follower))
    monkeypatch.setattr(step_runner, "StepRunner", Made)
    async with stage() as at:
        assert followers[-1] is at.router and at.router.steps is None
        monkeypatch.setattr(Gate, "steps", lambda gate: ("step",))
        at.router.on_steps_changed()
        made: Any = at.router.steps
        assert made.parts[0] == ("step",)
        settled: list[str | None] = []
        monkeypatch.setattr(at.router.views, "settle_again", settled.append)
        at.router.on_rules_changed(None)
        at.router.on_rules_changed("ann")
        assert settled == [None, "ann"]


async def test_background_start_needs_no_request() -> None:
    async with stage() as at:
        done = asyncio.Event()

        async def work() -> None:
            done.set()

        at.router.in_background(work())
        async with asyncio.timeout(20):
            await done.wait()
