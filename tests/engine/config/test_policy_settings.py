"""Mistakes in `policy` and `limits` are all told, each where it stands; a policy with one is not in force at all."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule
from mcp_workbench.engine.config.validate import validate

SERVERS = {"mcpServers": {"one": {"command": "none"}}}
DEFAULT = {"then": "allow"}


def read(**settings: Any) -> WorkbenchConfig:
    config, problems = validate({**SERVERS, **settings}, "file.json", {})
    assert not problems
    assert config is not None
    return config


def mistakes(**settings: Any) -> list[str]:
    config, problems = validate({**SERVERS, **settings}, "file.json", {})
    assert config is None
    return [f"{problem.path_in_file}: {problem.found}" for problem in problems]


def test_rules_are_read_in_their_order() -> None:
    written = [
        {"who": ["alice", "group:ops"], "tools": ["a/b/*"], "then": "allow"},
        {"prompts": ["a"], "resources": ["a/b/file:///x/*"], "then": "hide"},
        {"when": {"readOnly": False, "arguments": {"/a": "b"}}, "then": "ask"},
        {"then": "deny"},
    ]

    assert read(policy=written).policy == (
        PolicyRule(who=("alice", "group:ops"), tools=("a/b/*",), then="allow"),
        PolicyRule(prompts=("a",), resources=("a/b/file:///x/*",), then="hide"),
        PolicyRule(read_only=False, arguments={"/a": "b"}, then="ask"),
        PolicyRule(then="deny"),
    )


def test_without_a_policy_there_are_no_rules() -> None:
    assert read().policy == () == read(policy=[]).policy
    assert read().limits == ()


def test_every_mistake_is_reported() -> None:
    written = [
        {"who": "alice", "then": "allow"},
        {"tools": [], "then": "alow"},
        {"tools": ["a//b"], "readOnly": True},
        {"when": {"arguments": {"path": "x"}, "destructiv": True}, "then": "deny"},
        7,
    ]

    told = mistakes(policy=written)
    assert [each.partition(": ")[0] for each in told] == [
        "$.policy[0].who",
        "$.policy[1].tools",
        "$.policy[1].then",
        "$.policy[2].tools[0]",
        "$.policy[2].readOnly",
        "$.policy[2]",
        "$.policy[3].when.arguments.path",
        "$.policy[3].when.destructiv",
        "$.policy[4]",
    ]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"when": {"readOnly": True}, "prompts": ["*"], "then": "deny"}, "a condition on annotations"),
        ({"when": {"arguments": {"/a": "b"}}, "resources": ["*"], "then": "deny"}, "a condition on arguments"),
        ({"when": {"arguments": {"/a": "b"}}, "then": "hide"}, "`hide` with a condition on arguments"),
        ({"when": [], "then": "deny"}, "found an"),
    ],
)
def test_conditions_that_nothing_can_meet_are_mistakes(rule: object, found: str) -> None:
    (told,) = mistakes(policy=[rule, DEFAULT])
    assert found in told


def test_the_default_has_to_be_stated() -> None:
    (told,) = mistakes(policy=[{"tools": ["a"], "then": "deny"}])
    assert told == "$.policy[0]: the last rule has conditions"


@pytest.mark.parametrize("policy", ["allow", {"then": "allow"}, [DEFAULT] * 1001])
def test_a_policy_is_a_list_of_some_rules(policy: object) -> None:
    assert len(mistakes(policy=policy)) == 1


def test_limits_are_read() -> None:
    written = [
        {"who": ["*"], "callsInFlight": 4, "callsPerMinute": 60},
        {"servers": ["a/b"], "bytesPerMinute": 1000, "callSeconds": 2.5},
    ]

    assert read(limits=written).limits == (
        LimitRule(who=("*",), calls_in_flight=4, calls_per_minute=60),
        LimitRule(servers=("a/b",), bytes_per_minute=1000, call_seconds=2.5),
    )


@pytest.mark.parametrize(
    ("limit", "where"),
    [
        ({"callsInFlight": 1}, "$.limits[0]: found neither `who` nor `servers`"),
        ({"who": ["*"]}, "$.limits[0]: found nothing that is limited"),
        ({"who": ["*"], "callsInFlight": 0}, "$.limits[0].callsInFlight: found a number `0`"),
        ({"who": ["*"], "callsInflight": 1}, "$.limits[0].callsInflight: unknown key `callsInflight`"),
        ("none", "$.limits[0]: found `none`"),
    ],
)
def test_mistakes_in_limits_are_reported(limit: object, where: str) -> None:
    assert mistakes(limits=[limit]) == [where]
