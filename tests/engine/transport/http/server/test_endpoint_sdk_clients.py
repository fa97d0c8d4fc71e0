"""The official SDK's client, in both of its modes, in front of our endpoint with the whole workbench behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, HttpServer, serve_http
from mcp_workbench.engine.transport.http.server.limits import Limits

ERAS = ("legacy", "auto")


@contextlib.asynccontextmanager
async def workbench(config: Path, limits: Limits | None = None) -> AsyncIterator[HttpServer]:
    gateway = Gateway(load(str(config), os.environ), Options(use_cache=False))
    async with gateway.running():
        options = HttpOptions(port=0, limits=limits or Limits())
        server = await serve_http(options, gateway.make_session, parameters_of=gateway.mirrored_parameters())
        try:
            yield server
        finally:
            await server.stop()


@pytest.fixture
def config(scripted: Callable[..., dict[str, Any]], write_config: Callable[..., Path]) -> Path:
    return write_config({"box": {"server": scripted()}})


async def call(client: Client, tool: str, **arguments: Any) -> types.CallToolResult:
    identifier = {"toolbox": "box", "server": "server", "tool": tool}
    result = await client.call_tool("use_tool", {"tool": identifier, "arguments": arguments})
    assert isinstance(result, types.CallToolResult)
    return result


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_and_called(config: Path, era: Any) -> None:
    async with workbench(config) as server, Client(server.url, mode=era, read_timeout_seconds=20) as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} >= {"open_toolbox", "use_tool"}
        await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        result = await call(client, "echo", text="grüß dich")
        assert not result.is_error and result.structured_content == {"text": "grüß dich"}


@pytest.mark.parametrize("era", ERAS)
async def test_many_clients_call_at_once_and_each_gets_its_own(config: Path, era: Any) -> None:
    async with workbench(config) as server:

        async def use(name: str) -> list[str]:
            async with Client(server.url, mode=era, read_timeout_seconds=20) as client:
                results = await asyncio.gather(*(call(client, "echo", text=f"{name}-{n}") for n in range(5)))
                return [str(result.content) for result in results]

        for number, texts in enumerate(await asyncio.gather(*(use(f"c{number}") for number in range(4)))):
            assert all(f"c{number}-{n}" in text for n, text in enumerate(texts))


async def test_sessions_end_with_the_client(config: Path) -> None:
    async with workbench(config) as server:
        async with Client(server.url, mode="legacy", read_timeout_seconds=20) as client:
            await client.list_tools()
            assert server.session_count == 1
        assert server.session_count == 0
