"""A real browser for tests and pictures: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support import processes
from tests.support.packages import Unavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser. Raises `Unavailable`. What it leaves behind is an error."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise Unavailable("needs chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Unavailable("needs Playwright") from None
    before = processes.descendants(os.getpid())
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
    processes.wait_until(lambda: processes.descendants(os.getpid()) <= before)


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
