"""Servers that may reach some hosts, behind the real workbench."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.socket_peers import is_confined
from tests.cli.shell import run
from tests.end_to_end.harness import Workbench
from tests.support.client import Json, RawClient
from tests.support.workbench import scripted_entry

SCRIPT = Path(__file__).with_name("fetching_server.py")
pytestmark = [
    pytest.mark.skipif(
        capabilities().why_no_bwrap() is not None or not capabilities().has_filters,
        reason=f"needs seccomp, and bwrap to work: {capabilities().why_no_bwrap()}",
    ),
    pytest.mark.skipif(is_confined(), reason="everything here has no_new_privs, so servers cannot be recognised"),
]


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "server").mkdir()
    shutil.copy(SCRIPT, tmp_path / "server")
    return Workbench(tmp_path)


class Site:
    """A web site on this machine."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nwelcome")
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def serving_site() -> AsyncIterator[Site]:
    found = Site()
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


def fetching(workbench: Workbench, *hosts: str) -> Json:
    script = workbench.folder / "server" / SCRIPT.name
    sandbox = {"profile": "contained", "network": ["other.org", *hosts]}
    return {"command": "/usr/bin/python3", "args": [str(script)], "sandbox": sandbox}


@asynccontextmanager
async def with_fetching(workbench: Workbench, site: Site, **settings: Any) -> AsyncIterator[RawClient]:
    box = {"first": scripted_entry(), "fetching": fetching(workbench, f"localhost:{site.port}")}
    async with workbench.serving({"box": box}, **settings) as client:
        yield client


async def fetch(client: RawClient, address: str, **more: bool) -> str:
    result = await client.use_tool("box", "fetching", "fetch", {"address": address, **more})
    text: str = result["content"][0]["text"]
    return text


async def test_listed_hosts_are_reached_and_others_are_refused_counted_and_shown(workbench: Workbench) -> None:
    audit = workbench.folder / "audit.jsonl"
    async with serving_site() as site, with_fetching(workbench, site, audit={"file": str(audit)}) as client:
        assert await fetch(client, f"http://localhost:{site.port}/a") == "welcome"
        for _ in range(2):
            text = await fetch(client, "http://elsewhere.test/")
            assert "403" in text and "`elsewhere.test` is not in its `network`" in text
        assert "failed" in await fetch(client, f"http://127.0.0.1:{site.port}/")
        # Without the proxy there is no network.
        assert "failed" in await fetch(client, f"http://127.0.0.1:{site.port}/", direct=True)
        assert [request.split(b"\r\n")[0] for request in site.requests] == [b"GET /a HTTP/1.1"]
        (status,) = [each for each in json.loads(run("status", "--json").stdout) if each["pid"] == client.pid]
        shown = {each["server"]: each.get("refusedHosts") for each in status["servers"]}
        assert shown == {"first": None, "fetching": {"elsewhere.test": 2, f"127.0.0.1:{site.port}": 1}}
        assert "refused it hosts\n    elsewhere.test (2)" in run("status").stdout
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    refused = [each for each in events if each.get("kind") == "egress"]
    assert [each["item"] for each in refused] == ["elsewhere.test", f"127.0.0.1:{site.port}"], "each once"
    assert {each["server"] for each in refused} == {"fetching"}
