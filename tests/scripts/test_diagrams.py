"""The diagrams are what the script draws, and no word leaves its box."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.diagrams import CARD, Box, Label, sharing, workbench

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.mark.parametrize("diagram", [sharing, workbench], ids=lambda diagram: diagram.__name__)
def test_a_diagram_is_current(diagram: Callable[[], str]) -> None:
    path = IMAGES / f"{diagram.__name__}.svg"
    assert path.read_text(encoding="utf-8") == diagram(), "draw it again: make pictures"


@pytest.mark.parametrize("diagram", [sharing, workbench], ids=lambda diagram: diagram.__name__)
def test_every_text_ends_inside_the_picture(diagram: Callable[[], str]) -> None:
    picture = diagram()
    right = float(re.findall(r'viewBox="0 0 (\d+)', picture)[0])
    ends = [float(x) + float(width) for x, width in re.findall(r'<text x="([\d.]+)".*? textLength="([\d.]+)"', picture)]
    assert len(ends) > 12 and max(ends) < right


@pytest.mark.parametrize(
    "labels",
    [(Label("fits"), Label("does not fit at all")), (Label("one"), Label("two"), Label("three"))],
    ids=["too wide", "too many"],
)
def test_words_that_do_not_fit_their_box_are_refused(labels: tuple[Label, ...]) -> None:
    assert "fits" in Box(0, 0, 80, 45, CARD, (Label("fits"),)).drawn()
    with pytest.raises(ValueError, match="does not fit a box of 80 by 45"):
        Box(0, 0, 80, 45, CARD, labels).drawn()
