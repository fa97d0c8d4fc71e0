"""Draw the pictures in docs/images: `make pictures`, or `python -m scripts.draw_pictures`. Needs no network."""

from __future__ import annotations

from pathlib import Path

from scripts import diagrams, page_pictures
from scripts.terminal_pictures import demo, draw, quietest, setting_up
from tests.support.packages import Unavailable

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
# Runs of each command, of which the quietest is drawn.
RUNS = 8


def main() -> None:
    pictures = {
        "sharing.svg": diagrams.sharing(),
        "workbench.svg": diagrams.workbench(),
        "demo.svg": draw(quietest(demo, RUNS)),
        "setup.svg": draw(quietest(setting_up, RUNS)),
    }
    for name, picture in pictures.items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
        print(f"docs/images/{name}: {len(picture):,} characters")
    try:
        page_pictures.draw()
    except Unavailable as missing:
        print(f"the pictures of the page stay as they are: {missing}")


if __name__ == "__main__":
    main()
