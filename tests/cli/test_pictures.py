"""The pictures of the documents stand by themselves, and the demo's is drawn from what the demo shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.record_demo import draw

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_fetches_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"url\((?!#)|href=|src:|@import", text) == []


def test_the_picture_of_the_demo_shows_the_chapters_of_the_demo() -> None:
    text = (IMAGES / "demo.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    for words in (
        "open_toolbox",
        "use_tool lab/calculator/crash",
        "4 servers ran, none left",
        "with the workbench",
    ):
        assert words in text
    assert "/home/" not in text


def test_what_a_terminal_shows_is_drawn_with_its_colours() -> None:
    picture = draw("plain \x1b[1;36mcyan\x1b[0m <tag>\n", "a command").replace("&#160;", " ")
    assert ElementTree.fromstring(picture) is not None
    assert "a command" in picture
    assert "&lt;tag&gt;" in picture
    assert "cdnjs" not in picture
