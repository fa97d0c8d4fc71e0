"""A real browser for tests and pictures: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; skips the test where there is none."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright, which has no wheel here")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a page; the list is what went wrong in it: dialogs, exceptions, and what its policy refused."""
    context = browser.new_context(**{"viewport": WIDE, **options})
    page = context.new_page()
    page.set_default_timeout(10_000)
    wrong: list[str] = []

    def dialog(asked: Any) -> None:
        wrong.append(f"dialog: {asked.message}")
        asked.dismiss()

    def console(said: Any) -> None:
        if "Content Security" in said.text:
            wrong.append(said.text)

    page.on("dialog", dialog)
    page.on("pageerror", lambda error: wrong.append(f"exception: {error}"))
    page.on("console", console)
    page.goto(address)
    try:
        yield page, wrong
    finally:
        context.close()
