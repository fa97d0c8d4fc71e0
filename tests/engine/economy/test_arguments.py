from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from mcp_workbench.engine.economy.arguments import Checked, check
from tests.engine.economy.schemas import SCHEMAS, VALUES
from tests.support.examples import examples

ISSUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "owner": {"type": "string", "minLength": 1},
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "state": {"type": "string", "enum": ["open", "closed"]},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "milestone": {"$ref": "#/$defs/Milestone"},
        "due": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["owner", "title"],
    "additionalProperties": False,
    "$defs": {"Milestone": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}},
}


def told(**arguments: object) -> list[str]:
    checked = check({"owner": "o", "title": "t", **arguments}, ISSUE)
    assert checked.skipped is None
    return [str(problem) for problem in checked.problems]


def test_good_arguments_have_no_problems() -> None:
    assert told(labels=["bug"], state="open", priority=3, milestone={"number": 1}, due=None) == []


def test_missing_argument_names_the_unknown_one_sent() -> None:
    checked = check({"owner": "o", "titel": "t"}, ISSUE)
    missing, unknown = checked.problems
    assert missing.where == "$" and "`title`" in missing.what and "`titel`" in missing.what
    assert (unknown.where, unknown.nearest) == ("$.titel", ("title",))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"owner": 5}, "$.owner: expected string, got `5`."),
        ({"owner": ""}, "$.owner: expected at least 1 character, got 0."),
        ({"labels": "bug"}, '$.labels: expected array, got `"bug"`.'),
        (
            {"labels": '["bug"]'},
            '$.labels: expected array, got `"[\\"bug\\"]"`; send the value itself, not its JSON text.',
        ),
        ({"labels": ["a", 1]}, "$.labels[1]: expected string, got `1`."),
        ({"labels": ["a", "b", "c"]}, "$.labels: expected at most 2 items, got 3."),
        ({"state": "opened"}, '$.state: expected one of `"open"`, `"closed"`, got `"opened"`. Did you mean `open`?'),
        ({"priority": 9}, "$.priority: expected at most 5, got 9."),
        ({"priority": True}, "$.priority: expected integer, got `true`."),
        ({"priority": 1.5}, "$.priority: expected integer, got `1.5`."),
        ({"milestone": {}}, "$.milestone: `number` is missing."),
        ({"milestone": {"number": "1"}}, '$.milestone.number: expected integer, got `"1"`.'),
        ({"due": 5}, "$.due: expected string|null, got `5`."),
    ],
)
def test_problem_has_place_and_reason(arguments: dict[str, object], problem: str) -> None:
    assert told(**arguments) == [problem]


def test_the_alternative_that_was_meant_is_the_one_reported() -> None:
    schema = {"properties": {"to": {"oneOf": [{"type": "string"}, ISSUE["$defs"]["Milestone"]]}}}
    assert [problem.where for problem in check({"to": {"number": "x"}}, schema).problems] == ["$.to.number"]


def test_a_whole_number_written_as_a_fraction_is_an_integer() -> None:
    assert told(priority=2.0) == []


def test_limits_of_draft_four_are_understood() -> None:
    schema = {"properties": {"a": {"minimum": 0, "exclusiveMinimum": True}}}
    assert len(check({"a": 0}, schema).problems) == 1
    assert check({"a": 1}, schema).problems == ()


def test_null_passes_where_the_schema_says_nullable() -> None:
    assert check({"a": None}, {"properties": {"a": {"type": "string", "nullable": True}}}).problems == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.com/my-dialect"},
        {"properties": {"a": {"$ref": "https://example.com/other.json"}}},
        {"properties": {"a": {"$ref": "#anchor"}}},
        {"properties": {"a": {"$dynamicRef": "#node"}}},
        {"properties": {"a": {"$id": "inner", "type": "number"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"$ref": "#"},
        "no schema",
    ],
)
def test_unusual_schemas_are_not_checked(schema: object) -> None:
    checked = check({"a": "text"}, schema)
    assert checked.problems == ()
    assert checked.skipped


def test_too_much_work_ends_unchecked() -> None:
    schema: dict[str, Any] = {"type": "number"}
    for _ in range(30):
        schema = {"anyOf": [schema, schema]}
    checked = check("text", schema)
    assert checked.skipped and not checked.problems


def test_deep_arguments_end_unchecked() -> None:
    value: object = 1
    for _ in range(200):
        value = [value]
    assert check(value, {"items": {"$ref": "#"}}).skipped


@pytest.mark.parametrize("keyword", ["pattern", "format", "not", "if", "contains", "propertyNames", "unevaluatedItems"])
def test_keywords_beyond_this_check_never_stop_a_call(keyword: str) -> None:
    assert check({"a": "x"}, {"properties": {"a": {keyword: {"const": "never"}}}}).problems == ()


@pytest.mark.parametrize(
    "broken",
    [{"type": "strnig"}, {"type": 5}, {"enum": "x"}, {"required": "a"}, {"properties": []}, {"minLength": "long"}],
)
def test_a_schema_with_mistakes_of_its_own_never_stops_a_call(broken: dict[str, object]) -> None:
    assert check({"a": "x"}, {"properties": {"a": broken}}).problems == ()


def test_only_the_first_problems_are_reported() -> None:
    assert len(check(dict.fromkeys(map(str, range(100)), 1), ISSUE).problems) == 8


@examples(150)
@given(SCHEMAS, VALUES)
def test_arguments_allowed_by_json_schema_are_never_refused(schema: dict[str, Any], value: object) -> None:
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert check(value, schema).problems == ()


def test_dependent_arguments_are_requested_together() -> None:
    for keyword in ("dependentRequired", "dependencies"):
        schema = {"type": "object", keyword: {"card": ["address"], "other": {"minProperties": 2}}}
        assert [str(each) for each in check({"card": 1}, schema).problems] == [
            "$: `address` is missing, which goes with `card`."
        ]
        assert not check({"card": 1, "address": 2}, schema).problems
        assert not check({}, schema).problems


def test_an_anchor_is_followed_to_its_definition() -> None:
    node = {"$anchor": "node", "type": "object", "properties": {"next": {"$ref": "#node"}, "v": {"type": "integer"}}}
    schema = {"type": "object", "$defs": {"n": node}, "properties": {"n": {"$ref": "#node"}}}
    problems = check({"n": {"v": 1, "next": {"v": "a"}}}, schema).problems
    assert [each.where for each in problems] == ["$.n.next.v"]
    assert check({"n": 1}, {**schema, "$defs": {}}).skipped


def test_suggestions_are_computed_only_when_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def counted(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
        looked.append(name)
        return list(candidates)[:1]

    monkeypatch.setattr("mcp_workbench.engine.economy.arguments.nearest", counted)
    choices = {"type": "array", "items": {"anyOf": [{"enum": ["left"]}, {"enum": ["right"]}]}}
    schema = {"type": "object", "properties": {"side": choices}, "additionalProperties": False}
    checked = check({"side": ["up"] * 500, **{f"unknown{number}": 1 for number in range(500)}}, schema)
    assert len(checked.problems) == 8
    assert len(looked) <= 8


def test_a_long_list_of_choices_is_not_gone_through_without_end() -> None:
    choices = [f"choice {number}" for number in range(20_000)]
    schema = {"type": "object", "properties": {"all": {"type": "array", "items": {"enum": choices}}}}
    assert check({"all": choices[-1:]}, schema) == Checked()
    assert check({"all": choices[-1:] * 1_000}, schema).skipped == "too much to check"
