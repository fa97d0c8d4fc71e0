"""The pictures of terminals are drawn from what commands show now, and stand by themselves."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.terminal_pictures import demo, draw, quietest, setting_up, settled, words_in

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def drawn(name: str) -> str:
    return (IMAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_fetches_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"url\((?!#)|href=|src:|@import", text) == []


def test_all_pictures_have_one_font_and_reckon_the_width_of_every_text() -> None:
    pictures = [path.read_text(encoding="utf-8") for path in sorted(IMAGES.glob("*.svg"))]
    fonts = {font for picture in pictures for font in re.findall(r'font-family(?:: |=")([^;"]+)', picture)}
    assert len(pictures) > 3 and len(fonts) == 1
    texts = [text for picture in pictures for text in re.findall(r"<text [^>]*>(?=[^<]*\S)", picture)]
    assert len(texts) > 150
    assert [text for text in texts if "textLength=" not in text] == []


def test_the_picture_of_the_demo_is_current() -> None:
    assert words_in(drawn("demo.svg")) == words_in(draw(demo())), "draw it again: make pictures"


def test_the_picture_of_setting_up_is_current() -> None:
    picture = words_in(drawn("setup.svg"))
    assert picture == words_in(draw(setting_up())), "draw it again: make pictures"
    assert {"$ mcp-workbench init", "$ mcp-workbench install claude-code"} < set(picture)


@pytest.mark.parametrize("name", ["demo.svg", "setup.svg"])
def test_no_picture_tells_where_it_was_drawn(name: str) -> None:
    assert re.findall(r"/home/|/root|/tmp/|no keychain", drawn(name)) == []


def test_no_word_depends_on_white_space_that_programs_may_drop() -> None:
    texts = re.findall(r"<text class=\"[^\"]*\" x=[^>]*>([^<]*)</text>", drawn("demo.svg"))
    assert len(texts) > 50
    assert [text for text in texts if text != " ".join(text.replace("&#160;", "\xa0\xa0").split())] == []


def test_terminal_output_is_drawn_with_its_colours() -> None:
    picture = draw([("a command", "plain \x1b[1;36mcyan\x1b[0m <tag>\n")]).replace("&#160;", " ")
    assert ElementTree.fromstring(picture) is not None
    assert "a command" in picture
    assert "&lt;tag&gt;" in picture
    assert "cdnjs" not in picture


def test_columns_stand_where_they_stood_on_the_terminal() -> None:
    picture = draw([("a command", "a    b\x1b[1m  c d\x1b[0m\n      e & f\n")])
    places = {text: float(x) for x, text in re.findall(r' x="([\d.]+)"[^>]*>([^<]*)</text>', picture)}
    cell = places["b"] / 5
    assert places["a"] == 0
    assert places["e &amp; f"] == pytest.approx(6 * cell)
    assert places["c d"] == pytest.approx(8 * cell)
    assert words_in(picture)[-2:] == ["a b c d", "e & f"]


def test_rows_that_are_drawn_again_are_there_once() -> None:
    assert settled("a\nb\n\x1b[1A\x1b[2Kc\nd\n") == "a\nc\nd\n"


def test_of_several_runs_the_quietest_is_drawn() -> None:
    runs = iter([[("x", "ready 20 ms")], [("x", "ready \x1b[2m3\x1b[0m ms")], [("x", "0.50 s")]])
    assert quietest(lambda: next(runs), 3) == [("x", "ready \x1b[2m3\x1b[0m ms")]
