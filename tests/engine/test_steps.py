"""A passage: the order of the steps, what each may do, and that each learns of exactly one end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mcp_workbench.engine import steps
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.steps import (
    MAX_SEARCHED_ANSWER_BYTES,
    STEP_FAILED,
    UNDECIDED,
    Denial,
    EndKind,
    GuardedRequest,
    Held,
    Observer,
    Outcome,
    Pass,
    Passage,
    Substitute,
    Verdict,
    tool_failed,
)

REQUEST = GuardedRequest(principal="ada", method="tools/call", client=b"{}", session=0, body=b'{"name":"t"')
REFUSED = Denial(-32000, "not today")


class Recorder:
    """A step that does as it is told, and writes down what it sees."""

    def __init__(self, name: str, seen: list[str], decide: Callable[[], Verdict | Awaitable[Verdict]]) -> None:
        self.name = name
        self.seen = seen
        self.decide = decide
        self.outcomes: list[Outcome] = []

    def check(self, request: GuardedRequest) -> Verdict | Awaitable[Verdict]:
        self.seen.append(f"{self.name}?")
        return self.decide()

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        self.seen.append(f"{self.name}.")
        self.outcomes.append(outcome)


def fail() -> Verdict:
    raise RuntimeError("broken")


async def later(verdict: Verdict) -> Verdict:
    await asyncio.sleep(0)
    return verdict


async def test_steps_are_asked_in_order_and_learn_of_the_end_in_reverse() -> None:
    seen: list[str] = []
    passage = Passage((Recorder("a", seen, lambda: None), Recorder("b", seen, lambda: None)), REQUEST)
    assert passage.check() is None
    passage.end("result", b"{}")
    assert seen == ["a?", "b?", "b.", "a."]


async def test_a_step_behind_one_that_decides_learns_of_nothing() -> None:
    seen: list[str] = []
    passage = Passage((Recorder("a", seen, lambda: REFUSED), Recorder("b", seen, lambda: None)), REQUEST)
    assert passage.check() is REFUSED
    passage.end("error", b"{}")
    assert seen == ["a?", "a."]


async def test_a_request_is_held_by_one_step_after_the_other() -> None:
    seen: list[str] = []
    listed = (
        Recorder("a", seen, lambda: later(None)),
        Recorder("b", seen, lambda: later(None)),
        Recorder("c", seen, lambda: Substitute(b"{}")),
    )
    passage = Passage(listed, REQUEST)
    assert isinstance(passage.check(), Held) and seen == ["a?"]
    assert await passage.decided() == Substitute(b"{}")
    assert seen == ["a?", "b?", "c?"]


async def test_an_undecided_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_HOLD_TIMEOUT", 0.0)
    never: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    passage = Passage((Recorder("a", [], lambda: never),), REQUEST)
    passage.check()
    verdict = await passage.decided()
    assert isinstance(verdict, Denial) and verdict.message == UNDECIDED


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_failing_step_refuses_the_request(is_held: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fail_later() -> Verdict:
        return fail()

    passage = Passage((Recorder("a", [], fail_later if is_held else fail),), REQUEST)
    verdict = passage.check()
    if isinstance(verdict, Held):
        verdict = await passage.decided()
    assert isinstance(verdict, Denial) and verdict.message == STEP_FAILED
    assert "broken" in caplog.text


async def test_a_step_that_fails_at_the_end_keeps_it_from_no_other(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    broken = Recorder("b", seen, lambda: None)
    broken.on_end = lambda request, outcome: fail()  # type: ignore[method-assign,assignment]
    passage = Passage((Recorder("a", seen, lambda: None), broken), REQUEST)
    passage.check()
    passage.end("result")
    assert seen == ["a?", "b?", "a."] and "broken" in caplog.text


async def test_only_the_first_end_counts() -> None:
    step = Recorder("a", [], lambda: None)
    passage = Passage((step,), REQUEST)
    passage.check()
    passage.end("error", b'{"code":-32001,', b'"message":"no"}')
    passage.end("cancelled")
    (outcome,) = step.outcomes
    assert (outcome.kind, outcome.code, outcome.size) == ("error", -32001, 30)
    assert outcome.sent is not None and outcome.arrived <= outcome.sent <= outcome.ended


async def test_an_unsent_request_is_reported_as_unsent() -> None:
    step = Recorder("a", [], lambda: REFUSED)
    passage = Passage((step,), REQUEST)
    passage.check()
    passage.end("error", b"{}")
    assert step.outcomes[0].sent is None


async def test_request_cancelled_without_waiters_leaves_no_state() -> None:
    # A coroutine that nobody awaits would be a warning, and so an error.
    passage = Passage((Recorder("a", [], lambda: later(None)),), REQUEST)
    assert isinstance(passage.check(), Held)
    passage.end("cancelled")


async def test_every_step_learns_the_decision_and_its_rules() -> None:
    first, second = Recorder("a", [], lambda: Pass("policy[2]")), Recorder("b", [], lambda: later(Pass("approval")))
    passage = Passage((first, second), REQUEST)
    assert isinstance(passage.check(), Held) and await passage.decided() is None
    passage.end("result", b"{}")
    assert (first.outcomes[0].decision, first.outcomes[0].rules) == ("passed", ("policy[2]", "approval"))


@pytest.mark.parametrize(
    ("verdict", "decision", "rules"),
    [
        (Denial(-32000, "no", rule="lock"), "denied", ("lock",)),
        (REFUSED, "denied", ()),
        (Substitute(b"{}"), "answered", ()),
    ],
)
@pytest.mark.parametrize("held", [False, True])
async def test_a_refusal_names_its_rule(verdict: Verdict, decision: str, rules: tuple[str, ...], held: bool) -> None:
    step = Recorder("a", [], (lambda: later(verdict)) if held else (lambda: verdict))
    passage = Passage((step,), REQUEST)
    assert passage.check() is verdict or await passage.decided() is verdict
    passage.end("error", b"{}")
    assert (step.outcomes[0].decision, step.outcomes[0].rules) == (decision, rules)


async def test_a_request_that_ends_while_it_is_held_is_undecided() -> None:
    step = Recorder("a", [], lambda: later(None))
    passage = Passage((step,), REQUEST)
    passage.check()
    passage.end("cancelled")
    assert step.outcomes[0].decision == "undecided"


LARGE = b" " * MAX_SEARCHED_ANSWER_BYTES


@pytest.mark.parametrize(
    ("payload", "has_failed"),
    [
        ((b'{"content":[],"isError":true}',), True),
        ((b'{"content":[],', b'"isError" : true}'), True),
        ((b'{"content":[],"isError":false}',), False),
        ((b'{"structuredContent":{"isError":true}}',), False),
        ((b'{"content":[]}',), False),
        ((b'{"isError":true',), False),
        ((b'{"isError":true,', LARGE, b'"content":[]}'), True),
        ((b'{"content":[', LARGE, b'],"isError":true}'), True),
        ((b'{"content":[', LARGE + b'"isError":true' + LARGE, b"]}"), False),
        ((b'{"resultType":"complete",', b'"isError":true,"content":[' + LARGE, b"]}"), True),
        ((b'{"content":[', LARGE + b'],"isError":true', b',"_meta":{}', b"}"), True),
        ((b'{"content":["' + LARGE, b'"isErr', b'or":true}'), True),
        ((), False),
    ],
)
def test_a_failure_of_the_tool_is_read_from_its_result(payload: tuple[bytes, ...], has_failed: bool) -> None:
    assert tool_failed(payload, sum(map(len, payload))) is has_failed
    step = Recorder("a", [], lambda: None)
    passage = Passage((step,), REQUEST)
    passage.check()
    passage.end("result", *payload)
    assert [(each.size, each.is_tool_error) for each in step.outcomes] == [(sum(map(len, payload)), has_failed)]


def test_a_result_known_to_be_no_failure_is_not_searched() -> None:
    step = Recorder("a", [], lambda: None)
    ends: tuple[tuple[EndKind, bool, bool], ...]
    ends = (("result", False, True), ("result", True, False), ("error", False, False))
    for kind, is_success, is_failure in ends:
        passage = Passage((step,), REQUEST)
        passage.check()
        passage.end_with(kind, (b'{"isError":true}',), is_success)
        assert step.outcomes[-1].is_tool_error is is_failure


class Onlooker(Recorder):
    """As a `steps.Observer`."""

    is_asked = False

    def __init__(self) -> None:
        super().__init__("onlooker", [], lambda: None)

    def on_unchecked_end(self, *_: object) -> None: ...


def test_observers_are_distinguished_from_deciding_steps() -> None:
    assert isinstance(Onlooker(), Observer)
    assert not isinstance(Recorder("a", [], lambda: None), Observer)


def test_our_own_user_has_the_same_name_in_connections() -> None:
    """Neither of the two can import the other."""
    assert steps.LOCAL_PRINCIPAL in OWN_PRINCIPALS
