"""What is remembered of decisions and roles: never more than what they depend on."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.steps import GuardedRequest, Subject
from mcp_workbench.team.identity.identities import Identities, Identity
from mcp_workbench.team.policy import policy, rules_in_force
from mcp_workbench.team.policy.rules_in_force import Policy, Role

ALLOW = PolicyRule(then="allow")


class Rig:
    """A policy, what it knows of users and tools, and how often it had to decide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rules: PolicyRule) -> None:
        self.identities = Identities()
        self.definition: Raw | None = None
        self.policy = Policy(rules, self.identities, lambda *place: self.definition, lambda *task: "drop")
        self.decided = 0
        self._decide = policy.decide
        monkeypatch.setattr(policy, "decide", self._counted)

    def _counted(self, *args: Any) -> policy.PolicyDecision:
        self.decided += 1
        return self._decide(*args)

    def then(self, about: Subject) -> str:
        return self.policy.decide(about).then

    def role_of(self, principal: str) -> Role | None:
        return self.policy.role_of(self.identities.of(principal))


def request(item: str = "drop", arguments: object = None, *, identity: Identity | None = None, **more: Any) -> Subject:
    body = json.dumps({"name": item, "arguments": arguments}).encode()[:-1]
    place = {"method": "tools/call", "toolbox": "box", "server": "db", **more}
    return GuardedRequest(principal="alice", item=item, client=b"{}", session=1, body=body, identity=identity, **place)


def test_the_same_request_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, PolicyRule(tools=("box/db/drop",), then="deny"), ALLOW)
    for _ in range(3):
        assert [rig.then(request(item)) for item in ("read", "drop")] == ["allow", "deny"]
    assert rig.decided == 2


def test_another_identity_of_the_same_user_is_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, PolicyRule(who=("group:guests",), tools=("box",), then="hide"), ALLOW)
    for groups, decision, is_seen in (((), "allow", True), (("guests",), "hide", False), ((), "allow", True)):
        identity = Identity(principal="alice", groups=frozenset(groups))
        rig.identities.remember(identity)
        assert rig.then(request()) == rig.then(request(identity=identity)) == decision
        assert (rig.role_of("alice") is None) is is_seen
    rig.identities.remember(Identity(principal="alice", toolboxes=("other",)))
    assert rig.then(request()) == "hide" and rig.role_of("alice") is not None


def test_a_changed_definition_is_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, PolicyRule(tools=("box",), destructive=True, then="deny"), ALLOW)
    for hint, decision in ((False, "allow"), (True, "deny"), (False, "allow")):
        rig.definition = Raw(json.dumps({"annotations": {"destructiveHint": hint}}).encode())
        assert rig.then(request()) == rig.then(request()) == decision
    assert rig.decided == 3
    rig.definition = None
    assert rig.then(request()) == "deny", "the worst is assumed"


def test_arguments_are_read_only_where_a_rule_looks_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (PolicyRule(tools=("box/db/drop",), arguments={"/table": "logs"}, then="allow"),)
    rig = Rig(monkeypatch, *rules, PolicyRule(tools=("box/db/drop",), then="deny"), ALLOW)
    read: list[bytes] = []
    decode = rules_in_force._decode_params

    def noted(params: bytes) -> Any:
        read.append(params)
        return decode(params)

    monkeypatch.setattr(rules_in_force, "_decode_params", noted)
    for _ in range(2):
        assert rig.then(request("read", {"table": "users"})) == "allow" and not read
    for table, decision in (("logs", "allow"), ("users", "deny"), ("logs", "allow")):
        assert rig.then(request("drop", {"table": table})) == decision
    assert len(read) == 3
    # As for what is kept of a call, whatever its arguments were.
    assert rig.then(Subject(principal="alice", method="tools/call", toolbox="box", server="db", item="drop")) == "allow"


def test_tasks_are_remembered_as_their_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, PolicyRule(tools=("box/db/drop",), then="deny"), ALLOW)
    assert rig.then(request("t-1", method="tasks/get")) == rig.then(request("t-2", method="tasks/get")) == "deny"
    assert rig.decided == 1


def test_nothing_is_decided_otherwise_than_without_remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (
        PolicyRule(who=("group:guests",), resources=("box/*/note:///*",), then="hide"),
        PolicyRule(tools=("box/db/*",), arguments={"/a": "1"}, then="deny"),
        PolicyRule(tools=("box/db/*",), read_only=False, then="ask"),
        PolicyRule(prompts=("box/db/p*",), then="deny"),
        ALLOW,
    )
    identities = [Identity(principal="alice"), Identity(principal="alice", groups=frozenset({"guests"}))]
    methods = ("tools/call", "prompts/get", "resources/read", "completion/complete")
    rig = Rig(monkeypatch, *rules)
    every = list(itertools.product(identities, methods, ("p", "note:///a", "note:///%61"), ({"a": 1}, {"a": 2})))
    for _ in range(2):
        for identity, method, item, arguments in every:
            about = request(item, arguments, identity=identity, method=method)
            fresh = Policy(rules, Identities(), lambda *place: None, lambda *task: "")
            assert rig.policy.decide(about) == fresh.decide(about)
            is_call = method in ("tools/call", "prompts/get")
            read = json.dumps(arguments).encode() if is_call else None
            kind = "resources" if method == "completion/complete" else None
            assert rig.policy.decide(about) == rig._decide(rig.policy.rules, identity, about, None, read, kind)


def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_in_force, "MAX_DECISIONS", 5)
    monkeypatch.setattr(rules_in_force, "MAX_ROLES", 5)
    rig = Rig(monkeypatch, PolicyRule(tools=("box/db/drop",), then="deny"), ALLOW)
    for number in range(20):
        identity = Identity(principal=f"user {number}")
        rig.identities.remember(identity)
        assert rig.then(request(identity=identity)) == "deny" and rig.role_of(f"user {number}") is None
        assert len(rig.policy._decisions) <= 5 and len(rig.policy._roles) <= 5
    rig.policy._decisions.clear()
    assert rig.then(request("x" * 501)) == "allow" and not rig.policy._decisions, "it is the client's data"
