"""Hosts that the sandbox of a real server refused, allowed by a person in a real browser."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.socket_peers import is_confined
from tests.end_to_end.test_sandbox_hosts import SCRIPT
from tests.seeing.page.browser import opened
from tests.seeing.page.line_client import LineClient
from tests.seeing.page.test_browser_workbench import page_address, show
from tests.support import processes
from tests.support.workbench import write_config

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().why_no_bwrap() is not None or not capabilities().has_filters,
        reason=f"needs seccomp, and bwrap to work: {capabilities().why_no_bwrap()}",
    ),
    pytest.mark.skipif(is_confined(), reason="everything here has no_new_privs, so nobody can decide"),
]


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> None:
    """The browser starts and ends processes as it likes, during any test: `chromium` looks for those that are left."""


@pytest.fixture
def site() -> Iterator[str]:
    """A web site on this machine, as host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "7")
            self.end_headers()
            self.wfile.write(b"welcome")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LineClient]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "server").mkdir()
    script = shutil.copy(SCRIPT, tmp_path / "server")
    # Something on this machine is listed: otherwise programs would not ask the proxy for it.
    sandbox = {"profile": "contained", "network": ["other.org", "localhost:1"]}
    servers = {"fetching": {"command": "/usr/bin/python3", "args": [str(script)], "sandbox": sandbox}}
    config = write_config(tmp_path, {"box": servers}, audit={"file": str(tmp_path / "audit.jsonl")})
    connected = LineClient(config)
    yield connected
    connected.close()


def fetched(client: LineClient, address: str) -> str:
    result: dict[str, Any] = client.answer(client.use("fetching", "fetch", address=address))["result"]
    text: str = result["content"][0]["text"]
    return text


def test_allowed_host_is_reached_at_once_and_others_stay_refused(
    browser: Browser, client: LineClient, site: str, tmp_path: Path
) -> None:
    with opened(browser, page_address(client)) as (page, wrong):
        for address in (f"http://{site}/", "http://elsewhere.test/", "http://*.test/"):
            assert "403" in fetched(client, address)
        card = page.get_by_role("article", name="Refused hosts box/fetching")
        card.get_by_role("button", name=f"Allow this host: {site}").click()
        card.get_by_text("Allowed until the workbench ends.").wait_for()
        assert fetched(client, f"http://{site}/") == "welcome"
        assert "403" in fetched(client, "http://elsewhere.test/")
        card.get_by_role("button", name="Keep refusing: elsewhere.test").click()
        # Nothing is left to decide.
        card.wait_for(state="detached")
        show(page, "servers")
        page.locator(".servers button").filter(has_text="fetching").click()
        rows = page.get_by_role("region", name="box/fetching").locator(".hosts li")
        rows.filter(has_text="elsewhere.test").get_by_text("It stays refused.").wait_for()
        assert rows.filter(has_text="*.test").get_by_role("button").count() == 0
        setting = page.get_by_role("group", name="Setting").inner_text()
        assert json.loads("{" + setting + "}") == {"network": ["other.org", "localhost:1", site]}
        rows.filter(has_text=site).get_by_role("button", name="Keep refusing").click()
        rows.filter(has_text=site).get_by_text("It stays refused.").wait_for()
        assert "403" in fetched(client, f"http://{site}/")
        assert wrong == []

    def decided() -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        return [(each["item"], each["decision"]) for each in lines if each["kind"] == "egress" and "by" in each]

    processes.wait_until(lambda: len(decided()) == 3, what="the lines of the decisions")
    assert decided() == [(site, "passed"), ("elsewhere.test", "denied"), (site, "denied")]
