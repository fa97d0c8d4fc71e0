"""The page of a real workbench in a real browser: what clients, servers and people do reaches each other."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.seeing.page.browser import opened
from tests.seeing.page.line_client import LineClient
from tests.support import processes
from tests.support.workbench import scripted_entry, write_config

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.processes

HOSTILE = "<img src=x onerror=alert(1)>"
ENDS_AT_ONCE = f"import sys; print({HOSTILE!r} + 'z' * 2**20, file=sys.stderr); sys.exit('TOKEN is not set')"


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> None:
    """The browser starts and ends processes as it likes, during any test: `chromium` looks for those that are left."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    servers = {
        "works": scripted_entry("--tool-names", "echo,tool_2"),
        "breaks": {"command": sys.executable, "args": ["-c", ENDS_AT_ONCE]},
    }
    policy = [{"tools": ["box/works/tool_2"], "then": "ask"}, {"then": "allow"}]
    return write_config(tmp_path, {"box": servers}, policy=policy, audit={"file": str(tmp_path / "audit.jsonl")})


@pytest.fixture
def client(config: Path) -> Iterator[LineClient]:
    connected = LineClient(config)
    yield connected
    if connected.process.poll() is None:
        connected.close()


def page_address(client: LineClient, port: int = 0) -> str:
    """Sockets are opened a moment after the first answer."""
    command = [sys.executable, "-m", "mcp_workbench", "page", "--no-browser", "--pid", str(client.process.pid)]
    command += ["--port", str(port)] if port else []
    found: list[subprocess.CompletedProcess[str]] = []

    def is_answered() -> bool:
        found.append(subprocess.run(command, capture_output=True, text=True, timeout=60))
        return found[-1].returncode == 0 or "no workbench is running" not in found[-1].stderr

    processes.wait_until(is_answered, what="the workbench's socket")
    assert found[-1].returncode == 0, found[-1].stderr
    return found[-1].stdout.strip()


@pytest.fixture
def page(browser: Browser, client: LineClient) -> Iterator[Page]:
    with opened(browser, page_address(client)) as (page, wrong):
        page.locator("html[data-status=live]").wait_for()
        yield page
        assert wrong == []


def show(page: Page, view: str) -> None:
    page.locator(f"nav a[href='#{view}']").click()
    page.locator(f"#view-{view} h1").wait_for()


def test_address_signs_in_once(browser: Browser, client: LineClient) -> None:
    address = page_address(client)
    with opened(browser, address) as (page, _):
        page.locator("html[data-status=live]").wait_for()
        assert "code=" not in page.url
    with opened(browser, address) as (page, _):
        page.get_by_text("mcp-workbench page").wait_for()
        assert page.locator("nav").count() == 0


def test_call_of_a_client_appears_with_its_arguments(page: Page, client: LineClient) -> None:
    show(page, "live")
    answer = client.answer(client.use("works", "echo", text=HOSTILE))
    assert "result" in answer
    row = page.locator(".calls button").filter(has_text="echo").first
    row.wait_for()

    assert "agent" in row.inner_text()
    row.click()
    page.get_by_role("heading", name="Arguments").wait_for()
    assert HOSTILE in page.get_by_role("group", name="Arguments").inner_text()


def test_servers_have_states_and_causes_and_a_crash_waits_for_a_person(page: Page, client: LineClient) -> None:
    client.answer(client.use("works", "echo", text="x"))
    client.answer(client.use("breaks", "anything"))
    card = page.get_by_role("article", name="Not running box/breaks")
    card.get_by_text("TOKEN is not set").first.wait_for()
    assert page.locator("main img").count() == 0
    show(page, "servers")
    rows = page.locator(".servers li")
    rows.filter(has_text="works").filter(has_text="ready").wait_for()

    assert rows.filter(has_text="breaks").filter(has_text="ready").count() == 0


@pytest.mark.parametrize(("button", "succeeds"), [("Allow once", True), ("Deny", False)])
def test_decision_on_the_page_reaches_the_client(browser: Browser, config: Path, button: str, succeeds: bool) -> None:
    client = LineClient(config, asks=True)
    try:
        with opened(browser, page_address(client)) as (page, _):
            asked = client.use("works", "tool_2", text="long" * 10_000 + "careful")
            card = page.get_by_role("article", name="May it run? box/works/tool_2")
            card.get_by_role("button", name="Show the whole call").click()
            card.get_by_text("careful").wait_for()
            card.get_by_role("button", name=button).click()
            answer = client.answer(asked)
    finally:
        client.close()

    assert ("error" not in answer and answer["result"].get("isError") is not True) is succeeds, answer


def test_tool_is_called_from_its_form_and_is_in_the_audit(page: Page, client: LineClient, tmp_path: Path) -> None:
    client.answer(client.use("works", "echo", text="x"))
    show(page, "tools")
    page.locator(".items-list button").filter(has_text="echo").first.click()
    form = page.locator("#view-tools .pane")
    form.get_by_role("button", name="JSON").click()
    form.get_by_label("Arguments as JSON").fill('{"text": "from the page"}')
    form.get_by_role("button", name="Call the tool").click()
    form.get_by_text("Result").wait_for()

    assert "from the page" in form.locator(".answer").inner_text()
    # The audit is written in a thread, some milliseconds after the answer.
    processes.wait_until(
        lambda: (
            [
                json.loads(line)["peer"]
                for line in (tmp_path / "audit.jsonl").read_text().splitlines()
                if json.loads(line).get("item") == "echo"
            ][-1:]
            == ["page"]
        ),
        what="the line of the call",
    )
    show(page, "audit")
    page.get_by_text("Chain verified", exact=True).wait_for()


def test_page_comes_back_after_the_workbench_was_killed_and_started_again(
    browser: Browser, client: LineClient, config: Path
) -> None:
    address = page_address(client)
    port = int(address.split(":")[2].split("/")[0])
    with opened(browser, address) as (page, _):
        show(page, "tools")
        page.get_by_label("Search tools").fill("half a wo")
        client.kill()
        page.get_by_text("Connection lost.").wait_for()
        second = LineClient(config)
        try:
            again = page_address(second, port)
            page.get_by_text("Your session has ended.").wait_for()
            # What the command opens: a tab of the same browser.
            page.context.new_page().goto(again)
            page.locator("html[data-status=live]").wait_for()
        finally:
            second.close()

        assert page.get_by_label("Search tools").input_value() == "half a wo"


def test_another_site_can_neither_read_nor_post_nor_frame(page: Page, client: LineClient) -> None:
    client.answer(client.use("works", "echo", text="x"))
    address = page.url
    show(page, "servers")
    works = page.locator(".servers button").filter(has_text="works")
    works.filter(has_text="ready").click()
    starts = page.locator("#view-servers .facts > div").filter(has_text="Starts")
    assert starts.inner_text().split() == ["Starts", "1"]
    other: Any = page.context.new_page()
    # The same host at another port is another origin, and gets the same cookie.
    other.route("http://127.0.0.1:9/*", lambda route: route.fulfill(body="<p>Elsewhere", content_type="text/html"))
    other.goto("http://127.0.0.1:9/")
    read = other.evaluate(
        "(url) => fetch(url + 'api/state', {credentials: 'include'}).then(() => 'read', () => 'refused')", address
    )
    asked = "{method: 'POST', mode: 'no-cors', credentials: 'include', body}"
    body = json.dumps({"toolbox": "box", "server": "works", "do": "stop"})
    posted = other.evaluate(
        f"([url, body]) => fetch(url + 'api/server', {asked}).then(() => 'posted', () => 'refused')", [address, body]
    )
    other.evaluate(
        "(url) => new Promise((loaded) => document.body.append(Object.assign(document.createElement('iframe'), "
        "{src: url, onload: loaded})))",
        address,
    )

    assert (read, posted) == ("refused", "refused")
    # What listens there has the cookie, and cannot use it.
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())
    replayed = urllib.request.Request(address.partition("#")[0] + "api/state", headers={"cookie": cookies})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(replayed)
    assert [frame.locator("nav").count() for frame in other.frames[1:]] == [0]
    assert "result" in client.answer(client.use("works", "echo", text="again"))
    works.filter(has_text="2 calls").wait_for()
    assert starts.inner_text().split() == ["Starts", "1"]
