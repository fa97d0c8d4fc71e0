"""The slow reader agrees with `msgspec` on good texts, and on bad ones says where, what and what instead."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.config.jsonc import Document, positions
from mcp_workbench.engine.config.problems import MAX_CONFIG_NESTING

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
BLANKS = st.lists(
    st.sampled_from([" ", "\n", "\r\n", "\t", '// a "comment"\n', "/* { [ , */", "/**/", "//\n"]), max_size=3
).map("".join)


@st.composite
def written_with_comments(draw: st.DrawFn, value: object) -> str:
    """`value` as JSON with comments and trailing commas wherever they are allowed."""

    def blank() -> str:
        return draw(BLANKS)

    def write(value: object) -> str:
        match value:
            case dict():
                members = [f"{blank()}{json.dumps(k)}{blank()}:{write(v)}" for k, v in value.items()]
                return "{" + joined(members) + "}"
            case list():
                return "[" + joined([write(item) for item in value]) + "]"
            case _:
                return f"{blank()}{json.dumps(value, ensure_ascii=draw(st.booleans()))}{blank()}"

    def joined(parts: list[str]) -> str:
        trailing = "," if draw(st.booleans()) and parts else ""
        return ",".join(parts) + trailing + blank()

    return blank() + write(value) + blank()


@pytest.mark.requirement("config.comments")
@settings(deadline=None)
@given(st.data())
def test_comments_and_trailing_commas_change_nothing(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    document = Document(data.draw(written_with_comments(value)))
    assert document.problems == []
    assert document.complete
    assert document.value == value


def as_plain_json(text: str) -> str:
    """Another way to the same: blank out comments and trailing commas, strings left alone."""
    text = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda match: match[1] or " ", text, flags=re.DOTALL)
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|(?<![\[{,:\s])\s*,(?=\s*[}\]])', lambda match: match[1] or " ", text)


@settings(deadline=None)
@given(VALUES.map(json.dumps), st.integers(0), st.sampled_from([*"{}[]\",:/*-\\ \n\t0eE.n'é\0", ""]))
def test_a_damaged_text_is_read_as_msgspec_reads_it_or_has_problems(text: str, at: int, put: str) -> None:
    at %= len(text)
    damaged = text[:at] + put + text[at + 1 :]
    document = Document(damaged)
    try:
        expected = msgspec.json.decode(as_plain_json(damaged).encode())
    except msgspec.MsgspecError:
        assert document.problems
    else:
        assert document.problems == []
        assert document.value == expected


@settings(deadline=None)
@given(st.text(alphabet="{}[]\",:/*\\ \nab01-.eEtrufalsn'$\t\0é"))
def test_reader_survives_any_text(text: str) -> None:
    document = Document(text)
    assert document.complete or document.problems
    lines = text.split("\n")
    for problem in document.problems:
        assert problem.line is not None and problem.column is not None
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{\n  "a": "x\n}', 2, 8, "a string that does not end"),
        ('{"a": 1\n  "b": 2}', 2, 3, "expected `,` or `}`"),
        ('{"a" 1}', 1, 6, "expected `:` after the key `a`"),
        ('{"a": }', 1, 7, "expected a value"),
        ('{"a": 1,, "b": 2}', 1, 9, "a `,` with nothing before it"),
        ("[,]", 1, 2, "a `,` with nothing before it"),
        ('{\n "a": [1, 2}', 2, 12, "`]` to close the list opened at line 2, column 7"),
        ('{"a": {"b": 1}', 1, 15, "the object opened at line 1, column 1 is not closed"),
        ('{"a": 1} {', 1, 10, "after the end of the configuration"),
        ("{a: 1}", 1, 2, "the key `a` without quotes"),
        ("{'a': 1}", 1, 2, "single quotes"),
        ('{"a": NaN}', 1, 7, "`NaN`"),
        ('{"a": -Infinity}', 1, 7, "`-Infinity`"),
        ('{"a": True}', 1, 7, "expected `true`"),
        ('{"a": 01}', 1, 7, "`01`"),
        ('{"a": 1e999}', 1, 7, "out of range"),
        ('{"a": "C:\\Users"}', 1, 10, "is written twice"),
        ('{"a": "\\ud800"}', 1, 8, "one half of a surrogate pair"),
        ('{"a": "x\ty"}', 1, 9, "control character"),
        ("{ /* never", 1, 3, "a comment that does not end"),
        ("// nothing", 1, 11, "nothing but white space and comments"),
        ("[" * 1000, 1, MAX_CONFIG_NESTING + 1, "levels of nesting"),
    ],
)
def test_mistakes_are_reported_with_place_and_expectation(text: str, line: int, column: int, words: str) -> None:
    problem = Document(text).problems[0]
    assert (problem.line, problem.column) == (line, column)
    assert words in problem.render("file")


def test_reading_goes_on_after_mistakes_whose_meaning_is_plain() -> None:
    document = Document('{a: 1 \'b\': True\n "c": [1 2, ,3],, "d": "\\q"}')
    assert len(document.problems) == 9
    assert document.complete
    assert document.value == {"a": 1, "b": True, "c": [1, 2, 3], "d": "\\q"}


def test_a_repeated_key_is_remembered_with_its_last_place() -> None:
    document = Document('{"a": {"b": 1,\n "b": 2}, "c": [{"d": 1, "d": 1}]}')
    assert document.repeated == {("a", "b"): (2, 2), ("c", 0, "d"): (2, 26)}


def test_words_where_secrets_stand_are_not_repeated() -> None:
    document = Document('{"env": {"TOKEN": hunter2hunter2, "OTHER" "hunter3hunter3"}}')
    assert len(document.problems) == 2
    assert not any("hunter" in problem.render("file") for problem in document.problems)


def test_the_number_of_mistakes_that_are_kept_is_bounded() -> None:
    document = Document("[" + ",1" * 100_000 + " 1" * 100_000 + "]")
    assert len(document.problems) <= 1_000
    assert len(Document("{" + '"a":1,' * 100_000 + "}").repeated) == 1


def test_positions_are_those_of_key_and_value() -> None:
    text = '// first\n{\n  "a": [1,\n    {"b": /* x */ 2}]}'
    found = positions(text, [(), ("a",), ("a", 0), ("a", 1, "b"), ("a", 1, "missing"), ("b", "c")])
    assert found[()] == (2, 1, 2, 1)
    assert found[("a",)] == (3, 3, 3, 8)
    assert found[("a", 0)] == (3, 9, 3, 9)
    assert found[("a", 1, "b")] == (4, 6, 4, 19)
    assert found[("a", 1, "missing")] == (4, 5, 4, 5)
    assert found[("b", "c")] == found[()]


def test_a_long_text_is_read_to_its_end() -> None:
    text = "[" + '{"name": "value", "number": 1234.5}, // x\n' * 20_000 + "]"
    document = Document(text)
    assert isinstance(document.value, list)
    assert len(document.value) == 20_000
    assert document.problems == []
