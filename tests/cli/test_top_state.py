"""What the keys of `top` show and ask for."""

from __future__ import annotations

import pytest

from mcp_workbench.cli.top_state import END_OF_INPUT, MAX_FILTER, TopState, Wish
from mcp_workbench.cli.top_view import plain
from tests.cli.test_top_view import call, look, server


def state(*names: str) -> TopState:
    made = TopState()
    made.looks = [look(*(server(name) for name in names or ("a", "b", "c")), lastCalls=[call("now", server="b")])]
    return made


def typed(made: TopState, *keys: str) -> list[Wish | None]:
    return [made.press(key) for key in keys]


def shown(made: TopState) -> str:
    return "\n".join(plain(line) for line in made.lines(80, 24))


def chosen(made: TopState) -> str:
    row = made.chosen
    assert row is not None
    return row.server


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["down"], "b"), (["j", "j", "j"], "c"), (["down", "up", "k"], "a"), (["page down"], "c"), (["page up"], "a")],
)
def test_a_server_is_chosen(keys: list[str], found: str) -> None:
    made = state()
    shown(made)
    assert not any(typed(made, *keys)) and chosen(made) == found and f"> box/{found} " in shown(made)


def test_enter_looks_at_a_server_and_tab_goes_round_its_parts() -> None:
    made = state()
    typed(made, "down")
    assert made.looks_at is None
    typed(made, "\r")
    assert shown(made).startswith("box/b  ready") and "[calls]" in shown(made) and "now" in shown(made)
    assert made.looks_at is not None and made.looks_at.label == "box/b"
    typed(made, "\t")
    assert "[log]" in shown(made)
    typed(made, "right")
    assert "[copies]" in shown(made)
    typed(made, "left", "left", "left")
    assert "[copies]" in shown(made)
    assert typed(made, "q", "q") == [None, "quit"], "back to the list, and then out"


def test_the_log_has_a_key_of_its_own_and_scrolls() -> None:
    made = state()
    typed(made, "l")
    assert made.looks_at is not None
    made.log = [f"line {number}" for number in range(100)]
    assert "line 99" in shown(made) and "line 1\n" not in shown(made)
    typed(made, "up")
    assert "line 98" in shown(made) and "line 99" not in shown(made)
    typed(made, *["page up"] * 20)
    assert "line 0\n" in shown(made)
    typed(made, "q", "l")
    assert made.log == [], "that of another server is not shown for this one"


@pytest.mark.parametrize(("key", "wish"), [("s", "stop"), ("r", "restart")])
def test_a_server_is_stopped_or_restarted_from_both_views(key: str, wish: Wish) -> None:
    made = state()
    assert typed(made, "down", key) == [None, wish] and chosen(made) == "b"
    assert typed(made, "\r", key) == [None, wish] and chosen(made) == "b"


def test_a_filter_takes_letters_that_are_keys_and_escape_shows_all_again() -> None:
    made = state("quick", "slow", "quiet")
    assert not any(typed(made, "/", *"qui", "\x7f", "i", "c", "q"))
    assert "/quicq_" in shown(made) and "no server" in shown(made)
    typed(made, "\x7f", "\r")
    assert [row.server for row in made.rows()] == ["quick"] and "only `quic`" in shown(made)
    assert typed(made, "s") == ["stop"] and chosen(made) == "quick"
    assert typed(made, "\x1b") == [None] and len(made.rows()) == 3
    typed(made, "/", "s", "\x1b")
    assert len(made.rows()) == 3
    typed(made, "/", *"x" * (MAX_FILTER + 5))
    assert f"/{'x' * MAX_FILTER}_" in shown(made)


def test_the_filter_of_the_list_does_not_hide_the_server_that_is_looked_at() -> None:
    made = state()
    typed(made, "/", *"/b", "\r", "\r")
    assert shown(made).startswith("box/b")
    typed(made, "/", *"nothing", "\r")
    assert shown(made).startswith("box/b") and "None like that." in shown(made)
    assert typed(made, "q", "q") == [None, None] and "LAST CALLS" in shown(made)


def test_keys_are_shown_until_the_next_one() -> None:
    made = state()
    assert typed(made, "?") == [None] and "restart the server" in shown(made)
    assert typed(made, "q") == [None] and "> box/a" in shown(made)


def test_the_end_of_input_is_the_end_even_while_a_filter_is_typed() -> None:
    assert typed(state(), "/", "a", END_OF_INPUT)[-1] == "quit"


def test_selection_follows_the_server_and_not_the_row() -> None:
    made = state("a", "b")
    typed(made, "down")
    made.looks = [look(server("a", "known"), server("b"))]
    assert chosen(made) == "b", "it has moved up"
    made.looks = [look(server("a", "known"))]
    assert chosen(made) == "a", "it is gone"
    made.looks = []
    assert made.chosen is None and typed(made, "down", "s", "\r") == [None] * 3
    assert "No workbench is running" in shown(made)
