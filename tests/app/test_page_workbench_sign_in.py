"""Signing in to a server from the page, with an authorization server at the other end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.page_client_of_tests import Browser
from tests.engine.session.test_signing_in import USE_TOOL, OAuthClient, workbench
from tests.engine.transport.http.server.raw_client import raw_client
from tests.signin.authority import follow, sign_in_setup

pytestmark = pytest.mark.processes


async def page_address(pid: int) -> str:
    """Sockets are opened a moment after the first answer."""
    async with asyncio.timeout(60):
        while True:
            command = [sys.executable, "-m", "mcp_workbench", "page", "--no-browser", "--pid", str(pid)]
            asked = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, said = await asked.communicate()
            if asked.returncode == 0:
                return out.decode().strip()
            assert b"no workbench is running" in said, said


async def use(client: OAuthClient) -> dict[str, Any]:
    return await client.answer(client.ask("tools/call", USE_TOOL))


async def test_a_sign_in_that_waits_is_begun_on_the_page_and_lets_calls_through(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, workbench(tmp_path, at.authority) as client:
        await client.shake_hands({})
        refused = await use(client)
        assert "error" in refused or refused["result"]["isError"] is True
        address = await page_address(client._process.pid)
        port = int(address.split(":")[2].partition("/")[0])
        async with raw_client(port) as raw:
            browser = Browser(raw, port, None)
            await browser.keep_cookie(await browser.get("/login" + address.partition("/login")[2]))
            waiting = (await browser.state())["waiting"]
            assert [(each["kind"], each["server"]) for each in waiting] == [("sign_in", "files")]
            assert (await browser.post("/api/sign-in", {"toolbox": "box", "server": "other"})).status == 404
            begun = await browser.post("/api/sign-in", {"toolbox": "box", "server": "files"})
            assert begun.status == 200, begun.body
            assert begun.json["url"].startswith(f"{at.authority.origin}/")
            await follow(begun.json["url"])
            async with asyncio.timeout(30):
                # The token is fetched after the browser has its answer.
                while (await use(client))["result"].get("isError"):
                    pass
            assert (await browser.state())["waiting"] == []
