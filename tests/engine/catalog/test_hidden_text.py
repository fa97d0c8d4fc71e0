"""Hidden characters are found wherever a definition has them; scripts and emoji that need them are left alone."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.hidden_text import described, hidden_in, in_definition
from mcp_workbench.engine.catalog.offer import by_identity


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\u200bb", "1 zero-width (U+200B)"),
        ("read\u202efile", "1 bidirectional (U+202E)"),
        ("a\u2066b\u2069", "2 bidirectional (U+2066, U+2069)"),
        ("bell\x07 and escape\x1b[31m", "2 control (U+0007, U+001B)"),
        ("\x85next", "1 control (U+0085)"),
        ("line\u2028break", "1 control (U+2028)"),
        ("soft\u00adhyphen \ufeff", "2 zero-width (U+00AD, U+FEFF)"),
        ("\U000e0068\U000e0069", "2 tag (U+E0068, U+E0069)"),
        ("blank\u3164", "1 zero-width (U+3164)"),
        ("join\u200ded", "1 zero-width (U+200D)"),
        ("\u200d", "1 zero-width (U+200D)"),
        ("x\ufe01\ufe02\ufe03", "2 zero-width (U+FE02, U+FE03)"),
        ("\u200b\u200b\u200c\u2060\u2061\u2062\u2063", "7 zero-width (U+200B, U+200C, U+2060, U+2061, …)"),
    ],
)
def test_hidden_characters_are_found_and_named(text: str, told: str) -> None:
    assert described(hidden_in(text)) == told


@pytest.mark.parametrize(
    "text",
    [
        "plain text,\n\twith a line break\r\n",
        "naïve café – “quotes” … 漢字 한국어 العربية עברית",
        "a family 👩‍👩‍👧 and a heart ❤️ and a flag 🏳️‍🌈",
        "Persian می‌خواهم and Hindi क्‍ष",
        "no\u00a0break",
    ],
)
def test_ordinary_text_of_any_script_has_none(text: str) -> None:
    assert not hidden_in(text)


@pytest.mark.parametrize("as_ascii", [True, False])
def test_every_part_of_a_definition_is_looked_at(as_ascii: bool) -> None:
    schema = {"type": "object", "properties": {"a\u200b": {"enum": ["b\u202e"], "description": "c\u2060"}}}
    tool = {"name": "n\u200c", "title": "t\x07", "description": "d\U000e0041", "inputSchema": schema}
    found = in_definition(Raw(json.dumps(tool, ensure_ascii=as_ascii).encode()))
    assert found.total() == 6
    assert not in_definition(Raw(json.dumps({"name": "ä", "description": "\n"}, ensure_ascii=as_ascii).encode()))


@pytest.mark.requirement("names.control")
@pytest.mark.parametrize(
    ("kind", "member"),
    [("tools", "name"), ("prompts", "name"), ("resources", "uri"), ("resourceTemplates", "uriTemplate")],
)
@pytest.mark.parametrize("letter", ["\x00", "\x07", "\n", "\x1b", "\x7f", "\x85", "\x9b"])
def test_a_name_with_a_control_character_never_passes(kind: str, member: str, letter: str) -> None:
    good, bad = Raw(json.dumps({member: "good"}).encode()), Raw(json.dumps({member: f"a{letter}b"}).encode())
    left_out: list[str] = []
    found, dropped = by_identity(kind, [bad, good], left_out)
    assert (list(found), dropped) == (["good"], 1)
    (told,) = left_out
    assert "control character" in told and letter not in told


def test_other_odd_names_pass() -> None:
    names = ["zero\u200bwidth", "日本", " ", "a" * 300]
    found, dropped = by_identity("tools", [Raw(json.dumps({"name": name}).encode()) for name in names])
    assert (list(found), dropped) == (names, 0)
