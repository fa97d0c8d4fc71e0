"""An approval is for exactly one call of one principal, and is never assumed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.config.policy_settings import PolicyRule, Then
from mcp_workbench.engine.steps import HELD, Ask, Denial, EndKind, EventKind, GuardedRequest, Outcome, Pass, Passage
from mcp_workbench.team.identity.identities import Identities
from mcp_workbench.team.policy import approval
from mcp_workbench.team.policy.approval import WAITING_CALL_LIFETIME, Approvals, ApprovalStep
from mcp_workbench.team.policy.approval_question import chosen, differences, question, shown
from mcp_workbench.team.policy.rules_in_force import FORBIDDEN, Policy

ASKING = (PolicyRule(tools=("box",), then="ask"), PolicyRule(then="allow"))


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        # How often a call began to wait, and the rules that replace those of the step.
        self.told = 0
        self.in_force: Policy | None = None
        self.approvals = Approvals(lambda: self.now, on_waiting=self._on_waiting, in_force=lambda: self.in_force)
        self.recorded: list[tuple[str, dict[str, Any]]] = []
        policy = Policy(ASKING, Identities(), lambda *place: None, lambda *place: "")
        self.step = ApprovalStep(policy, self.approvals, self._record)

    def _on_waiting(self) -> None:
        self.told += 1

    def _record(self, kind: EventKind, /, **fields: Any) -> None:
        self.recorded.append((kind, fields))

    def check(self, about: GuardedRequest) -> Pass | Ask | Denial | None:
        return self.step.check(about)

    def asked(self, about: GuardedRequest) -> Ask:
        verdict = self.check(about)
        assert isinstance(verdict, Ask)
        return verdict

    def answer(self, about: GuardedRequest, allow: str = "once") -> Pass | Denial:
        return self.asked(about).answered(json.dumps({"action": "accept", "content": {"allow": allow}}).encode())


def request(arguments: object = None, principal: str = "alice", session: int = 1, **more: Any) -> GuardedRequest:
    body = json.dumps({"name": "tool", "arguments": arguments or {"path": "/a"}, **more}).encode()[:-1]
    return GuardedRequest(
        principal=principal,
        method="tools/call",
        toolbox="box",
        server="one",
        item="tool",
        client=b"{}",
        session=session,
        body=body,
    )


def test_a_yes_is_for_this_call_and_for_once() -> None:
    rig = Rig()
    assert rig.answer(request()) == Pass("approved")
    rig.asked(request())


def test_nothing_of_a_principal_is_left_for_the_next_of_that_name() -> None:
    rig = Rig()
    for principal in ("alice", "bob"):
        rig.answer(request(principal=principal), "hour")
        rig.approvals.grant_retry(principal, "digest")
        assert rig.approvals.wait(principal, "box/one/tool", b"{}", "digest") is not None
    rig.approvals.forget({"alice"})
    rig.asked(request())
    assert rig.check(request(principal="bob")) == Pass("approved")
    assert [rig.approvals.take_retry(name, "digest") for name in ("alice", "bob")] == [False, True]
    assert [rig.approvals.last(name, "box/one/tool") is None for name in ("alice", "bob")] == [True, False]
    assert [each["principal"] for each in rig.approvals.waiting()] == ["bob"]


@pytest.mark.requirement("team.approval")
@pytest.mark.parametrize("then", ["deny", "hide"])
def test_a_yes_does_not_count_against_rules_that_came_while_the_call_was_held(then: Then) -> None:
    rig = Rig()
    held = rig.asked(request())
    now = (PolicyRule(who=("bob",), then="allow"), PolicyRule(tools=("box",), then=then), PolicyRule(then="allow"))
    rig.in_force = Policy(now, Identities(), lambda *place: None, lambda *place: "")
    verdict = held.answered(b'{"action":"accept","content":{"allow":"hour"}}')
    assert isinstance(verdict, Denial) and verdict.rule == "policy[1]"
    recorded = rig.recorded[-1][1]
    assert (recorded["decision"], recorded["rule"]) == ("denied", "policy[1]"), "the rule that forbids it"
    rig.asked(request())


def test_the_audit_names_the_rule_that_asked_though_another_would_allow_by_now() -> None:
    rig = Rig()
    held = rig.asked(request())
    now = (PolicyRule(who=("bob",), then="deny"), PolicyRule(then="allow"))
    rig.in_force = Policy(now, Identities(), lambda *place: None, lambda *place: "")
    assert held.answered(b'{"action":"accept","content":{"allow":"once"}}') == Pass("approved")
    assert (rig.recorded[-1][1]["decision"], rig.recorded[-1][1]["rule"]) == ("passed", "policy[0]")


def test_a_yes_for_the_session_is_for_the_same_call_in_it() -> None:
    rig = Rig()
    rig.answer(request(), "session")
    assert rig.check(request()) == Pass("approved")
    rig.asked(request({"path": "/b"}))
    rig.asked(request(principal="bob"))
    rig.asked(request(session=2))


def test_a_yes_for_a_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.answer(request(), "hour")
    rig.now = approval.APPROVAL_LIFETIME - 1
    assert rig.check(request(session=0)) == Pass("approved")
    rig.now = approval.APPROVAL_LIFETIME
    rig.asked(request())


@pytest.mark.requirement("team.approval")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"{}",
        b"[]",
        b"no JSON",
        b'{"action":"decline"}',
        b'{"action":"cancel","content":{"allow":"once"}}',
        b'{"action":"accept"}',
        b'{"action":"accept","content":{}}',
        b'{"action":"accept","content":{"allow":true}}',
        b'{"action":"accept","content":{"allow":"always"}}',
        b'{"action":"accept","content":{"allow":"Once"}}',
    ],
)
def test_everything_but_a_plain_yes_is_a_no(answer: bytes | None) -> None:
    rig = Rig()
    verdict = rig.asked(request()).answered(answer)
    assert isinstance(verdict, Denial) and verdict.code == FORBIDDEN
    rig.asked(request())


def test_without_a_session_there_is_none_to_approve_for() -> None:
    rig = Rig()
    form = json.loads(bytes(rig.asked(request(session=0)).params))["requestedSchema"]
    assert form["properties"]["allow"]["enum"] == ["once", "hour"]
    assert isinstance(rig.answer(request(session=0), "session"), Denial)


def test_calls_allowed_by_a_rule_need_no_approval() -> None:
    other = GuardedRequest(
        principal="alice", method="tools/call", toolbox="x", server="one", item="t", client=b"{}", session=1, body=b"{"
    )
    assert Rig().check(other) is None


def test_the_retry_of_an_approved_call_is_not_another_one() -> None:
    rig = Rig()
    first = request()
    rig.answer(first)
    interim = b'{"resultType":"input_required","requestState":"s"}'
    rig.step.on_end(first, Outcome(kind="result", payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))

    rig.asked(request())
    rig.asked(request(requestState="of another call", inputResponses={}))
    rig.asked(request(inputResponses={}))
    assert rig.check(request(requestState="s", inputResponses={})) == Pass("approved")
    rig.asked(request(requestState="s"))


@pytest.mark.requirement("team.approval")
def test_only_a_result_grants_a_retry() -> None:
    rig = Rig()
    interim = b'{"resultType":"input_required","requestState":"s"}'
    kinds: tuple[EndKind, ...] = ("error", "cancelled")
    for kind in kinds:
        first = request()
        rig.answer(first)
        rig.step.on_end(first, Outcome(kind=kind, payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))
        rig.asked(request(requestState="s", inputResponses={}))


def test_a_retry_with_a_state_of_ours_was_opened_on_its_way_and_has_none_in_its_body() -> None:
    rig = Rig()
    first = request()
    rig.answer(first)
    interim = b'{"resultType":"input_required","requestState":"sealed"}'
    rig.step.on_end(first, Outcome(kind="result", payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))
    assert rig.check(replace(request(), is_retry=True)) == Pass("approved")
    rig.asked(replace(request(), is_retry=True))


def test_a_lasting_yes_outlasts_the_questions_of_a_server() -> None:
    rig = Rig()
    first = request()
    rig.answer(first, "session")
    interim = b'{"resultType":"input_required","requestState":"s"}'
    rig.step.on_end(first, Outcome(kind="result", payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))
    assert rig.check(request()) == Pass("approved")


@pytest.mark.requirement("team.approval")
def test_unsolicited_input_responses_are_ordinary_parameters() -> None:
    rig = Rig()
    rig.answer(request(), "hour")
    rig.asked(request(inputResponses={"a": 1}))
    rig.answer(request(inputResponses={"a": 1}), "hour")
    assert rig.check(request(inputResponses={"a": 1})) == Pass("approved")
    rig.asked(request(inputResponses={"a": 2}))
    rig.asked(request(requestState="s"))


def test_of_calls_side_by_side_each_has_its_retry() -> None:
    rig = Rig()
    interim = b'{"resultType":"input_required","requestState":"s"}'
    rig.answer(request(), "hour")
    for _ in range(2):
        again = request()
        assert rig.check(again) == Pass("approved")
        rig.step.on_end(again, Outcome(kind="result", payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))
    for number in range(2):
        assert rig.check(request(requestState="s", inputResponses={"a": number})) == Pass("approved")
    rig.asked(request(requestState="s", inputResponses={"a": 3}))


def test_a_retry_that_comes_too_late_is_asked_about() -> None:
    rig = Rig()
    first = request()
    rig.answer(first)
    interim = b'{"resultType":"input_required","requestState":"s"}'
    rig.step.on_end(first, Outcome(kind="result", payload=(interim,), arrived=0.0, sent=0.0, ended=0.0))
    rig.now = WAITING_CALL_LIFETIME
    rig.asked(request(requestState="s"))


def test_awaited_retries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "MAX_APPROVED_RETRIES", 1)
    monkeypatch.setattr(approval, "MAX_APPROVALS", 1)
    approvals = Approvals(lambda: 0.0)
    for digest in ("a", "b", "b"):
        approvals.grant_retry("alice", digest)
    assert [approvals.take_retry("alice", digest) for digest in ("a", "b", "b")] == [False, True, False]


# ── clients that cannot be asked ──


def test_differences_are_shown_against_command_line_approvals_too() -> None:
    rig = Rig()
    rig.approvals.approve(referred(rig, request({"path": "/a"})))
    message = json.loads(bytes(rig.asked(request({"path": "/b"})).params))["message"]
    assert "/a" in message and "/b" in message, message


def referred(rig: Rig, about: GuardedRequest) -> str:
    denial = rig.asked(about).cannot_ask()
    assert isinstance(denial.data, dict)
    return str(denial.data["approval"])


def test_a_client_that_cannot_ask_is_told_how_to_allow_it() -> None:
    rig = Rig()
    id = referred(rig, request())
    assert f"mcp-workbench team approve {id}" in rig.asked(request()).cannot_ask().message
    (waiting,) = rig.approvals.waiting()
    assert waiting["id"] == id and waiting["call"] == "box/one/tool" and '"/a"' in str(waiting["arguments"])

    assert rig.approvals.approve(id) is not None
    assert not rig.approvals.waiting()
    rig.asked(request(principal="bob"))
    rig.asked(request({"path": "/b"}))
    assert rig.check(request()) == Pass("approved")
    rig.asked(request())


def test_an_approval_twice_or_too_late_is_none() -> None:
    rig = Rig()
    id = referred(rig, request())
    assert rig.approvals.approve(id) is not None
    assert rig.approvals.approve(id) is None
    assert rig.approvals.approve("0" * 10) is None
    later = referred(rig, request({"path": "/c"}))
    rig.now = WAITING_CALL_LIFETIME
    assert rig.approvals.approve(later) is None
    assert rig.check(request()) is not None and isinstance(rig.check(request()), Ask), "an approval expires too"


def test_an_approval_from_outside_may_last() -> None:
    rig = Rig()
    rig.approvals.approve(referred(rig, request()), 5.0)
    assert all(rig.check(request()) == Pass("approved") for _ in range(3))
    rig.now = 5.0
    rig.asked(request())


def test_calls_that_wait_are_bounded_for_each_principal() -> None:
    rig = Rig()
    ids = {referred(rig, request({"n": n})) for n in range(approval.MAX_WAITING_CALLS_PER_PRINCIPAL)}
    assert len(ids) == rig.told == approval.MAX_WAITING_CALLS_PER_PRINCIPAL
    assert referred(rig, request({"n": 0})) in ids, "the same call waits once"
    assert "too many" in rig.asked(request({"n": 99})).cannot_ask().message
    assert referred(rig, request(principal="bob"))


def test_approvals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "MAX_APPROVALS", 1)
    monkeypatch.setattr(approval, "MAX_REMEMBERED_CALLS", 1)
    rig = Rig()
    rig.answer(request({"a": 1}), "session")
    rig.answer(request({"a": 2}), "session")
    rig.asked(request({"a": 1}))


# ── what is shown ──


def test_the_question_shows_arguments_and_differences() -> None:
    rig = Rig()
    rig.answer(request({"path": "/a", "mode": 1, "old": True}))
    message = json.loads(bytes(rig.asked(request({"path": "/b", "mode": True, "new": [1]})).params))["message"]
    assert "box/one/tool" in message and '"path": "/b"' in message
    for line in ('/arguments/path: "/b", was "/a"', "/arguments/mode: true, was 1", "/arguments/new: new, [1]"):
        assert line in message
    assert "/arguments/old: left out, was true" in message


def test_nothing_is_hidden_in_the_question() -> None:
    hidden = 'x\u202e"\x1b[2J\u200b'
    text = shown(json.dumps({"a": hidden}, ensure_ascii=False).encode())
    assert text.isprintable() and "u001b" in text and "u202e" in text and "u200b" in text
    long = shown(b'"' + b"a" * 10_000 + b'"')
    assert "characters more" in long and len(long) < 4200
    assert "both" not in shown(b'{"a":1,"a":2}') and shown(b'{"a":1,"a":2}') == '{"a":1,"a":2}'


def test_a_line_break_cannot_add_lines_to_the_question() -> None:
    forged = "box/one/memo://a?\n\nIt will be sent as:\r\n{}"
    message = str(question(forged, b'{\n"a":1}', b'{"a\\tb":2}', has_session=True)["message"])
    lines = message.splitlines()
    assert lines[0].startswith("Allow this call of box/one/memo://a?\\n\\nIt will") and lines[3] == '{\\n"a":1}'
    assert len(lines) == 8 and "/a\\tb: left out, was 2" in lines


def test_differences_are_few_and_never_fail() -> None:
    many = differences(b"{}", json.dumps({str(n): n for n in range(50)}).encode())
    assert len(many) == 21 and many[-1] == "and 30 more"
    assert differences(b"{", b"{}") == ["they cannot be compared"]
    assert question("p", b"{}", b"{}", has_session=True)["message"].endswith("nothing")  # type: ignore[attr-defined]
    assert chosen(b'{"action":"accept","content":{"allow":"hour"}}', has_session=False) == "hour"


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        (b'{"com.example/force":"yes","progressToken":7,"traceparent":"00-1"}', '{"com.example/force":"yes"}'),
        (b'{"progressToken":7,"io.modelcontextprotocol/logLevel":"debug"}', None),
        (b"[1]", "[1]"),
    ],
)
def test_metadata_added_by_the_client_is_shown(meta: bytes, told: str | None) -> None:
    rig = Rig()
    message = json.loads(bytes(rig.asked(replace(request(), meta=Raw(meta))).params))["message"]
    assert ("`_meta`" in message) is (told is not None)
    assert told is None or message.endswith(told)


@pytest.mark.requirement("team.approval")
@pytest.mark.parametrize(
    ("approved", "later", "is_same"),
    [
        (b'{"com.example/force":"no"}', b'{"com.example/force":"yes"}', False),
        (b'{"com.example/force":"no"}', b"{}", False),
        (b'{"a":1}', b'{"a":1,"b":2}', False),
        (b'{"a":1}', b'{"a":1.0}', False),
        (b'{"a":1}', b'{"a":2,"a":1}', False),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', True),
        (b'{"a":1,"progressToken":1}', b'{"a":1,"progressToken":2,"traceparent":"00-1"}', True),
        (b'{"claudecode/toolUseId":"1","callId":"1"}', b'{"claudecode/toolUseId":"2","callId":"2"}', True),
        (b'{"io.modelcontextprotocol/logLevel":"debug"}', b"{}", True),
    ],
)
def test_an_approval_covers_the_metadata_that_the_client_adds(approved: bytes, later: bytes, is_same: bool) -> None:
    rig = Rig()
    rig.answer(replace(request(), meta=Raw(approved)), "hour")
    again = rig.check(replace(request(), meta=Raw(later)))
    assert (again == Pass("approved")) is is_same and (isinstance(again, Ask) is not is_same)


@pytest.mark.requirement("team.approval")
def test_a_question_that_is_cut_says_so_and_where_all_of_it_is() -> None:
    rig = Rig()
    long = request({"path": "/a" * 5000, "then": "rm -rf /"})
    held = rig.asked(long)
    message = json.loads(bytes(held.params))["message"]
    (waiting,) = rig.approvals.waiting()
    assert "too long for this question" in message and f"approve {waiting['id']} --show" in message
    assert "characters more (sha256 of all:" in message and "rm -rf" not in message
    found = rig.approvals.look_at(str(waiting["id"]))
    assert found is not None and found.whole == long.params
    assert rig.approvals.waiting(), "looking at it allows nothing"
    assert isinstance(held.answered(b'{"action":"decline"}'), Denial)
    assert not rig.approvals.waiting() and rig.approvals.look_at(str(waiting["id"])) is None
    short = json.loads(bytes(rig.asked(request()).params))["message"]
    assert "too long" not in short and not rig.approvals.waiting()


def test_a_declined_question_overrides_an_approval_at_the_command_line() -> None:
    rig = Rig()
    long = request({"path": "/a" * 5000})
    held = rig.asked(long)
    assert rig.approvals.approve(str(rig.approvals.waiting()[0]["id"])) is not None
    assert isinstance(held.answered(b'{"action":"decline"}'), Denial)
    rig.asked(long)


def test_a_call_that_is_too_large_to_be_kept_waits_without_its_end() -> None:
    rig = Rig()
    rig.asked(request({"path": "a" * approval.MAX_WAITING_CALL_BYTES}))
    found = rig.approvals.look_at(str(rig.approvals.waiting()[0]["id"]))
    assert found is not None and found.whole is None and "sha256 of all" in found.arguments
    assert found.arguments.isprintable() and len(found.arguments) < 4200


def test_only_the_denied_call_is_refused_and_the_refusal_names_its_author() -> None:
    rig = Rig()
    other = referred(rig, request({"path": "/b"}))
    id = referred(rig, request({"path": "/a"}))
    assert rig.approvals.deny(id, "ada (process 7)") is not None
    for _ in range(2):
        verdict = rig.check(request({"path": "/a"}))
        assert isinstance(verdict, Denial) and "`box/one/tool` was denied by ada (process 7)" in verdict.message
        assert verdict.data == {"rule": "policy[0]", "deniedBy": "ada (process 7)"}
    assert [each["id"] for each in rig.approvals.waiting()] == [other], "nothing waits for what was denied"
    rig.asked(request({"path": "/a"}, principal="bob"))
    rig.now += WAITING_CALL_LIFETIME
    rig.asked(request({"path": "/a"}))


def test_of_two_decisions_about_a_call_the_first_counts() -> None:
    rig = Rig()
    denied, approved = referred(rig, request({"path": "/a"})), referred(rig, request({"path": "/b"}))
    assert rig.approvals.deny(denied, "ada") is not None and rig.approvals.approve(approved, by="bob") is not None
    assert rig.approvals.approve(denied, by="bob") is None and rig.approvals.deny(approved, "ada") is None
    assert [str(rig.approvals.decided(id)) for id in (denied, approved)] == ["denied by ada", "approved by bob"]
    assert isinstance(rig.check(request({"path": "/a"})), Denial)
    assert rig.check(request({"path": "/b"})) == Pass("approved")


class Client:
    """Asks its user, who never answers."""

    def __init__(self) -> None:
        self.questions = 0
        self.cancelled = 0

    def can_ask_user(self) -> bool:
        return True

    async def ask_user(self, params: Raw) -> Raw | bytes | None:
        self.questions += 1
        try:
            await asyncio.Event().wait()
            return None
        finally:
            self.cancelled += 1


async def held(rig: Rig, client: Client, about: GuardedRequest) -> asyncio.Task[Any]:
    passage = Passage((rig.step,), about)
    assert passage.check() is HELD
    before = client.questions
    task = asyncio.ensure_future(passage.decided(client))
    while client.questions == before:
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("is_denied", [True, False])
async def test_a_call_that_its_client_asks_about_can_be_decided_elsewhere(is_denied: bool) -> None:
    rig, client = Rig(), Client()
    other = await held(rig, client, request({"path": "/b"}))
    call = await held(rig, client, request({"path": "/a"}))
    _, waiting = rig.approvals.waiting_calls()
    assert waiting.request is not None and waiting.request.item == "tool" and waiting.rule == "policy[0]"
    if is_denied:
        assert rig.approvals.deny(waiting.id, "ada") is not None
        verdict = await call
        assert isinstance(verdict, Denial) and "denied by ada" in verdict.message
    else:
        assert rig.approvals.approve(waiting.id, by="ada") is not None
        assert await call is None
        rig.asked(request({"path": "/a"}))
    assert client.cancelled == 1 and not other.done(), "its client need not answer any more; the other still asks"
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert rig.approvals.waiting_calls() == []


async def test_a_denial_counts_even_if_one_of_the_equal_calls_is_cancelled_at_that_moment() -> None:
    rig, client = Rig(), Client()
    first, second = [await held(rig, client, request()) for _ in range(2)]
    (waiting,) = rig.approvals.waiting_calls()
    while len(waiting.holders) < 2:
        await asyncio.sleep(0)
    # As when its client goes away: whoever holds it has not been resumed yet.
    waiting.holders[0].cancel()
    assert rig.approvals.deny(waiting.id, "ada") is not None
    assert isinstance(await second, Denial)
    await asyncio.gather(first, return_exceptions=True)
    assert isinstance(rig.check(request()), Denial)


async def test_of_equal_calls_held_side_by_side_one_approval_lets_one_pass() -> None:
    rig, client = Rig(), Client()
    calls = [await held(rig, client, request()) for _ in range(2)]
    for left in (1, 0):
        (waiting,) = rig.approvals.waiting_calls()
        assert rig.approvals.approve(waiting.id) is not None
        await asyncio.wait([call for call in calls if not call.done()], return_when=asyncio.FIRST_COMPLETED)
        assert sum(not call.done() for call in calls) == left
        while left and not rig.approvals.waiting_calls():
            await asyncio.sleep(0)
    assert [await call for call in calls] == [None, None]


async def test_rules_that_came_while_a_call_was_held_count_against_an_approval_elsewhere() -> None:
    rig, client = Rig(), Client()
    call = await held(rig, client, request())
    now = (PolicyRule(tools=("box",), then="deny"), PolicyRule(then="allow"))
    rig.in_force = Policy(now, Identities(), lambda *place: None, lambda *place: "")
    (waiting,) = rig.approvals.waiting_calls()
    rig.approvals.approve(waiting.id)
    verdict = await call
    assert isinstance(verdict, Denial) and verdict.rule == "policy[0]"
