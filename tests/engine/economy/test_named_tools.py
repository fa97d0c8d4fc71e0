from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.costs import cost, flat_cost
from mcp_workbench.engine.economy.forms import Form
from mcp_workbench.engine.economy.named_tools import named
from tests.engine.economy.tools import schema, tool


def test_definitions_come_full_and_in_the_order_asked_for() -> None:
    made = named([tool("b"), tool("a")], most=10_000)
    assert [json.loads(each.text)["name"] for each in made.shown] == ["b", "a"]
    assert {each.form for each in made.shown} == {Form.FULL}
    assert (made.left_out, made.note) == ((), "")


def test_an_oversized_list_becomes_lean_before_items_are_left_out() -> None:
    unused = {"$defs": {str(number): {"type": "string"} for number in range(50)}, "type": "object"}
    made = named([tool("a", inputSchema=unused), tool("b")], most=500)
    assert {each.form for each in made.shown} == {Form.LEAN}
    assert "lean schemas" in made.note and "`budget: null`" in made.note


def test_tools_left_out_are_named() -> None:
    large = [tool(f"t{number}", inputSchema=schema("a", about="x" * 500)) for number in range(5)]
    made = named(large, most=1_500)
    assert len(made.shown) == 2
    assert [each.name for each in made.left_out] == ["t2", "t3", "t4"]


def test_lines_begin_with_the_whole_path() -> None:
    made = named([tool("read", "Reads. At length.")], most=None, form=Form.SENTENCE)
    assert [each.text for each in made.shown] == ["dev/files/read() - Reads."]


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=40), st.text(max_size=2_000)), min_size=1, max_size=8),
    st.integers(200, 5_000),
    st.sampled_from([None, *Form]),
)
def test_nothing_is_over_and_nothing_is_lost(given: list[tuple[str, str]], most: int, form: Form | None) -> None:
    tools = [tool(name, text) for name, text in given]
    made = named(tools, most=most, form=form)
    assert sum(len(each.text.encode()) + 1 for each in made.shown) <= most
    assert len(made.shown) >= 1
    assert len(made.shown) + len(made.left_out) == len(tools)


def test_the_cost_of_a_flat_list_is_that_of_its_smallest_json() -> None:
    spaced = tool("a")
    spaced = type(spaced)(spaced.path, spaced.toolbox, spaced.server, spaced.name, b'{ "name" :  "a" }')
    assert flat_cost([spaced]) == len('{"name":"a"}') // 4
    counted = cost([tool("a", "Does it. At length."), tool("b")])
    assert counted.tools == 2
    assert list(counted.forms) == [form.value for form in Form]
    assert counted.forms["full"] > counted.forms["names"] > 0


def test_a_definition_that_is_no_json_is_counted_as_it_is() -> None:
    odd = tool("a")
    assert flat_cost([type(odd)(odd.path, odd.toolbox, odd.server, odd.name, b"{broken")]) == 2
