"""What steps, and whoever follows calls, learn of a call that waits, is denied late or never reaches a server.

At the interface of the runner: the router around it is another module's subject.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

from mcp_workbench.engine.face.decisions import Answer, Forward, Reject, WithheldItem
from mcp_workbench.engine.jsonrpc.messages import ErrorObject, LargeObject
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.router.step_runner import StepRunner, wanted_item
from mcp_workbench.engine.steps import Denial, GuardedRequest, Outcome, Pass, Passage, Verdict
from mcp_workbench.errors import DownstreamError
from tests.engine.router.router_stage import Call, Catalog, Face
from tests.support.client import Json

DENIED = Denial(-32000, "not today", rule="policy[1]")


class Entry:
    toolbox = "box"

    def __init__(self, name: str) -> None:
        self.name = name
        self.config = SimpleNamespace(name=name)


FIRST: Any = Entry("a")
SECOND: Any = Entry("b")


class Step:
    """Decides what it is told, judges definitions and results, and writes down what it sees."""

    judges_definitions = True
    judged_methods = frozenset({"tools/call"})

    def __init__(self) -> None:
        self.verdict: Verdict | Awaitable[Verdict] = None
        self.late: Denial | None = None
        self.limit: Denial | None = None
        self.seen: list[GuardedRequest] = []
        self.counted: list[tuple[GuardedRequest, int]] = []
        self.ended: list[tuple[GuardedRequest, Outcome]] = []

    def check(self, request: GuardedRequest) -> Verdict | Awaitable[Verdict]:
        self.seen.append(request)
        return self.verdict

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        self.seen.append(request)
        return self.late

    def judge_result(self, request: GuardedRequest, result: Raw) -> Denial | None:
        self.seen.append(request)
        if bytes(result) == b"a defect":
            raise RuntimeError
        return self.late if b"secret" in bytes(result) else None

    def count(self, request: GuardedRequest, size: int) -> Denial | None:
        self.counted.append((request, size))
        return self.limit

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        self.ended.append((request, outcome))


class Identifying(Step):
    """Knows one identity at a time, as those of users with several tokens."""

    current = "of the first token"

    def identify(self, principal: str) -> object:
        return self.current

    def recall(self, identity: str) -> None:
        self.current = identity


class Onlooker(Step):
    """An observer that does not decide."""

    is_asked = False

    def on_unchecked_end(self, passage: Any, kind: Any, payload: Any, size: int, ended: float) -> None:
        self.ended.append((passage.origin, Outcome(kind, payload, passage.arrived, passage.sent, ended)))


class Follower:
    """Writes down what it is told of each passage (`Tracker`)."""

    is_watched = False
    has_collectors = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def _tell(self, what: str) -> Callable[..., None]:
        return lambda passage, *_: self.told.append(f"{what} {passage.origin.server or '-'}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return self._tell(name)


class Runner(StepRunner):
    """With what it asks of the router written down."""

    def __init__(self, *steps: Any, tracker: Any = None) -> None:
        self.stopped: list[tuple[object, Denial]] = []
        self.acted: list[Forward] = []
        self.background: list[asyncio.Future[None]] = []
        super().__init__(
            steps,
            tracker,
            self._start_for,
            lambda work: self.background.append(asyncio.ensure_future(work)),
            lambda call, denial: self.stopped.append((call, denial)),
            lambda call, decision: self.acted.append(decision),
        )
        self.work: list[asyncio.Future[None]] = []

    def _start_for(self, call: Any, work: Any) -> None:
        self.begin_to_wait(call)
        self.work.append(asyncio.ensure_future(work))


def a_call(**params: Raw) -> Any:
    call: Any = Call(Face(Catalog()))
    call.params = params
    call.session = SimpleNamespace(peer="")
    call.user = lambda: None
    return call


def forward(entry: Any = SECOND, item: str = "work") -> Forward:
    return Forward(entry, item, b'"tools/call"', b'{"name":"work"')


async def test_a_call_that_waits_twice_keeps_the_identity_of_its_arrival() -> None:
    step, call = Identifying(), a_call()
    runner = Runner(step)
    runner.begin_to_wait(call)
    step.current = "of the second token"
    runner.begin_to_wait(call)
    assert runner.lets_pass(call, forward())
    assert [request.identity for request in step.seen] == ["of the first token"]
    runner.recall_identity(call)
    assert step.current == "of the first token"


async def test_a_call_that_never_waited_recalls_no_identity() -> None:
    step, call = Identifying(), a_call()
    runner = Runner(step)
    assert runner.lets_pass(call, forward())
    assert [request.identity for request in step.seen] == ["of the first token"]
    step.current = "of the second token"
    runner.recall_identity(call)
    assert step.current == "of the second token"


async def test_identity_that_a_request_proved_is_kept_where_no_step_knows_identities() -> None:
    step, call = Step(), a_call()
    call.route.identity = "of this request"
    runner = Runner(step)
    runner.begin_to_wait(call)
    runner.recall_identity(call)
    assert runner.lets_pass(call, forward())
    assert [request.identity for request in step.seen] == ["of this request"]


async def test_only_a_call_with_a_state_is_a_retry() -> None:
    step = Step()
    runner = Runner(step)
    for call in (a_call(), a_call(requestState=Raw(b'"s"'))):
        assert runner.lets_pass(call, forward())
    assert [request.is_retry for request in step.seen] == [False, True]


async def test_whoever_follows_calls_is_told_of_each_turn_that_one_takes() -> None:
    step, follower = Step(), Follower()
    runner, call = Runner(step, tracker=follower), a_call()
    step.verdict = asyncio.get_running_loop().create_future()
    assert not runner.lets_pass(call, forward())
    assert follower.told == ["begin b", "changed b"] and runner.acted == []
    step.verdict.set_result(None)
    await asyncio.gather(*runner.work)
    assert follower.told == ["begin b", "changed b", "changed b"] and runner.acted == [forward()]
    runner.wait_for_server(call)
    assert call.route.passage.is_waiting and call.route.passage.reached is None
    runner.note_sent(call)
    assert not call.route.passage.is_waiting and call.route.passage.reached is not None
    assert follower.told[3:] == ["changed b"] * 2
    # It did not have to wait.
    runner.note_sent(call)
    assert follower.told[5:] == []


async def test_a_call_that_comes_to_the_steps_again_is_followed_once() -> None:
    follower = Follower()
    runner, call = Runner(Step(), tracker=follower), a_call()
    assert runner.passes(call, "tools/call", FIRST, "work", b"{", lambda: None)
    assert runner.passes(call, "tools/call", SECOND, "work", b"{", lambda: None)
    assert follower.told == ["begin a", "forget a", "begin b"]


@pytest.mark.parametrize("is_watched", [False, True])
async def test_a_call_that_is_only_counted_begins_once(is_watched: bool) -> None:
    follower = Follower()
    follower.is_watched = is_watched
    runner, call = Runner(tracker=follower), a_call()
    assert runner.lets_pass(call, forward()) and runner.lets_pass(call, forward())
    assert follower.told == (["note_running b", "begin b"] if is_watched else [])
    runner.note_sent(call)
    assert follower.told == (["note_running b", "begin b"] if is_watched else [])


async def test_a_call_that_is_only_counted_was_sent_when_it_had_waited() -> None:
    follower = Follower()
    runner, waited, at_once = Runner(tracker=follower), a_call(), a_call()
    follower.is_watched = True
    runner.begin_to_wait(waited)
    for call in (at_once, waited):
        assert runner.lets_pass(call, forward())
    assert at_once.route.passage.sent is None
    assert waited.route.passage.sent >= waited.route.passage.arrived == waited.route.arrived


async def test_a_call_without_a_passage_can_be_sent_and_wait() -> None:
    runner, call = Runner(Step()), a_call()
    runner.wait_for_server(call)
    runner.note_sent(call)
    assert call.route.passage is None


async def test_a_time_limit_stops_the_call_that_it_was_set_for() -> None:
    step = Step()
    runner, first, second = Runner(step), a_call(), a_call()
    assert runner.lets_pass(first, forward())
    step.verdict = Pass(within=0.0, late=DENIED)
    assert runner.lets_pass(second, forward())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert runner.stopped == [(second, DENIED)]


@pytest.mark.parametrize("others", ["nobody", "an observer without follower", "a step", "an observer", "a follower"])
async def test_a_call_that_is_denied_after_it_had_passed_ends_once_for_everybody(others: str) -> None:
    """The rules came into force while it waited for its server."""
    onlooker, follower, judge, call = Onlooker(), Follower(), Step(), a_call()
    runners: dict[str, Callable[[], Runner]] = {
        "nobody": Runner,
        "an observer without follower": lambda: Runner(onlooker),
        "a step": lambda: Runner(Step(), onlooker, tracker=follower),
        "an observer": lambda: Runner(onlooker, tracker=follower),
        "a follower": lambda: Runner(tracker=follower),
    }
    began = runners[others]()
    runner = Runner(judge, onlooker, tracker=follower)
    if others == "a follower":
        began.begin_to_wait(call)
    if others != "nobody":
        assert began.lets_pass(call, forward())
    told = len(follower.told)
    assert not runner.denies_again(call, forward())
    judge.late = DENIED
    assert runner.denies_again(call, forward())
    assert call.ends == [("refused", "not today")]
    request = judge.seen[-1]
    assert (request.method, request.server, request.item) == ("tools/call", "b", "work")
    call.route.passage.end("error")
    was_followed = others in ("an observer", "a follower")
    is_followed = others != "an observer without follower"
    expected = [*(["forget b"] if was_followed else []), *(["on_passage_end b"] if is_followed else [])]
    assert follower.told[told:] == expected
    if others != "a follower":
        ((_, outcome),) = onlooker.ended
        assert (outcome.kind, outcome.decision, outcome.rules) == ("error", "denied", ("policy[1]",))


async def test_result_is_judged_by_each_step_and_withheld() -> None:
    first, second, onlooker, call = Step(), Step(), Onlooker(), a_call()
    runner = Runner(first, second, onlooker)
    assert runner.judged_methods == {b'"tools/call"'}
    assert runner.lets_pass(call, forward())
    judge = runner.judge_of_result(call, forward())
    second.late = DENIED
    assert judge(Raw(b"anything")) is None
    assert judge(Raw(b"a secret")) == DENIED
    assert (second.seen[-1].server, second.seen[-1].item) == ("b", "work")
    runner.withhold_result(call, forward(), DENIED)
    assert call.ends == [("refused", "not today")]
    call.route.passage.end("error")
    for step in (first, second, onlooker):
        ((_, outcome),) = step.ended
        assert (outcome.decision, outcome.rules) == ("denied", ("policy[1]",))


async def test_result_is_withheld_when_its_judgement_fails() -> None:
    runner, call = Runner(Step()), a_call()
    denial = runner.judge_of_result(call, forward())(Raw(b"a defect"))
    assert denial is not None and "withheld" in denial.message


async def test_result_of_a_call_that_no_step_had_seen_is_withheld_once() -> None:
    follower, call = Follower(), a_call()
    counting = Runner(tracker=follower)
    assert counting.lets_pass(call, forward())
    onlooker = Onlooker()
    runner = Runner(Step(), onlooker, tracker=follower)
    runner.withhold_result(call, forward(), DENIED)
    assert call.ends == [("refused", "not today")] and call.route.passage.decision == "denied"
    assert follower.told == ["note_running b", "forget b"]


async def test_a_request_that_we_answer_ourselves_is_counted_once_and_refused_at_the_limit() -> None:
    first, second, onlooker = Step(), Step(), Onlooker()
    runner = Runner(first, second, onlooker)
    call = a_call(name=Raw(b'"open_toolbox"'), arguments=Raw(b'{"query":"w"}'))
    assert not runner.refuses_to_answer(call)
    assert not runner.refuses_to_answer(call)
    ((request, size),) = second.counted
    assert (request.item, size) == ("open_toolbox", len(b'"open_toolbox"' + b'{"query":"w"}'))
    second.limit = DENIED
    refused = a_call(name=Raw(b'"open_toolbox"'))
    assert runner.refuses_to_answer(refused)
    assert refused.ends == [("refused", "not today")]
    refused.route.passage.end("error")
    ((_, outcome),) = onlooker.ended
    assert (outcome.decision, outcome.rules, outcome.sent) == ("denied", ("policy[1]",), None)


async def test_a_request_that_the_steps_have_seen_is_not_counted_again() -> None:
    step, call = Step(), a_call()
    runner = Runner(step)
    assert runner.lets_pass(call, forward())
    assert not runner.refuses_to_answer(call) and step.counted == []


class HidingNothing(Step):
    def hiding_rule(self, subject: object) -> str:
        return ""


class Hiding(Step):
    def hiding_rule(self, subject: Any) -> str:
        return "policy[2]" if subject.item == "secret" else ""


async def test_hidden_items_are_noted_with_the_rule_that_hides_them() -> None:
    onlooker = Onlooker()
    runner = Runner(onlooker, Step(), HidingNothing(), Hiding())
    for name in ("none", "secret"):
        call = a_call(name=Raw(encode(name)))
        assert runner.notes(call, Reject(-32602, "no"))
        call.route.passage.end("error")
    assert [outcome.rules for _, outcome in onlooker.ended] == [("face",), ("policy[2]",)]


async def test_errors_of_a_face_are_noted_with_what_they_are_about() -> None:
    onlooker = Onlooker()
    runner = Runner(onlooker)
    assert not runner.notes(a_call(), Answer(b'{"isError":false}'))
    withheld = WithheldItem(SECOND, "work", "lock")
    unknown = a_call(name=Raw(b'"none"'))
    refusals: list[tuple[Any, Answer | Reject]] = [
        (a_call(), Reject(-32602, "no", None, withheld)),
        (a_call(), Answer(b'{"isError":true}', withheld)),
        (unknown, Reject(-32602, "no")),
    ]
    for call, decision in refusals:
        assert runner.notes(call, decision)
        call.route.passage.end("error")
    seen = [
        (request.server, request.item, outcome.decision, outcome.rules, outcome.sent)
        for request, outcome in onlooker.ended
    ]
    locked = ("b", "work", "denied", ("lock",), None)
    assert seen == [locked, locked, ("", "none", "denied", ("face",), None)]


async def test_a_call_that_ends_while_its_server_is_listed_is_recorded_if_it_names_an_item() -> None:
    onlooker = Onlooker()
    runner = Runner(onlooker, Step())
    assert runner.unsent(a_call(name=Raw(b'"work"'))) is None, "it never waited"
    listing = a_call()
    runner.begin_to_wait(listing)
    assert runner.unsent(listing) is None
    known, wanted = a_call(), a_call(name=Raw(b'"work"'))
    for call in (known, wanted):
        runner.begin_to_wait(call)
    known.route.entry, known.route.item = SECOND, "other"
    for call in (known, wanted):
        passage = runner.unsent(call)
        assert passage is not None and passage.arrived == call.route.arrived
        passage.end("cancelled")
    seen = [(request.server, request.item, outcome.sent) for request, outcome in onlooker.ended]
    assert seen == [("b", "other", None), ("", "work", None)]


@pytest.mark.parametrize("has_passage", [False, True])
async def test_a_subscription_is_judged_by_the_lists_that_its_server_has_now(has_passage: bool) -> None:
    step = Step()
    runner, call = Runner(step), a_call()
    request = GuardedRequest(principal="", method="resources/subscribe", client=b"", session=0, body=b"", item="held")
    passage = Passage((), request) if has_passage else None
    about: Any = (call, "resources/subscribe", SECOND, "test:///one", passage)
    runner.judge_by_list(*about)
    step.late = DENIED
    with pytest.raises(RemoteError, match="not today"):
        runner.judge_by_list(*about)
    assert [each.item for each in step.seen] == ["held" if has_passage else "test:///one"] * 2


@pytest.mark.parametrize(
    ("verdict", "failure", "kind"),
    [
        (None, None, "result"),
        (None, RemoteError, "error"),
        (None, DownstreamError("gone"), "error"),
        (None, asyncio.CancelledError(), "cancelled"),
        (DENIED, None, "error"),
    ],
)
async def test_each_part_of_a_request_to_several_servers_ends_for_itself(
    verdict: Verdict, failure: Any, kind: str
) -> None:
    step, follower = Step(), Follower()
    runner, call, done = Runner(step, tracker=follower), a_call(), []

    async def work(passage: Passage) -> None:
        done.append(passage.origin.server)
        if len(done) == 2 and failure is not None:
            raise failure if isinstance(failure, BaseException) else RemoteError(ErrorObject(-32050, "no"))

    await runner.run(call, "logging/setLevel", FIRST, "", b"{", work)
    step.verdict = verdict
    try:
        await runner.run(call, "logging/setLevel", SECOND, "", b"{", work)
    except (RemoteError, DownstreamError, asyncio.CancelledError):
        assert failure is not None
    else:
        assert failure is None
    assert done == (["a", "b"] if verdict is None else ["a"])
    assert [outcome.kind for _, outcome in step.ended] == ["result", kind]
    assert follower.told == ["begin a", "on_passage_end a", "begin b", "on_passage_end b"]
    assert call.ends == []


async def test_a_part_that_is_held_is_done_once_it_may_be() -> None:
    step, follower = Step(), Follower()
    runner, done = Runner(step, tracker=follower), asyncio.Event()
    step.verdict = asyncio.get_running_loop().create_future()

    async def work(passage: Passage) -> None:
        done.set()

    part = asyncio.ensure_future(runner.run(a_call(), "logging/setLevel", SECOND, "", b"{", work))
    await asyncio.sleep(0)
    assert follower.told == ["begin b", "changed b"] and not done.is_set()
    step.verdict.set_result(None)
    await part
    assert done.is_set() and follower.told[2:] == ["on_passage_end b"]


async def test_a_notification_that_is_held_ends_with_the_workbench() -> None:
    step = Step()
    sent: list[int] = []
    runner, sender = Runner(step), a_call()
    sender.peer = ""
    decisions = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for number, step.verdict in enumerate(decisions):
        runner.notify(sender, "notifications/x", b"{", partial(sent.append, number))
    await asyncio.sleep(0)
    runner.background[1].cancel()
    await asyncio.wait(runner.background[1:])
    decisions[0].set_result(None)
    await runner.background[0]
    assert sent == [0] and [outcome.kind for _, outcome in step.ended] == ["cancelled", "result"]


@pytest.mark.parametrize(
    ("method", "params", "wanted"),
    [
        ("prompts/get", {"name": "write"}, ("", "", "write")),
        ("resources/read", {"uri": "test:///one"}, ("", "", "test:///one")),
        ("tasks/get", {"taskId": "t-1"}, ("", "", "t-1")),
        ("tools/list", {}, ("", "", "")),
        ("prompts/get", {"name": 7}, ("", "", "")),
        ("completion/complete", {"ref": {"name": "write"}}, ("", "", "write")),
        ("completion/complete", {"ref": {"uri": "test:///one"}}, ("", "", "test:///one")),
        ("completion/complete", {"ref": 7}, ("", "", "")),
        ("completion/complete", {}, ("", "", "")),
        ("tools/call", {"name": "work"}, ("", "", "work")),
        ("tools/call", {"name": "work", "arguments": {"tool": "box/b/work"}}, ("", "", "work")),
        ("prompts/get", {"name": "use_tool", "arguments": {"tool": "box/b/work"}}, ("", "", "use_tool")),
        ("tools/call", {"name": "use_tool"}, ("", "", "use_tool")),
        ("tools/call", {"name": "use_tool", "arguments": {"tool": 7}}, ("", "", "use_tool")),
        ("tools/call", {"name": "use_tool", "arguments": {}}, ("", "", "use_tool")),
        ("tools/call", {"name": "use_tool", "arguments": {"tool": "work"}}, ("", "", "work")),
        ("tools/call", {"name": "use_tool", "arguments": {"tool": "b/work"}}, ("", "", "b/work")),
        ("tools/call", {"name": "use_tool", "arguments": {"tool": "box/b/a/b"}}, ("box", "b", "a/b")),
        (
            "tools/call",
            {"name": "use_tool", "arguments": {"tool": {"toolbox": "box", "server": "b", "tool": "work"}}},
            ("box", "b", "work"),
        ),
        (
            "tools/call",
            {"name": "open_toolbox", "arguments": {"toolbox_name": "box", "tool": "other"}},
            ("box", "", "open_toolbox"),
        ),
    ],
)
def test_name_that_a_client_used_is_read_as_far_as_it_can_be(
    method: str, params: Json, wanted: tuple[str, ...]
) -> None:
    assert wanted_item(method, {name: Raw(encode(value)) for name, value in params.items()}) == wanted


def test_of_a_large_call_no_more_than_its_name_is_read() -> None:
    params = LargeObject({"name": Raw(b'"use_tool"'), "arguments": Raw(b'{"tool":"box/b/work"}')})
    assert wanted_item("tools/call", params) == ("", "", "use_tool")
