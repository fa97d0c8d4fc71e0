"""Rules that can never take effect are named, with the reason; those that may are not."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.team.policy.policy import made_ready
from mcp_workbench.team.policy.policy_findings import KnownOffers, never_matching

ALLOW, DENY = PolicyRule(then="allow"), PolicyRule(then="deny")
KNOWN: KnownOffers = {
    ("work", "github"): {"tools": {"get_issue": 1, "delete_repo": 1}, "prompts": {}, "resources": {}},
    ("home", "files"): None,
}


def found(*rules: PolicyRule) -> list[str]:
    return never_matching(made_ready(rules), KNOWN)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([ALLOW, DENY], "$.policy[1] can never take effect: $.policy[0] matches everything"),
        (
            [PolicyRule(tools=("work",), then="deny"), PolicyRule(tools=("work/github/get_*",), then="allow"), DENY],
            "$.policy[1]",
        ),
        (
            [PolicyRule(who=("a", "b"), then="deny"), PolicyRule(who=("a",), tools=("*",), then="allow"), DENY],
            "$.policy[1]",
        ),
        ([PolicyRule(tools=("worm",), then="deny"), ALLOW], "no toolbox is named `worm`; did you mean `work`?"),
        (
            [PolicyRule(tools=("work/gitub",), then="deny"), ALLOW],
            "no server of toolbox `work` is named `gitub`; did you mean `github`?",
        ),
        (
            [PolicyRule(tools=("work/github/get_isue",), then="deny"), ALLOW],
            "no tool of `work/github` is named `get_isue`",
        ),
        ([PolicyRule(read_only=True, then="allow"), DENY], "it would loosen what follows"),
    ],
)
def test_a_rule_that_can_never_take_effect_is_named(rules: list[PolicyRule], said: str) -> None:
    (told,) = found(*rules)
    assert said in told


@pytest.mark.parametrize(
    "rules",
    [
        [PolicyRule(tools=("work/github/get_*",), then="allow"), DENY],
        [PolicyRule(tools=("home/files/anything",), then="allow"), DENY],
        [PolicyRule(resources=("work/github/x://*",), then="hide"), ALLOW],
        [PolicyRule(who=("a",), then="deny"), PolicyRule(who=("b",), then="deny"), ALLOW],
        [PolicyRule(tools=("work",), destructive=True, then="ask"), PolicyRule(tools=("work",), then="allow"), DENY],
        [
            PolicyRule(tools=("work",), arguments={"/a": "b"}, then="deny"),
            PolicyRule(tools=("work",), then="allow"),
            DENY,
        ],
        [PolicyRule(tools=("*",), prompts=("*",), resources=("*",), then="allow"), DENY],
        [PolicyRule(tools=("work",), then="deny"), PolicyRule(tools=("work", "home"), then="allow"), DENY],
    ],
)
def test_a_rule_that_may_take_effect_is_not(rules: list[PolicyRule]) -> None:
    assert found(*rules) == []
