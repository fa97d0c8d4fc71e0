"""The page at `/` of `serve --http` in a real browser: signed in with the token, before and after a restart."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.seeing.page.browser import opened
from tests.seeing.page.test_browser_workbench import show
from tests.support.workbench import scripted_entry, workbench_command, write_config

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.processes

TOKEN = "a-token-that-is-long-enough-for-a-test"
END_SECONDS = 30


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> None:
    """The browser starts and ends processes as it likes, during any test: `chromium` looks for those that are left."""


@contextmanager
def served(config: Path, port: str = "0") -> Iterator[str]:
    """The port. Killed at the end, without a goodbye to its pages."""
    command = workbench_command(config, "--http", f"127.0.0.1:{port}")
    environment = {**os.environ, "WORKBENCH_TOKEN": TOKEN}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://[^/]*:(\d+)", process.stderr.readline())
            assert found
            yield found[1]
        finally:
            process.kill()
            process.communicate(timeout=END_SECONDS)


def sign_in(page: Page) -> None:
    page.get_by_label("Key or token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.locator("html[data-status=live]").wait_for()


def test_page_asks_for_sign_in_after_a_restart_and_keeps_typed_text(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"works": scripted_entry("--tool-names", "echo")}})
    with ExitStack() as stack, ExitStack() as first:
        port = first.enter_context(served(config))
        page, wrong = stack.enter_context(opened(browser, f"http://127.0.0.1:{port}/"))
        sign_in(page)
        assert TOKEN not in page.url
        show(page, "servers")
        page.locator(".servers button").filter(has_text="works").click()
        page.get_by_role("button", name="Start", exact=True).click()
        page.locator(".servers button").filter(has_text="ready").wait_for()
        show(page, "tools")
        page.locator(".items-list button").filter(has_text="echo").click()
        form = page.get_by_role("region", name="echo")
        form.get_by_role("button", name="JSON").click()
        editor = form.get_by_label("Arguments as JSON")
        editor.fill('{"text": "half a sen')
        first.close()
        banner = page.locator("#connection")
        banner.get_by_text("Connection lost.").wait_for()
        stack.enter_context(served(config, port))
        banner.get_by_text("Your session has ended.").wait_for()
        with page.context.expect_page() as another:
            banner.get_by_role("link", name="sign in in another tab").click()
        sign_in(another.value)
        banner.locator("p").wait_for(state="detached")
        assert editor.input_value() == '{"text": "half a sen'
        editor.fill('{"text": "half a sentence"}')
        form.get_by_role("button", name="Call the tool").click()
        form.locator(".answer").get_by_text("half a sentence").first.wait_for()
        assert wrong == []
