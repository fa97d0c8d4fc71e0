"""The rules in force judge requests as they arrive: with their params, as JSON."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.steps import Denial, GuardedRequest, Pass
from mcp_workbench.team.identity.identities import Identities
from mcp_workbench.team.policy.rules_in_force import Policy, PolicyStep

NOT_BELOW_ETC = (PolicyRule(tools=("*",), arguments={"/path": "/etc/*"}, then="deny"), PolicyRule(then="allow"))


def step(rules: tuple[PolicyRule, ...]) -> PolicyStep:
    return PolicyStep(Policy(rules, Identities(), lambda *place: None, lambda *place: ""))


def request(params: bytes, method: str = "tools/call", item: str = "tool") -> GuardedRequest:
    return GuardedRequest(
        principal="alice",
        method=method,
        toolbox="box",
        server="one",
        item=item,
        client=b"{}",
        session=1,
        body=params[:-1],
    )


@pytest.mark.parametrize(
    ("params", "is_allowed"),
    [
        (b'{"name":"tool","arguments":{"path":"/home/x"}}', True),
        (b'{"name":"tool","arguments":{}}', True),
        (b'{"name":"tool","arguments":null}', True),
        (b'{"name":"tool"}', True),
        (b'{"name":"tool","arguments":{"path":"/etc/passwd"}}', False),
        (b'{"name":"tool","arguments":{"path":"/home/x","path":"/etc/passwd"}}', False),
        (b'{"name":"tool","arguments":{"path":"/etc/passwd","path":"/home/x"}}', False),
        (b'{"name":"tool","arguments":{"path":}}', False),
        (b'{"name":"tool","arguments":"{\\"path\\":\\"/etc/passwd\\"}"}', False),
        (b'{"name":"tool","arguments":[{"path":"/etc/passwd"}]}', False),
    ],
)
def test_a_rule_about_arguments_judges_those_of_the_request(params: bytes, is_allowed: bool) -> None:
    verdict = step(NOT_BELOW_ETC).check(request(params))

    assert isinstance(verdict, Pass if is_allowed else Denial)
    assert verdict.rule == f"policy[{int(is_allowed)}]"


def test_a_list_of_tasks_that_is_passed_on_unread_is_judged() -> None:
    judging = step((PolicyRule(who=("bob",), then="allow"), PolicyRule(then="deny")))

    assert isinstance(judging.check(request(b"{}", "tasks/list", item="tasks/list")), Denial)
    # Here each of the tasks is.
    assert judging.check(request(b"{}", "tasks/list", item="")) is None
