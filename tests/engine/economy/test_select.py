from __future__ import annotations

import re
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.select import BadExpression, select
from tests.support.examples import examples

DATA: dict[str, Any] = {
    "items": [
        {"id": 1, "title": "one", "tags": ["x", "y"], "open": True, "by": {"age": 5}},
        {"id": 2, "title": "two", "tags": [], "open": False},
        {"id": 3, "title": "three", "tags": ["z"], "open": True, "by": {"age": 1}},
    ],
    "total": 3,
    "none": None,
    "zero": 0,
    "a b": {"k~/": "odd"},
    "byName": {"p": {"n": 1}, "q": {"n": 2}},
}


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("", DATA),
        ("/items/0/title", "one"),
        ("/a b/k~0~1", "odd"),
        ("/none", None),
        ("total", 3),
        ("@.total", 3),
        ('"a b"."k~/"', "odd"),
        ("items[0].title", "one"),
        ("items[-1].id", 3),
        ("items[9].id", None),
        ("items[*].id", [1, 2, 3]),
        ("items[].tags", [["x", "y"], [], ["z"]]),
        ("items[].tags[]", ["x", "y", "z"]),
        ("items[*].tags[0]", ["x", "z"]),
        ("items[*].by.age", [5, 1]),
        ("items[0:2].id", [1, 2]),
        ("items[::-1].id", [3, 2, 1]),
        ("byName.*.n", [1, 2]),
        ("items[?open].id", [1, 3]),
        ("items[?!open].id", [2]),
        ("items[?!!open].id", [1, 3]),
        ("items[?id > `1`].id", [2, 3]),
        ("items[?id >= `2` && open].title", ["three"]),
        ("items[?id == `1` || title == 'two'].id", [1, 2]),
        ("items[?contains(tags, 'z')].id", [3]),
        ("items[?starts_with(title, 't')].id", [2, 3]),
        ("items[?by.age < `3`].id", [3]),
        ("items[?title < `3`].id", []),
        ("items[0].{number: id, name: title}", {"number": 1, "name": "one"}),
        ("items[*].[id, title]", [[1, "one"], [2, "two"], [3, "three"]]),
        ("[total, zero]", [3, 0]),
        ("items[*].id | [0]", 1),
        ("items[*].id | sum(@)", 6),
        ("length(items)", 3),
        ("keys(byName)", ["p", "q"]),
        ("sort_by(items, &title)[*].id", [1, 3, 2]),
        ("max_by(items, &id).title", "three"),
        ("map(&id, items)", [1, 2, 3]),
        ("join(', ', items[*].title)", "one, two, three"),
        ("not_null(none, total)", 3),
        ("none.anything[0].at_all", None),
        ("total.id", None),
        ("zero || total", 0),
        ("none || total", 3),
        ("(none || byName).p.n", 1),
        ("`[1, 2]`[1]", 2),
        ("type(items)", "array"),
        ("`true` == `1`", False),
    ],
)
def test_expression_selects_its_members(expression: str, selected: object) -> None:
    assert select(DATA, expression) == selected


@pytest.mark.parametrize(
    ("pointer", "told"),
    [
        ("/items/9", "there is no `9` in `/items`, an array of 3, counted from 0"),
        ("/items/-", "there is no `-` in `/items`, an array of 3, counted from 0"),
        ("/itens/0", "there is no `itens` in `/`, an object with `items`"),
        ("/total/x", "there is no `x` in `/total`, which is a number"),
        ("/a b/k", "there is no `k` in `/a b`, an object with `k~/`"),
        ("/zzz", "there is no `zzz` in `/`, an object with `items`, `total`, `none`, `zero`, `a b`, `byName`"),
    ],
)
def test_dangling_pointer_lists_the_existing_members(pointer: str, told: str) -> None:
    with pytest.raises(BadExpression) as caught:
        select(DATA, pointer)
    assert str(caught.value) == told


def test_a_pointer_into_an_empty_object_says_so() -> None:
    with pytest.raises(BadExpression, match="in `/a`, which is empty"):
        select({"a": {}}, "/a/b")


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("items[", "something is missing at character 7 of `items[`"),
        ("a..b", "cannot read `.` at character 3 of `a..b`"),
        ("items[?]", "cannot read `]` at character 8"),
        ("{a}", "cannot read `}` at character 3"),
        ("total id", "cannot read `id` at character 7"),
        ("#", "cannot read `#` at character 1"),
        ("'unclosed", "cannot read `'unclosed` at character 1"),
        ("items[1:2:0]", "step of 0"),
        ("items[a]", "cannot read `a` at character 7"),
        ("length(total)", "`length` cannot be applied to a number"),
        ("length(items, items)", "`length` cannot be applied to an array and an array"),
        ("ceil(`1e999`)", "`ceil` cannot be applied"),
        ("nonsense(@)", "there is no function `nonsense`; available: abs, "),
        ("sort_by(items, id)", "`sort_by` cannot be applied"),
        ("[&total]", "`&` is allowed only before an argument of map, max_by, min_by, sort_by"),
        ("to_string(&total)", "`&` is allowed only before an argument"),
        ("(" * 495 + "a" + ")" * 495, "too many levels"),
        ("a" * 2_000, "longer than"),
    ],
)
def test_bad_expression_explains_the_mistake(expression: str, complaint: str) -> None:
    with pytest.raises(BadExpression, match=re.escape(complaint)):
        select(DATA, expression)


def test_a_selection_that_repeats_itself_without_end_is_refused() -> None:
    with pytest.raises(BadExpression, match="too large"):
        select(DATA, " | ".join(["[@, @]"] * 80))


def test_too_much_work_is_refused() -> None:
    with pytest.raises(BadExpression, match="too much work"):
        select([[0] * 1_000] * 1_000, "[*][*].a")


# A literal that is no JSON counts as text, which the library would rather not have: `foo` instead of `"foo"`.
@pytest.mark.filterwarnings("ignore:deprecated string literal:PendingDeprecationWarning")
@examples(150)
@given(st.text(alphabet="ab.[]*?{}()|&!<>=@:,'`\"01- \\", max_size=30))
def test_any_text_selects_something_or_is_a_bad_expression(expression: str) -> None:
    with suppress(BadExpression):
        select(DATA, expression)


@pytest.mark.parametrize(
    "expression",
    [
        "{many} | [*].{many} | [].sort(@) | length(@)",
        "{many} | [*].{many} | [?@ == @] | length(@)",
        "{many} | [*].{many} | [].[@[1:]] | length(@)",
        "{many} | [*].{many} | [][] | length(@)",
        "{many} | [*].{many} | [*].contains(@, `-1`) | length(@)",
    ],
)
def test_work_on_the_same_large_part_over_and_over_has_an_end(expression: str) -> None:
    many = "[" + ",".join(["@"] * 30) + "]"
    with pytest.raises(BadExpression, match="too much work"):
        select(list(range(10_000)), expression.replace("{many}", many))


def test_text_that_grows_is_refused_before_it_is_written() -> None:
    many = "[" + ",".join(["s"] * 60) + "]"
    joined = "[" + ",".join(["join('', @)"] * 60) + "]"
    with pytest.raises(BadExpression, match="too much work"):
        select({"s": "x" * 1_000_000}, f"{many} | {joined}")
    with pytest.raises(BadExpression, match="too large"):
        select({"s": "x" * 4_000_000}, many)
    assert select({"s": "x" * 4_000_000}, "s") == "x" * 4_000_000


def test_ordinary_work_on_a_large_value_is_done() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(50_000)]
    assert select(rows, "sort_by(@, &name)[-1].id") == 9999
    assert select(rows, "[?id > `49998`].name") == ["row 49999"]
    assert select(rows * 20, "length(@)") == 1_000_000


@pytest.mark.parametrize(
    "expression",
    [
        "[*].to_string(i) | sort(@) | sort(@) | sort(@) | sort(@) | sort(@) | sort(@) | sort(@) | sort(@) | sort(@)",
        "sort_by(@, &i)" + " | sort_by(@, &i)" * 12,
    ],
)
def test_slow_expressions_are_refused_in_advance(expression: str) -> None:
    with pytest.raises(BadExpression, match="too much work"):
        select([{"i": number} for number in range(30_000)], expression)


@pytest.mark.parametrize(
    "expression",
    ["join(to_string(@), [*].to_string(i))", "to_string(@)" + "|join('',[@,@,@,@,@,@,@,@])" * 4],
)
def test_growing_expressions_are_refused_in_advance(expression: str) -> None:
    value = [{"i": number} for number in range(10_000)]
    tracemalloc.start()
    try:
        with pytest.raises(BadExpression, match="too much work"):
            select(value, expression)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_function_that_cannot_take_an_object_says_so() -> None:
    with pytest.raises(BadExpression, match="`reverse` cannot be applied"):
        select({"a": 1}, "reverse(@)")
