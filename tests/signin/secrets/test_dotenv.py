"""`.env` files as people and tools write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.signin.secrets.dotenv import DotenvError, parse


@pytest.mark.requirement("secrets.env-file")
@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=1\rB=2", {"A": "1", "B": "2"}),
        ("export A=1\n  export\tB = 2 \n", {"A": "1", "B": "2"}),
        ("# note\n\n   \nA=1 # note\nB=pass#word\nC=#none\n", {"A": "1", "B": "pass#word", "C": ""}),
        ("A='single $HOME \\n # x' # note", {"A": "single $HOME \\n # x"}),
        ('A="double \\"x\\" \\n\\t\\\\ \\$ # x"', {"A": 'double "x" \n\t\\ $ # x'}),
        ('KEY="-----BEGIN\nabc\n-----END"\nB=2', {"KEY": "-----BEGIN\nabc\n-----END", "B": "2"}),
        ("A=\nB=''\n", {"A": "", "B": ""}),
        ("A=a=b==\nA=2", {"A": "2"}),
        ("A=${B}\nB=$(id)\n", {"A": "${B}", "B": "$(id)"}),
        ("URL=https://u:p@h/?a=b&c='d'", {"URL": "https://u:p@h/?a=b&c='d'"}),
        ("", {}),
    ],
)
def test_dotenv_files_are_parsed(text: str, variables: dict[str, str]) -> None:
    assert parse(text) == variables


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\nnonsense\n", 2), ("=x", 1), ("A=1\n\nB='open\n", 3), ('A="open', 1), ("A='x' y", 1), ("1A=x", 1)],
)
def test_a_line_that_makes_no_sense_is_named_and_not_quoted(text: str, line: int) -> None:
    with pytest.raises(DotenvError) as caught:
        parse(text)
    assert str(caught.value) == f"line {line} is not `NAME=value`"


@given(st.text(max_size=200))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(DotenvError):
        assert all(name and "=" not in name for name in parse(text))


@given(st.text().filter(lambda text: "'" not in text and "\r" not in text))
def test_quoting_round_trips(value: str) -> None:
    assert parse(f"A=1\nB='{value}'\nC=3") == {"A": "1", "B": value, "C": "3"}
