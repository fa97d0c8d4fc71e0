from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy import prose
from mcp_workbench.engine.economy.prose import clip, cut, first_sentence, one_line, split_first_sentence
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Reads a file. Then closes it.", "Reads a file."),
        ("Reads a file (e.g. a log). More.", "Reads a file (e.g. a log)."),
        ("Uses version 1.2 of it. More.", "Uses version 1.2 of it."),
        ("Reads files e.g. Logs and more", "Reads files e.g. Logs and more"),
        ("Reads a file\n\nArgs:\n  path", "Reads a file"),
        ("Reads a file\n- quickly\n- safely", "Reads a file"),
        ("使用必应搜索。返回结果。", "使用必应搜索。"),
        ("  One\n  sentence over lines ", "One sentence over lines"),
        ("", ""),
    ],
)
def test_the_first_sentence(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_a_sentence_that_does_not_end_is_cut() -> None:
    assert len(first_sentence("word " * 1_000)) <= 240


@given(st.text())
def test_a_split_loses_nothing_but_space(text: str) -> None:
    head, rest = split_first_sentence(text)
    assert "".join((head + rest).split()) == "".join(text.split())


@given(st.text(), st.integers(1, 50))
def test_clipped_text_keeps_to_its_limit(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert clipped == text or clipped.endswith("…")


def test_text_is_clipped_between_words() -> None:
    assert clip("one two three", 10) == "one two…"


@given(st.text(), st.integers(-1, 50))
def test_cut_text_is_a_beginning_in_whole_characters(text: str, most: int) -> None:
    made = cut(text, most)
    assert len(made.encode()) <= max(most, 0)
    assert text.startswith(made)


@given(st.text())
def test_one_line_has_no_line_breaks(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


# The rule as one would write it, four times as slow.
PLAIN_RULE = re.compile(r"(?<=[^\s.!?])[.!?]+(?=\s+[^\sa-z])|[。！？]|\n\s*\n|\n\s*(?=[-*#•])|\r?\n(?=[A-Z])")


@examples(300)
@given(st.text(alphabet=".!?。\r\n \tAaz-*#•1", max_size=20))
def test_sentences_end_where_the_plain_rule_says(text: str) -> None:
    found = [match.span() for match in prose._SENTENCE_END.finditer(text)]
    assert found == [match.span() for match in PLAIN_RULE.finditer(text)]
