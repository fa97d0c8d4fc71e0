"""Pictures of the page, taken in the system's chromium: an ordinary day at two in the afternoon, always the same.

`python -m scripts.page_pictures` takes these alone. Beside them stands what they were made from, as a digest, since no
two versions of a browser draw the same pixels.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.seeing.page import page_examples
from tests.seeing.page.browser import chromium, opened
from tests.seeing.page.scripted_api import WEB, ScriptedApi

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZE = {"width": 1200, "height": 750}
# The name, whether it is dark, and which row is opened in which view.
PICTURES = {
    "page-waiting.png": (False, "waiting", ""),
    "page-live.png": (True, "live", ".calls [data-key='20']"),
    "page-tools.png": (False, "tools", ".items-list button:has-text('create_issue')"),
    "page-servers.png": (True, "servers", ".servers button:has-text('github')"),
}
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
DIGEST = IMAGES / "pictures-of-the-page.txt"


def digest() -> str:
    """What the pictures show: the page's files and the day."""
    found = hashlib.sha256(repr((PICTURES, SIZE)).encode())
    for path in (*sorted(WEB.iterdir()), Path(page_examples.__file__)):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def draw() -> None:
    """Raises `tests.support.packages.Unavailable`."""
    for name, screen in taken().items():
        (IMAGES / name).write_bytes(screen)
        print(f"docs/images/{name}: {len(screen):,} bytes")
    DIGEST.write_text(f"{digest()}\n", encoding="ascii")


def taken() -> dict[str, bytes]:
    """Each picture as PNG. Raises `tests.support.packages.Unavailable`."""
    found = {}
    with chromium() as browser, _example() as address:
        for name, (is_dark, view, row) in PICTURES.items():
            scheme = "dark" if is_dark else "light"
            with opened(browser, address, viewport=SIZE, color_scheme=scheme, timezone_id="UTC") as (page, _):
                _show(page, view, row)
                found[name] = page.screenshot()
    return found


@contextmanager
def _example() -> Iterator[str]:
    # Of today, because the page writes out other days.
    now = time.time() // 86_400 * 86_400 + 14 * 3600 + 5 * 60
    with ScriptedApi(page_examples.state(now), now=lambda: now) as api:
        api.answers = page_examples.answers(now)
        api.earlier = [("calls", page_examples.calls(now))]
        yield api.address


def _show(page: Page, view: str, row: str) -> None:
    page.get_by_text("May it run?").wait_for()
    page.locator(f"nav a[href='#{view}']").click()
    if row:
        page.locator(row).first.click()
        if view == "servers":
            page.locator("figure rect").first.wait_for(state="attached")
        page.locator(f"#view-{view} .pane pre:visible, #view-{view} .pane .field:visible").first.wait_for()
        page.locator(f"#view-{view} .pane h2").blur()


if __name__ == "__main__":
    draw()
