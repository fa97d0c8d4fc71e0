"""The pictures of the documents stand by themselves, and the demo's is drawn from what the demo shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.record_demo import draw, picture_of_the_demo, words_in
from scripts.record_setup import setting_up

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_fetches_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"url\((?!#)|href=|src:|@import", text) == []


def test_the_picture_of_the_demo_shows_what_the_demo_shows_now() -> None:
    drawn = (IMAGES / "demo.svg").read_text(encoding="utf-8")
    assert words_in(drawn) == words_in(picture_of_the_demo()), "draw it anew: .venv/bin/python scripts/record_demo.py"
    assert "/home/" not in drawn


def test_no_word_depends_on_white_space_that_programs_may_drop() -> None:
    drawn = (IMAGES / "demo.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text class=\"[^\"]*\" x=[^>]*>([^<]*)</text>", drawn)
    assert len(texts) > 50
    assert [text for text in texts if text != " ".join(text.replace("&#160;", "\xa0\xa0").split())] == []


def test_what_a_terminal_shows_is_drawn_with_its_colours() -> None:
    picture = draw("plain \x1b[1;36mcyan\x1b[0m <tag>\n", "a command").replace("&#160;", " ")
    assert ElementTree.fromstring(picture) is not None
    assert "a command" in picture
    assert "&lt;tag&gt;" in picture
    assert "cdnjs" not in picture


def test_columns_stand_where_they_stood_on_the_terminal() -> None:
    picture = draw("a    b\x1b[1m  c d\x1b[0m\n      e & f\n", "a command")
    places = {text: float(x) for x, text in re.findall(r' x="([\d.]+)"[^>]*>([^<]*)</text>', picture)}
    cell = places["b"] / 5
    assert places["a"] == 0
    assert places["e &amp; f"] == pytest.approx(6 * cell)
    assert places["c d"] == pytest.approx(8 * cell)
    assert words_in(picture)[-2:] == ["a b c d", "e & f"]


def test_the_picture_of_setting_up_shows_what_the_commands_show_now() -> None:
    drawn = words_in((IMAGES / "setup.svg").read_text(encoding="utf-8"))
    start = drawn.index("$ mcp-workbench init")
    # The first command is uv's, which is not on every machine.
    assert drawn[0] == "$ uv tool install ." and "mcp-workbench" in " ".join(drawn[1:start])
    now = words_in(draw(setting_up(), ""))
    assert drawn[start:] == now[now.index("$ mcp-workbench init") :], "draw it again: make pictures"
