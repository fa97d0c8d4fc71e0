"""The page of the shared workbench in a real browser: clients that share it, and the workbench that takes its place."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.shell import run
from tests.seeing.page.browser import opened
from tests.seeing.page.line_client import LineClient
from tests.seeing.page.test_browser_workbench import show
from tests.sharing.harness import Shared
from tests.support import processes
from tests.support.workbench import scripted_entry, write_config

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> None:
    """The browser starts and ends processes as it likes, during any test: `chromium` looks for those that are left."""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    workbench = Shared(tmp_path)
    workbench.up()
    yield workbench
    workbench.clean_up()


def joined(folder: Path, name: str, server: str) -> LineClient:
    """A client with a configuration of its own, and so with a gateway of its own."""
    folder.mkdir()
    return LineClient(write_config(folder, {"box": {server: scripted_entry("--tool-names", "echo")}}), name)


def page_address() -> str:
    done = run("page", "--no-browser")
    assert done.status == 0, done
    return done.stdout.strip()


def test_calls_and_servers_of_all_clients_are_on_one_page(browser: Browser, shared: Shared, tmp_path: Path) -> None:
    first, second = joined(tmp_path / "one", "agent-1", "first"), joined(tmp_path / "two", "agent-2", "second")
    try:
        with opened(browser, page_address()) as (page, wrong):
            show(page, "servers")
            for server in ("first", "second"):
                page.locator(".servers li").filter(has_text=server).wait_for()
            show(page, "live")
            for client, server in ((first, "first"), (second, "second")):
                assert "result" in client.answer(client.use(server, "echo", text=f"for {server}"))
                page.locator(".calls button").filter(has_text=f"box/{server}/echo").wait_for()
            rows = page.locator(".calls button").all_inner_texts()
            assert ["agent-2" in row for row in rows] == [True, False], rows
            page.locator(".calls button").filter(has_text="agent-1").click()
            page.get_by_role("group", name="Arguments").get_by_text("for first").wait_for()
            assert wrong == []
    finally:
        first.close()
        second.close()


def test_page_of_a_killed_workbench_asks_for_a_sign_in_and_goes_on(
    browser: Browser, shared: Shared, tmp_path: Path
) -> None:
    client = joined(tmp_path / "one", "agent", "first")
    try:
        address = page_address()
        with opened(browser, address) as (page, _):
            show(page, "tools")
            page.get_by_label("Search tools").fill("half a wo")
            shared.kill()
            # The front end of the client starts the next one.
            banner = page.locator("#connection")
            banner.get_by_text("Your session has ended.").wait_for(timeout=30_000)
            assert "mcp-workbench page" in banner.inner_text()
            processes.wait_until(lambda: len(shared.pids) == 2, what="the next workbench")
            again = page_address()
            assert again.partition("login")[0] == address.partition("login")[0]
            page.context.new_page().goto(again)
            banner.locator("p").wait_for(state="detached")
            assert page.get_by_label("Search tools").input_value() == "half a wo"
            assert "result" in client.answer(client.use("first", "echo", text="x"))
            show(page, "live")
            page.locator(".calls button").filter(has_text="echo").wait_for()
    finally:
        client.close()


def test_page_of_a_workbench_that_was_ended_stays_closed_and_names_the_command(
    browser: Browser, shared: Shared
) -> None:
    address = page_address()
    with opened(browser, address) as (page, _):
        page.locator("html[data-status=live]").wait_for()
        shared.down()
        page.locator("#connection").get_by_text("mcp-workbench page").wait_for()
    shared.up()
    with closing(socket.socket()) as knocking:
        assert knocking.connect_ex(("127.0.0.1", int(address.split(":")[2].partition("/")[0]))) != 0
