from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.model import DEFAULT_BUDGET
from mcp_workbench.engine.economy.budget_ladder import Listing, listing, render, structured_size
from mcp_workbench.engine.economy.forms import Form
from mcp_workbench.engine.economy.tokens import MIN_TOKEN_BUDGET, tokens
from mcp_workbench.engine.economy.tool import Tool
from tests.engine.economy.tools import schema, tool


def many(count: int, *, words: int = 10, arguments: int = 3, about: str = "") -> list[Tool]:
    # Three kinds of tools, so that no argument is one that most of them share.
    names = [[f"argumen{kind}_{number}" for number in range(arguments)] for kind in range(3)]
    return [
        tool(f"tool_{number:04}", "Does it. " + "Word " * words, inputSchema=schema(*names[number % 3], about=about))
        for number in range(count)
    ]


def test_full_definitions_are_given_while_they_fit() -> None:
    made = listing(many(10), budget=DEFAULT_BUDGET)
    assert made.form is Form.FULL
    assert made.note == "10 tools, full definitions."
    first = json.loads(made.shown[0].text)
    assert (first["toolbox_name"], first["source_server"], first["name"]) == ("dev", "files", "tool_0000")
    assert first["inputSchema"] == schema("argumen0_0", "argumen0_1", "argumen0_2")


def test_large_structured_content_is_shortened_too() -> None:
    tools = many(150, words=0)
    for budget in (2_000, 4_000, DEFAULT_BUDGET):
        made = listing(tools, budget=budget)
        assert structured_size(made.shown) <= 4 * budget


@pytest.mark.parametrize(
    ("tools", "form"),
    [
        (many(20, arguments=5, about="what this is"), Form.FULL),
        (
            [
                tool(
                    f"t{number}",
                    inputSchema={
                        "$defs": {str(each): {"type": "string"} for each in range(50)},
                        "properties": {"a": {"type": "string"}},
                    },
                )
                for number in range(20)
            ],
            Form.LEAN,
        ),
        (many(10, words=20, arguments=12, about="x" * 300), Form.TEXT),
        (many(10, words=200, arguments=8, about="x" * 400), Form.CLIPPED),
        (many(18, words=200, arguments=8, about="x" * 400), Form.SENTENCE),
        (many(60, words=100, arguments=5, about="x" * 150), Form.ARGUMENTS),
        (many(90, words=100, arguments=30, about="x" * 50), Form.NAMES),
    ],
)
def test_the_longest_form_that_may_be_used_is_used(tools: list[Tool], form: Form) -> None:
    made = listing(tools, budget=DEFAULT_BUDGET)
    assert made.form is form
    assert made.cursor is None
    assert len(made.shown) == len(tools)
    assert made.tokens <= 6_000


def test_forms_without_schemas_get_a_quarter_of_the_budget() -> None:
    made = listing(many(18, words=200, arguments=8, about="x" * 400), budget=DEFAULT_BUDGET)
    assert made.form is Form.SENTENCE
    assert made.tokens <= 1_500


def test_no_budget_means_everything() -> None:
    made = listing(many(300, words=100), budget=None)
    assert made.form is Form.FULL
    assert len(made.shown) == 300


def test_shorter_form_names_omissions_and_the_way_to_them() -> None:
    note = listing(many(60, words=100, arguments=5, about="x" * 150), budget=DEFAULT_BUDGET).note
    assert note.startswith("60 tools, names with arguments, types left out, to fit 6,000 tokens.")
    assert "`tools`" in note
    assert "`query`" in note


def test_text_forms_are_grouped_by_server() -> None:
    tools = [tool("b", server="two"), tool("a", server="one"), tool("c", server="one")]
    assert render(listing(tools, form=Form.NAMES, budget=DEFAULT_BUDGET)).split("\n")[1:] == [
        "dev/one/",
        "a",
        "c",
        "dev/two/",
        "b",
    ]


def pages(tools: list[Tool], budget: int, form: Form | None = None) -> list[Listing]:
    made = [listing(tools, budget=budget, form=form)]
    while made[-1].cursor is not None:
        made.append(listing(tools, budget=budget, cursor=made[-1].cursor))
    return made


def test_too_many_tools_come_in_pages_that_miss_nothing() -> None:
    tools = many(2_000, words=50)
    made = pages(tools, 6_000)
    assert len(made) > 1
    assert [each.tool.name for page in made for each in page.shown] == [each.name for each in tools]
    assert all(page.tokens <= 6_000 for page in made)
    assert "`cursor:" in made[0].note


def test_a_form_that_is_asked_for_comes_in_pages() -> None:
    made = pages(many(100), 2_000, Form.FULL)
    assert {page.form for page in made} == {Form.FULL}
    assert sum(len(page.shown) for page in made) == 100


def test_a_page_continues_where_it_ended_though_tools_were_added_and_removed() -> None:
    tools = many(100)
    first = listing(tools, budget=1_000, form=Form.FULL)
    seen = {each.tool.name for each in first.shown}
    changed = [tool("aaa"), *(each for each in tools if each.name != first.shown[-1].tool.name)]
    following = listing(changed, budget=1_000, cursor=first.cursor)
    assert following.shown[0].tool.name == tools[len(first.shown)].name
    assert not seen & {each.tool.name for each in following.shown}


@pytest.mark.parametrize("cursor", ["", "nonsense", "full:", "names#9999999999999", "full#²", ":::"])
def test_a_cursor_that_is_none_of_ours_is_harmless(cursor: str) -> None:
    assert listing(many(3), cursor=cursor, budget=DEFAULT_BUDGET).total == 3


def test_one_tool_that_is_over_the_budget_alone_is_shown_shorter() -> None:
    huge = tool("huge", "Does it.", inputSchema=schema("a", about="x" * 100_000))
    made = listing([huge], form=Form.FULL, budget=1_000)
    assert made.shown[0].form is Form.TEXT
    assert "is shortened" in made.note
    assert made.tokens <= 1_000


NAMES = st.text(min_size=1, max_size=400)


@given(
    st.lists(st.tuples(NAMES, st.text(max_size=400), st.sampled_from(["a", "b", "ä" * 300])), max_size=12),
    st.integers(0, 3_000),
    st.sampled_from([None, *Form]),
)
def test_no_listing_is_over_its_budget_and_pages_show_every_tool_once(
    named: list[tuple[str, str, str]], budget: int, form: Form | None
) -> None:
    tools = {(server, name): tool(name, text, server=server) for name, text, server in named}
    made = pages(list(tools.values()), budget, form)
    assert all(page.tokens <= max(budget, MIN_TOKEN_BUDGET) for page in made)
    shown = [(each.tool.server, each.tool.name) for page in made for each in page.shown]
    assert sorted(shown) == sorted(tools)


def test_a_token_is_four_bytes() -> None:
    assert [tokens(text) for text in ("", "a", "abcd", "abcde", "ä")] == [0, 1, 1, 2, 1]


def test_arguments_that_most_tools_share_are_written_once() -> None:
    common = {"subscription": {"type": "string"}, "tenant": {"type": "string"}, "retries": {"type": "integer"}}
    tools = [
        tool(f"t{number}", "Does it.", inputSchema={"properties": {f"own{number}": {"type": "string"}, **common}})
        for number in range(8)
    ]
    part = tool("t9", "Does it.", inputSchema={"properties": {"tenant": {"type": "string"}}})
    for form, head, line in (
        (
            Form.SENTENCE,
            "+ = subscription?: string, tenant?: string, retries?: integer",
            "t0(own0?: string, +) - Does it.",
        ),
        (Form.ARGUMENTS, "+ = subscription?, tenant?, retries?", "t0(own0?, +)"),
    ):
        text = render(listing([*tools, part], form=form, budget=DEFAULT_BUDGET))
        assert f"dev/files/ {head}\n{line}\n" in text
        assert text.count("subscription") == 1
        # A tool that has only a part of them is written out.
        assert "\nt9(tenant?" in text
        assert "+" not in text.rpartition("\n")[2]


@pytest.mark.parametrize("form", [Form.TEXT, Form.ARGUMENTS])
def test_the_same_is_said_on_every_page(form: Form) -> None:
    names = ("subscription_of_the_caller", "tenant_of_the_caller")
    tools = [tool(f"t{number:03}", "Does it.", inputSchema=schema(*names)) for number in range(40)]
    first = listing(tools, form=form, limit=20, budget=DEFAULT_BUDGET)
    second = listing(tools, form=form, cursor=first.cursor, budget=DEFAULT_BUDGET)
    assert render(first).count("subscription") == render(second).count("subscription") == 1
