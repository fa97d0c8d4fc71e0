from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.instructions import (
    HOW_IN_SHORT,
    HOW_TO_USE_TOOLS,
    MAX_INSTRUCTIONS_BYTES,
    Box,
    instructions,
    introduced,
    names,
)

DEV = Box("dev", "Code and reviews.", 12, ("pull", "issue"))


def boxes(count: int, description: str = "About something. " * 3) -> list[Box]:
    return [Box(f"toolbox-{number}", description, number, ("some", "words", "here")) for number in range(count)]


def test_how_to_use_it_comes_first_then_every_toolbox() -> None:
    assert instructions([DEV]) == f"{HOW_TO_USE_TOOLS}\n\nToolboxes:\n- dev (12 tools): Code and reviews. [pull, issue]"


def test_an_uncounted_toolbox_has_no_number() -> None:
    assert introduced([Box("dev", "Code.")], 500) == "Toolboxes:\n- dev: Code."


@pytest.mark.parametrize(
    ("count", "has", "has_not"),
    [
        (5, "About something. About something. About something.", "…"),
        (20, "toolbox-19: About something. About something.", "…, here"),
        (70, "toolbox-69: some words", "About"),
        (90, "\ntoolbox-89: some", "toolbox-1: some words here"),
        (500, " more. `open_toolbox {}` lists them.", "tools)"),
    ],
)
def test_more_toolboxes_get_fewer_words(count: int, has: str, has_not: str) -> None:
    text = instructions(boxes(count))
    assert has in text
    assert has_not not in text.removeprefix(HOW_TO_USE_TOOLS)
    assert len(text.encode()) <= MAX_INSTRUCTIONS_BYTES


@pytest.mark.parametrize("count", [15, 20, 40, 60, 90, 110, 293, 1_000])
def test_the_space_is_filled_with_the_most_distinctive(count: int) -> None:
    text = instructions(boxes(count, "About something of which there is more to tell than there is room for. " * 9))
    assert MAX_INSTRUCTIONS_BYTES - 60 <= len(text.encode()) <= MAX_INSTRUCTIONS_BYTES
    assert "toolbox-0" in text and "toolbox-14" in text


def test_a_toolbox_without_description_gets_more_words() -> None:
    words = tuple(f"word{number}" for number in range(8))
    text = introduced([Box(f"box-{number}", words=words) for number in range(10)], 900)
    assert "- box-9: word0 word1 word2 word3 word4 word5 word6" in text


def test_where_room_is_scarce_every_toolbox_gets_words_and_none_a_number() -> None:
    words = ("database", "query", "schema")
    text = instructions([Box(f"box-{number}", "Long. " * 40, 12, words) for number in range(70)])
    assert text.count(": database") == 70
    assert "(12 tools)" not in text


def test_where_room_is_scarce_it_goes_to_words() -> None:
    many = [Box(f"box-{number}", "Long. " * 40, 12, ("database", "query", "schema")) for number in range(70)]
    roomy, scarce = instructions(many[:20]), instructions(many)
    assert roomy.startswith(HOW_TO_USE_TOOLS) and roomy.count("\n- box-") == 20
    assert scarce.startswith(f"{HOW_IN_SHORT}\n\nToolboxes:\nbox-0: database") and "\n- " not in scarce


def test_words_of_the_description_are_written_once_and_not_lost_where_it_is_left_out() -> None:
    box = Box("dev", "Databases and what is in them.", 12, ("database", "query"))
    assert introduced([box], 500).endswith("- dev (12 tools): Databases and what is in them. [query]")
    assert introduced([box], 34).endswith("\ndev: database query")


def test_room_that_is_left_goes_to_as_many_toolboxes_as_possible() -> None:
    long = [Box("one", words=("extraordinarily",)), Box("two", words=("pdf",)), Box("three", words=("map",))]
    assert introduced(long, 34).split("\n")[1:] == ["one", "two: pdf", "three: map"]


def test_words_go_where_they_say_most_and_every_toolbox_gets_its_first() -> None:
    plain = [Box(f"box-{number}", words=("aaaa", "bbbb", "cccc"), worth=(2.0, 0.2, 0.1)) for number in range(3)]
    rich = Box("rich", words=("dddd", "eeee", "ffff", "gggg"), worth=(2.0, 1.9, 1.8, 0.1))
    shown = introduced([*plain, rich], 68).split("\n")[1:]
    assert shown == ["box-0: aaaa", "box-1: aaaa", "box-2: aaaa", "rich: dddd eeee ffff"]


def test_one_name_of_many_is_not_worth_its_room() -> None:
    assert names(boxes(70), room=74) == "70 toolboxes. `open_toolbox {}` lists them."


def test_without_toolboxes_it_says_so() -> None:
    assert instructions([]).endswith("No toolbox is configured.")


def test_names_fit_the_limit_and_say_how_many_are_missing() -> None:
    text = names(boxes(50), room=120)
    assert len(text.encode()) <= 120
    assert text.startswith("Toolboxes: toolbox-0, toolbox-1")
    assert " more. `open_toolbox {}`" in text
    assert names(boxes(2)) == "Toolboxes: toolbox-0, toolbox-1"


BOXES = st.lists(
    st.builds(
        Box,
        name=st.text(max_size=300),
        description=st.text(max_size=3_000),
        tools=st.none() | st.integers(0, 10**6),
        words=st.lists(st.text(max_size=40), max_size=10).map(tuple),
    ),
    max_size=40,
)


@given(BOXES, st.integers(0, 3_000))
def test_no_instructions_are_ever_over_the_limit(named: list[Box], most: int) -> None:
    assert len(instructions(named).encode()) <= MAX_INSTRUCTIONS_BYTES
    assert len(instructions(named, most=most).encode()) <= most
    assert len(names(named, room=most).encode()) <= most
