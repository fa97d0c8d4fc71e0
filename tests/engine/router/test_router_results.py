"""The router and the result of a call: who looks at it before its client does, and what is withheld."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.router.router import LARGE_TO_SHORTEN
from mcp_workbench.engine.steps import Denial
from tests.engine.router.router_stage import Call, Stage, ended, settle, stage

SMALL, LARGE = b"x" * LARGE_TO_SHORTEN, b"x" * (LARGE_TO_SHORTEN + 1)
DENIAL = Denial(-32000, "not for you")


class Judging:
    """Steps that judge the results of these methods."""

    def __init__(self, at: Stage, *methods: bytes, denial: Denial | None = None) -> None:
        self._at, self._denial = at, denial
        self.judged_methods = frozenset(methods)
        self.judged_in: list[str] = []
        self.withheld: list[tuple[Any, ...]] = []
        self.waiting = 0
        # They are taken away while they judge.
        self.end = False
        at.router.steps = self

    def begin_to_wait(self, call: Call) -> None:
        self.waiting += 1

    def judge_of_result(self, call: Call, decision: object) -> Any:
        def judge(result: Raw) -> Denial | None:
            is_main = threading.current_thread() is threading.main_thread()
            self.judged_in.append("loop" if is_main else "thread")
            if self.end:
                self._at.router.steps = None
            return self._denial

        return judge

    def withhold_result(self, *withheld: Any) -> None:
        self.withheld.append(withheld)


def sent(at: Stage, **members: Any) -> Call:
    """A call to a server with resources that is under way."""
    at.other.has_resources = True
    call = at.call(decision := at.forward(**members))
    call.route.entry, call.route.decision = decision.entry, decision
    return call


@pytest.mark.parametrize(("result", "where"), [(SMALL, "loop"), (LARGE, "thread")], ids=["small", "large"])
async def test_a_result_is_judged_once_and_then_passed_on(result: bytes, where: str) -> None:
    async with stage() as at:
        call, steps = sent(at), Judging(at, b'"other/method"', TOOLS_CALL)
        at.router.take_result(call, Raw(result))
        assert await ended(call) == [("passed on", result, True)] and call.route.task is None
        assert steps.judged_in == [where] and at.face.noted == [result] and steps.withheld == []
        assert steps.waiting == int(where == "thread")


@pytest.mark.parametrize("result", [SMALL, LARGE], ids=["small", "large"])
async def test_a_result_that_is_denied_is_withheld_and_nothing_of_it_is_noted(result: bytes) -> None:
    async with stage() as at:
        call, steps = sent(at), Judging(at, TOOLS_CALL, denial=DENIAL)
        decision = call.route.decision
        at.router.take_result(call, Raw(result))
        if (task := call.route.task) is not None:
            await task
        assert steps.withheld == [(call, decision, DENIAL)] and call.route.task is None
        assert call.ends == [] and at.face.noted == []


async def test_a_denial_counts_if_the_steps_are_gone_when_it_comes() -> None:
    async with stage() as at:
        call, steps = sent(at), Judging(at, TOOLS_CALL, denial=DENIAL)
        steps.end = True
        at.router.take_result(call, Raw(LARGE))
        assert await ended(call) == [("refused", "not for you")] and at.face.noted == [] and steps.withheld == []


async def test_results_of_other_methods_and_of_servers_without_resources_are_not_judged() -> None:
    async with stage() as at:
        call, steps = sent(at), Judging(at, b'"other/method"', denial=DENIAL)
        at.router.take_result(call, Raw(b"{}"))
        assert call.ends == [("passed on", b"{}", True)] and at.face.noted == [b"{}"]
        call, steps = sent(at), Judging(at, TOOLS_CALL, denial=DENIAL)
        at.other.has_resources = False
        at.router.take_result(call, Raw(b"{}"))
        assert call.ends == [("passed on", b"{}", True)] and steps.judged_in == []


async def test_a_result_is_rewritten_after_its_links_were_noted() -> None:
    async with stage() as at:
        noted: list[tuple[Any, ...]] = []
        at.face.links = SimpleNamespace(note=lambda *about: noted.append(about))
        call = sent(at, rewrite=lambda result: bytes(result) + b" rewritten")
        at.router.take_result(call, Raw(b"{}"))
        assert call.ends == [("passed on", b"{} rewritten", True)] and noted == [("ann", at.other, Raw(b"{}"))]


async def test_the_first_use_of_a_tool_is_noted_with_its_result() -> None:
    async with stage() as at:
        seen: set[tuple[Any, str]] = set()
        noted: list[tuple[Any, ...]] = []

        def note(decision: Any, result: Raw) -> None:
            seen.add((decision.entry, decision.item))
            noted.append((decision, bytes(result)))

        for _ in range(2):
            call = sent(at)
            call.view.use = SimpleNamespace(seen=seen, note=note)
            at.router.take_result(call, Raw(b"{}"))
            assert call.ends == [("passed on", b"{}", True)]
        ((decision, result),) = noted
        assert (decision.item, result) == ("work", b"{}")


@pytest.mark.parametrize("size", [LARGE_TO_SHORTEN, LARGE_TO_SHORTEN + 1])
async def test_a_result_that_was_shortened_in_a_thread_leaves_no_task(size: int) -> None:
    async with stage() as at:
        at.face.shown = b"short"
        call = sent(at, result_budget=10)
        result = b'{"a":"%b"}' % (b"x" * (size - 8))
        assert len(result) == size
        at.router.take_result(call, Raw(result))
        assert (call.ends == []) is (size > LARGE_TO_SHORTEN)
        assert await ended(call) == [("passed on", b"short", False)]
        await settle()
        assert call.route.task is None and at.face.worked_in == ["thread" if size > LARGE_TO_SHORTEN else "loop"]
