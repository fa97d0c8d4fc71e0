"""Rules, limits and approvals against the same said again in plain Python, on random rules and random events; and what
every face lists and lets through against both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.config.model import DEFAULT_MAX_DEFINITION_BYTES, FaceName
from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule, Then
from mcp_workbench.engine.steps import Ask, Denial, EndKind, GuardedRequest, Outcome, Pass
from mcp_workbench.team.identity.identities import Identities, Identity
from mcp_workbench.team.policy import approval
from mcp_workbench.team.policy.approval import Approvals, ApprovalStep
from mcp_workbench.team.policy.limit_step import LimitStep
from mcp_workbench.team.policy.rules_in_force import Policy, PolicyStep, RoleVisibility
from tests.bridge import fake_server
from tests.bridge.in_process import in_process_workbench, until
from tests.support.examples import examples

Json = dict[str, Any]

PRINCIPALS = {"alice": frozenset({"staff"}), "bob": frozenset[str](), "bert": frozenset({"staff", "guests"})}
BOXES, SERVERS = ("box", "other"), ("one", "two")
KINDS: dict[str, tuple[str, str]] = {
    "tools": ("tools/call", "t"),
    "prompts": ("prompts/get", "p"),
    "resources": ("resources/read", "note:"),
}
STRICTNESS = ["allow", "ask", "deny", "hide"]
HINTS = {"t1": {"readOnlyHint": True}, "t2": {"destructiveHint": False}, "t3": {}}


def oracle_fits(glob: str, text: str) -> bool:
    """Only what is drawn below: a text, or the start of one."""
    return text.startswith(glob[:-1]) if glob.endswith("*") else text == glob


class OraclePolicy:
    """First match decides; rules about annotations only tighten."""

    def __init__(self, rules: tuple[PolicyRule, ...]) -> None:
        self._rules = rules

    def decide(
        self, who: Identity, kind: str, box: str, server: str, item: str, arguments: Json | None
    ) -> tuple[str, str]:
        if who.toolboxes is not None and box not in who.toolboxes:
            return "hide", "key"
        if not self._rules:
            return "allow", ""
        return self._strictest(
            [
                (rule, f"policy[{number}]")
                for number, rule in enumerate(self._rules)
                if self._matches(rule, who, kind, f"{box}/{server}/{item}", arguments)
            ]
        )

    def _strictest(self, matching: list[tuple[PolicyRule, str]]) -> tuple[str, str]:
        if not matching:
            return "deny", "policy"
        (rule, name), *others = matching
        if rule.read_only is None and rule.destructive is None:
            return rule.then, name
        later = self._strictest(others)
        return (rule.then, name) if STRICTNESS.index(rule.then) >= STRICTNESS.index(later[0]) else later

    def _matches(self, rule: PolicyRule, who: Identity, kind: str, path: str, arguments: Json | None) -> bool:
        names = {who.principal, *(f"group:{group}" for group in who.groups)}
        if rule.who and not any(
            oracle_fits(glob, name) for glob in rule.who for name in names if _same_kind(glob, name)
        ):
            return False
        patterns = {"tools": rule.tools, "prompts": rule.prompts, "resources": rule.resources}
        if any(each is not None for each in patterns.values()) and not any(
            all(map(oracle_fits, glob.split("/", 2), path.split("/", 2))) for glob in patterns[kind] or ()
        ):
            return False
        hints = HINTS.get(path.rpartition("/")[2], {}) if kind == "tools" else {}
        is_read_only = bool(hints.get("readOnlyHint"))
        is_destructive = not is_read_only and hints.get("destructiveHint", True)
        for wanted, found in ((rule.read_only, is_read_only), (rule.destructive, is_destructive)):
            if wanted is not None and (kind != "tools" or wanted != found):
                return False
        if rule.arguments:
            if kind == "resources":
                return False
            if arguments is None:
                return rule.then in ("allow", "ask")
            return all(str(arguments.get(name[1:])) == glob for name, glob in rule.arguments.items())
        return True


def _same_kind(glob: str, name: str) -> bool:
    return glob.startswith("group:") == name.startswith("group:")


# ── what is drawn ──

thens: st.SearchStrategy[Then] = st.sampled_from(["allow", "ask", "deny", "hide"])
whos = st.lists(st.sampled_from(["alice", "bob", "b*", "group:staff", "group:g*", "*"]), max_size=2).map(tuple)


def paths(start: str) -> st.SearchStrategy[tuple[str, ...] | None]:
    path = st.tuples(
        st.sampled_from([*BOXES, "b*"]), st.sampled_from([*SERVERS, "*"]), st.sampled_from(["*", *_items(start)])
    ).map("/".join)
    return st.none() | st.lists(path | st.sampled_from(BOXES), min_size=1, max_size=2).map(tuple)


def _items(start: str) -> list[str]:
    return [f"{start}{number}" for number in (1, 2, 3)]


rules = st.lists(
    st.builds(
        PolicyRule,
        then=thens,
        who=whos,
        tools=paths("t"),
        prompts=paths("p"),
        resources=paths("note:"),
        read_only=st.sampled_from([None, None, None, True, False]),
        destructive=st.sampled_from([None, None, None, True, False]),
        arguments=st.sampled_from([{}, {}, {"/a": "1"}, {"/a": "2"}]),
    ),
    max_size=5,
).map(tuple)
identities = st.sampled_from(sorted(PRINCIPALS)).flatmap(
    lambda name: st.builds(
        Identity,
        principal=st.just(name),
        groups=st.just(PRINCIPALS[name]),
        toolboxes=st.sampled_from([None, None, ("box",), ("box", "other")]),
    )
)


def request(
    who: Identity, kind: str, box: str, server: str, item: str, arguments: Json, session: int = 1
) -> GuardedRequest:
    member = "uri" if kind == "resources" else "name"
    body = json.dumps({member: item, **({} if kind == "resources" else {"arguments": arguments})}).encode()[:-1]
    return GuardedRequest(
        principal=who.principal,
        method=KINDS[kind][0],
        toolbox=box,
        server=server,
        item=item,
        client=b"{}",
        session=session,
        body=body,
        identity=who,
    )


def definition(name: str) -> Any:
    return json.dumps({"name": name, "annotations": HINTS.get(name, {}), "inputSchema": {"type": "object"}}).encode()


def policy_of(written: tuple[PolicyRule, ...]) -> Policy:
    return Policy(written, Identities(), lambda principal, box, server, name: definition(name), lambda *place: "")


class _Place:
    def __init__(self, toolbox: str, name: str) -> None:
        self.toolbox = toolbox
        self.name = name


def everything() -> Iterator[tuple[str, str, str, str]]:
    for kind, (_, start) in KINDS.items():
        for box in BOXES:
            for server in SERVERS:
                for item in _items(start):
                    yield kind, box, server, item


@given(rules, identities, st.sampled_from([{"a": "1"}, {"a": "2"}, {}]))
def test_every_request_is_decided_and_every_item_shown_as_the_oracle_says(
    written: tuple[PolicyRule, ...], who: Identity, arguments: Json
) -> None:
    policy, oracle = policy_of(written), OraclePolicy(written)
    step, visibility = PolicyStep(policy), RoleVisibility(policy, who)
    for kind, box, server, item in everything():
        about = request(who, kind, box, server, item, arguments)
        then, rule = oracle.decide(who, kind, box, server, item, None if kind == "resources" else arguments)
        decision = policy.decide(about)
        assert (decision.then, decision.rule) == (then, rule)
        verdict = step.check(about)
        assert isinstance(verdict, Denial) is (then in ("deny", "hide"))
        assert (verdict.rule if isinstance(verdict, Denial) else "") == (rule if isinstance(verdict, Denial) else "")
        place, said = _Place(box, server), definition(item)
        is_shown = visibility.shows(place, kind, item, said)
        assert is_shown is (oracle.decide(who, kind, box, server, item, None)[0] != "hide")
        # What is said of a server before it is known must hold for everything that it turns out to have.
        assert visibility.may_show(place) or not is_shown
        assert visibility.may_show_tools(place) or not is_shown or kind != "tools"
        assert visibility.may_hide(place, kind) or is_shown or who.toolboxes is not None
        # Hidden is what nobody may call, whatever the arguments.
        assert is_shown or then in ("deny", "hide")


# ── limits ──


class OracleLimits:
    """A list of everything that happened."""

    def __init__(self, limits: tuple[LimitRule, ...]) -> None:
        self._limits = limits
        # Which limit counted whom, when, how many calls and bytes; and who is in flight.
        self._events: list[tuple[int, tuple[str, str], int, int, int]] = []
        self._in_flight: list[tuple[GuardedRequest, int, tuple[str, str]]] = []

    def check(self, about: GuardedRequest, now: float) -> tuple[str, int] | None:
        """The rule that refuses it, and after how many seconds to try again."""
        counted = []
        for number, limit in enumerate(self._limits):
            key = self._key(limit, about)
            if key is None:
                continue
            recent = [each for each in self._events if each[:2] == (number, key) and int(now) - each[2] < 60]
            name = f"limits[{number}]"
            flying = sum(each[1:] == (number, key) for each in self._in_flight)
            if limit.calls_in_flight is not None and flying >= limit.calls_in_flight:
                return name, 1
            for most, amount, used in (
                (limit.calls_per_minute, 1, [(second, count) for _, _, second, count, _ in recent]),
                (limit.bytes_per_minute, len(about.body), [(second, size) for _, _, second, _, size in recent]),
            ):
                if most is not None and sum(count for _, count in used) + amount > most:
                    oldest = min((second for second, count in used if count), default=None)
                    return name, 1 if oldest is None else oldest + 60 - int(now)
            counted.append((number, key))
        for number, key in counted:
            self._events.append((number, key, int(now), 1, len(about.body)))
            self._in_flight.append((about, number, key))
        return None

    def end(self, about: GuardedRequest, size: int, now: float) -> None:
        for each in [each for each in self._in_flight if each[0] is about]:
            self._in_flight.remove(each)
            self._events.append((each[1], each[2], int(now), 0, size))

    def _key(self, limit: LimitRule, about: GuardedRequest) -> tuple[str, str] | None:
        if limit.who is not None and not any(oracle_fits(glob, about.principal) for glob in limit.who):
            return None
        place = f"{about.toolbox}/{about.server}"
        if limit.servers is not None and not any(
            all(map(oracle_fits, glob.split("/"), place.split("/"))) for glob in limit.servers
        ):
            return None
        return ("" if limit.who is None else about.principal, "" if limit.servers is None else place)


limits = st.lists(
    st.builds(
        LimitRule,
        who=st.none() | st.lists(st.sampled_from(["alice", "b*", "*"]), min_size=1, max_size=2).map(tuple),
        servers=st.none() | st.lists(st.sampled_from(["box/one", "box/*", "other"]), min_size=1, max_size=2).map(tuple),
        calls_in_flight=st.none() | st.integers(1, 3),
        calls_per_minute=st.none() | st.integers(1, 4),
        bytes_per_minute=st.none() | st.integers(60, 300),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
events = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "call", "end", "wait"]),
        st.sampled_from(sorted(PRINCIPALS)),
        st.sampled_from(SERVERS),
        st.integers(0, 70),
    ),
    max_size=40,
)


@examples(200)
@given(limits, events)
def test_every_request_is_counted_and_refused_as_the_oracle_says(
    written: tuple[LimitRule, ...], happens: list[tuple[str, str, str, int]]
) -> None:
    now = 1000.25
    step, oracle = LimitStep(written, Identities(), lambda: now), OracleLimits(written)
    flying: list[GuardedRequest] = []
    for what, principal, server, number in happens:
        if what == "wait":
            now += number / 4 if number < 40 else number
        elif what == "call":
            about = request(Identity(principal=principal), "tools", "box", server, "t1", {"a": "x" * number})
            refused = oracle.check(about, now)
            verdict = step.check(about)
            assert isinstance(verdict, Denial) is (refused is not None)
            if isinstance(verdict, Denial) and refused is not None:
                assert verdict.rule == refused[0]
                assert verdict.data == {"rule": refused[0], "retryAfterSeconds": refused[1]}
            else:
                flying.append(about)
        elif flying:
            about = flying.pop(number % len(flying))
            oracle.end(about, number, now)
            step.on_end(about, Outcome("result", (b"x" * number,), now, now, now, size=number))


# ── approvals ──


class OracleApprovals:
    def __init__(self) -> None:
        # Who may make which call, in which session (0: any), until when.
        self.granted: list[tuple[str, str, int, float]] = []

    def passes(self, about: GuardedRequest, now: float) -> bool:
        call = (about.principal, about.params.decode())
        return any(each[:2] == call and each[2] in (0, about.session) and now < each[3] for each in self.granted)

    def answered(self, about: GuardedRequest, answer: str, now: float) -> bool:
        until_when = {"session": (about.session, float("inf")), "hour": (0, now + approval.APPROVAL_LIFETIME)}
        if answer in until_when:
            # The latest answer counts.
            call = (about.principal, about.params.decode())
            self.granted = [each for each in self.granted if each[:2] != call]
            self.granted.append((*call, *until_when[answer]))
        return answer in ("once", *until_when)


answers = st.sampled_from(["once", "session", "hour", "never", ""])
calls = st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from(["1", "2"]), st.integers(1, 2), answers)
waits = st.sampled_from([1.0, 60.0, approval.APPROVAL_LIFETIME - 1])
ends: st.SearchStrategy[EndKind] = st.sampled_from(["result", "error", "cancelled"])


@given(st.lists(st.tuples(calls, waits, ends), max_size=20))
def test_every_call_is_asked_about_unless_the_oracle_knows_that_it_was_approved(
    happens: list[tuple[tuple[str, str, int, str], float, EndKind]],
) -> None:
    now = 0.0
    written = (
        PolicyRule(who=("carol",), then="deny"),
        PolicyRule(tools=("box",), then="ask"),
        PolicyRule(then="allow"),
    )
    recorded: list[Json] = []
    approvals, oracle = Approvals(lambda: now), OracleApprovals()
    step = ApprovalStep(
        policy_of(written), approvals, lambda kind, /, **fields: recorded.append({"kind": kind, **fields})
    )
    interim = b'{"resultType":"input_required","requestState":"s"}'
    for (principal, value, session, answer), seconds, end in happens:
        about = request(Identity(principal=principal), "tools", "box", "one", "t1", {"a": value}, session)
        verdict = step.check(about)
        assert isinstance(verdict, Ask) is not oracle.passes(about, now)
        if isinstance(verdict, Ask):
            said = {"action": "accept", "content": {"allow": answer}} if answer else {"action": "decline"}
            is_approved = oracle.answered(about, answer, now)
            verdict = verdict.answered(json.dumps(said).encode())
            assert recorded[-1]["kind"] == "approval" and recorded[-1]["rule"] == "policy[1]"
            assert recorded[-1]["decision"] == ("passed" if is_approved else "denied")
            assert (verdict == Pass("approved")) is is_approved
        if verdict == Pass("approved"):
            step.on_end(about, Outcome(end, (interim,), now, now, now))
            # A retry of this call passes once, and only if its server asked for it in a result.
            again = request(Identity(principal=principal), "tools", "box", "one", "t1", {"a": value}, session)
            retry = _retried(again)
            assert isinstance(step.check(retry), Ask) is (end != "result")
            assert isinstance(step.check(_retried(again)), Ask)
        now += seconds


def _retried(about: GuardedRequest) -> GuardedRequest:
    from msgspec.structs import replace

    return replace(about, body=about.body + b',"requestState":"s","inputResponses":{}')


# ── what faces make of it ──

HUGE = "x" * DEFAULT_MAX_DEFINITION_BYTES
TOOLS = [{"name": name, "annotations": HINTS[name], "inputSchema": {"type": "object"}} for name in ("t1", "t2")]
OVERSIZED = {"name": "t3", "description": HUGE, "inputSchema": {"type": "object"}}
FACES: tuple[FaceName, ...] = ("flat", "proxy", "dynamic")


async def _seen_and_called(face: FaceName, written: tuple[PolicyRule, ...], principal: str) -> None:
    oracle, who = OraclePolicy(written), Identity(principal=principal)
    eras = dict.fromkeys(SERVERS, "legacy")
    async with in_process_workbench("", servers=eras, face=face, policy=written) as workbench:
        client = workbench.client("legacy", {}, principal)
        if face != "flat":
            opening = client.send_request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
            await until(lambda: opening.answer is not None)
        listing = client.send_request("tools/list")
        await until(lambda: listing.answer is not None)
        told = json.dumps([message for message in client.received if "method" not in message])
        for server in SERVERS:
            for name in ("t1", "t2", "t3"):
                then, _ = oracle.decide(who, "tools", "box", server, name, None)
                if then == "hide" and all(
                    oracle.decide(who, "tools", "box", each, name, None)[0] == "hide" for each in SERVERS
                ):
                    assert name not in told, "it is mentioned nowhere"
            for name in ("t1", "t2"):
                await _call(workbench, client, face, oracle, who, server, name)


async def _call(
    workbench: Any, client: Any, face: FaceName, oracle: OraclePolicy, who: Identity, server: str, name: str
) -> None:
    then, _ = oracle.decide(who, "tools", "box", server, name, {"a": "1"})
    flat = f"box__{server}_{name}" if face == "dynamic" else f"box:{server}:{name}"
    named: Json = {"name": flat, "arguments": {"a": "1"}}
    if face == "proxy":
        path = {"toolbox": "box", "server": server, "tool": name}
        named = {"name": "use_tool", "arguments": {"tool": path, "arguments": {"a": "1"}}}
    call = client.send_request("tools/call", named)
    await until(lambda: call.answer is not None or bool(workbench.unanswered()))
    sent = workbench.unanswered()
    if then == "allow":
        assert [each["params"]["name"] for each in sent] == [name]
        (fake,) = [each for each in workbench.gateway.fake_servers if each.open_calls()]
        assert fake.connection.config.name == server
        fake.reply(sent[0], {"content": []})
        assert call.result["content"] == []
    else:
        assert not sent, f"`{then}` reaches no server"
        assert "error" in call.answer or call.result["isError"]


@pytest.mark.parametrize("face", FACES)
@settings(parent=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules, st.sampled_from(sorted(PRINCIPALS)))
def test_every_face_shows_and_passes_exactly_as_the_oracle_allows(
    monkeypatch: pytest.MonkeyPatch, face: FaceName, written: tuple[PolicyRule, ...], principal: str
) -> None:
    monkeypatch.setitem(fake_server.LISTS, "tools/list", {"tools": [*TOOLS, OVERSIZED]})
    # Groups come from an identity provider, and there is none here.
    plain = tuple(rule for rule in written if not any(each.startswith("group:") for each in rule.who))
    asyncio.run(_seen_and_called(face, plain, principal))
