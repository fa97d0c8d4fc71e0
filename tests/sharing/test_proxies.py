"""The proxy on the way to an address is the client's own, and so is what it is shown."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.engine.transport.http.client.address import Address
from mcp_workbench.engine.transport.http.client.dialing import proxy_for
from tests.sharing.harness import Shared

BOX = {"web": {"server": {"url": "http://server.invalid/mcp"}}}
NAMES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


@asynccontextmanager
async def proxy(seen: list[str]) -> AsyncIterator[int]:
    """Refuses everything, and remembers the credentials that it was shown."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        shown = [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("proxy-auth")]
        seen.extend(base64.b64decode(each.removeprefix("Basic ")).decode() for each in shown)
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_each_client_has_its_own_proxy(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    of_first: list[str] = []
    of_second: list[str] = []
    async with proxy(of_first) as first, proxy(of_second) as second:
        plain = dict(os.environ)
        monkeypatch.setenv("http_proxy", f"http://first:hunter1@127.0.0.1:{first}")
        shared.up()
        other = {**plain, "http_proxy": f"http://second:hunter2@127.0.0.1:{second}"}
        for env in (dict(os.environ), other, plain):
            async with shared.client(BOX, env=env) as client:
                failed = await client.use_tool("web", "server", "any")
                assert failed["isError"]
                assert "hunter" not in str(failed)
    assert set(of_first) == {"first:hunter1"}
    assert set(of_second) == {"second:hunter2"}
    assert "hunter" not in shared.log


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://upper:1"}, "http://upper:1"),
        ({"http_proxy": "http://lower:1", "HTTP_PROXY": "http://upper:1"}, "http://lower:1"),
        ({"ALL_PROXY": "all:1"}, "http://all:1"),
        ({"https_proxy": "http://other:1"}, None),
        ({"http_proxy": "http://lower:1", "NO_PROXY": "server.test"}, None),
        ({"http_proxy": "http://lower:1", "no_proxy": "other.test"}, "http://lower:1"),
    ],
)
def test_a_clients_environment_is_read_as_our_own(environ: dict[str, str], expected: str | None) -> None:
    found = proxy_for(Address.parse("http://server.test/mcp"), environ)
    assert (None if found is None else found.origin) == expected
