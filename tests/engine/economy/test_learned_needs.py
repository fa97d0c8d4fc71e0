"""Needs that were served before: what is kept of them, and how they change a ranking."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.economy.fields import SearchDocument
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.economy.learned_needs import MAX_WORDS_OF_NEED, LearnedNeeds

NAMES = ("list_invoices", "send_reminder", "find_customer", "create_ticket", "close_ticket")


def index_of(*names: str) -> Index:
    return Index.build(
        [
            SearchDocument(
                key=name, name=name, description=name.replace("_", " "), server="s", toolbox="t", schema=b"{}"
            )
            for name in names
        ]
    )


INDEX = index_of(*NAMES)


def found(query: str, *needs: tuple[str, str], index: Index = INDEX) -> list[str]:
    learned = LearnedNeeds([(index.words_of(text), tool) for text, tool in needs])
    return [hit.key for hit in index.search(query, learned=learned).hits]


def test_a_tool_that_served_the_same_need_comes_first() -> None:
    query = "nudge people who owe us"
    assert "send_reminder" not in [hit.key for hit in INDEX.search(query).hits]
    assert found(query, (query, "send_reminder"))[0] == "send_reminder"
    assert found("nudge people that owe", (query, "send_reminder"))[0] == "send_reminder", "in similar words, too"


def test_a_need_about_something_else_changes_nothing() -> None:
    query = "close the ticket of a customer"
    plain = [(hit.key, hit.score) for hit in INDEX.search(query).hits]
    learned = LearnedNeeds([(INDEX.words_of("write an invoice for last month"), "list_invoices")])
    assert [(hit.key, hit.score) for hit in INDEX.search(query, learned=learned).hits] == plain


def test_named_tool_wins_over_learned_use() -> None:
    assert found("close ticket", ("open ticket", "create_ticket"))[0] == "close_ticket"


def test_tools_that_are_gone_or_hidden_are_not_found() -> None:
    query = "nudge people who owe us"
    assert found(query, (query, "dropped")) == [hit.key for hit in INDEX.search(query).hits]
    learned = LearnedNeeds([(INDEX.words_of(query), "send_reminder")])
    assert not INDEX.search(query, within={"list_invoices"}, learned=learned).hits


def test_one_memory_serves_several_indexes() -> None:
    query = "nudge people who owe us"
    learned = LearnedNeeds([(INDEX.words_of(query), "send_reminder")])
    other = index_of("send_reminder", *NAMES[::-1])
    for index in (INDEX, other, INDEX):
        assert index.search(query, learned=learned).hits[0].key == "send_reminder"


@pytest.mark.parametrize(
    ("query", "kept", "left_out"),
    [
        ("email Anna about 3 reports", {"email", "report"}, {"anna", "3"}),
        ('create a ticket titled "salary of Bob is 50000"', {"creat", "ticket"}, {"salary", "salari", "bob", "50000"}),
        ("find customer 4711 in Vienna", {"find", "customer"}, {"4711", "vienna", "vienn"}),
    ],
)
def test_names_numbers_and_quotes_are_not_kept(query: str, kept: set[str], left_out: set[str]) -> None:
    words = set(INDEX.words_of(query))
    assert not words & left_out
    assert len(words & {*kept, *(word for word in INDEX.words_of(" ".join(kept)))}) >= 2


def test_a_long_need_is_cut() -> None:
    assert len(INDEX.words_of(" ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(60)))) == (
        MAX_WORDS_OF_NEED
    )


def test_nothing_learned_is_nothing_asked() -> None:
    assert not LearnedNeeds()
