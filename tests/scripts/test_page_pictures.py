"""The pictures of the page are there, each of the size in which it is taken, and show the page as it is."""

from __future__ import annotations

import struct

import pytest

from scripts.page_pictures import DIGEST, IMAGES, PICTURES, SIZE, digest


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_there_in_its_size(name: str) -> None:
    head = (IMAGES / name).read_bytes()[:24]

    assert head.startswith(b"\x89PNG")
    assert struct.unpack(">II", head[16:24]) == (SIZE["width"], SIZE["height"])


def test_there_is_no_other_picture_of_the_page() -> None:
    assert {path.name for path in IMAGES.glob("page-*")} == set(PICTURES)


def test_pictures_show_the_page_as_it_is() -> None:
    assert DIGEST.read_text().strip() == digest(), "stale: run `python -m scripts.page_pictures`"
