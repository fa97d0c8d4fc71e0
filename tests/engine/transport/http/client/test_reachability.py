"""Whether somebody listens at an address, and what is said where nobody does."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mcp_workbench.engine.transport.http.client import reachability
from mcp_workbench.engine.transport.http.client.reachability import why_unreachable


def free_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port: int = closed.getsockname()[1]
        return port


async def said(url: str, **environ: str) -> str | None:
    why = await why_unreachable(url, environ)
    return None if why is None else why.message


async def test_nothing_is_said_where_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert await said(f"http://127.0.0.1:{port}/mcp?key=secret") is None
        assert await said("http://never.test/mcp", http_proxy=f"http://127.0.0.1:{port}") is None


async def test_message_names_the_unreachable_address() -> None:
    port = free_port()
    assert await said(f"http://127.0.0.1:{port}/mcp") == f"nothing is listening at http://127.0.0.1:{port}"
    away = await said("http://never.test/mcp", http_proxy=f"http://127.0.0.1:{port}")
    assert away is not None and away.startswith(f"the proxy http://127.0.0.1:{port} cannot be reached: ")


async def test_unsupported_address_is_not_probed() -> None:
    assert await said("ftp://one.test") is None


async def test_probe_of_a_silent_address_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str, port: int) -> socket.socket:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(reachability, "connect", never)
    monkeypatch.setattr(reachability, "REACHABILITY_TIMEOUT", 0.01)
    assert await said("http://one.test/mcp") == "timed out connecting to http://one.test"
