"""Arguments that are mirrored into headers, with the whole workbench in front of the server that wants them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp import Client, MCPError

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from tests.engine.transport.http.listening import Reply, Request, scripted_http

MISMATCH = {"code": -32020, "message": "Header mismatch: `Mcp-Param-Region` is missing"}


class Changing:
    """A modern server whose tool begins to want a header, without a word to those who know its list."""

    def __init__(self, *, wants: str = "region", is_legacy: bool = False) -> None:
        self.wants = wants
        self.is_legacy = is_legacy
        self.refused = 0
        self.has_changed = False
        self.ran = 0
        self.lists = 0

    async def _meet(self, method: str, message: dict[str, Any], reply: Reply) -> None:
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "what?"}}
        if method == "initialize" and self.is_legacy:
            answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}}}
        await reply.send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())

    async def __call__(self, request: Request, reply: Reply) -> None:
        message = json.loads(request.body)
        method = message.get("method")
        if method is None or "id" not in message:
            await reply.send(202)
            return
        if method == "initialize" or (self.is_legacy and method == "server/discover"):
            await self._meet(method, message, reply)
            return
        if method == "server/discover":
            result: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            self.lists += 1
            region = {"type": "string", **({"x-mcp-header": "Region"} if self.has_changed else {})}
            schema = {"type": "object", "properties": {"region": region}}
            result = {"tools": [{"name": "ship", "inputSchema": schema}], "ttlMs": 0, "cacheScope": "private"}
        elif self.has_changed and request.headers.get("mcp-param-region") != message["params"]["arguments"][self.wants]:
            self.refused += 1
            body = {"jsonrpc": "2.0", "id": message["id"], "error": MISMATCH}
            await reply.send(200 if self.is_legacy else 400, json.dumps(body).encode())
            return
        else:
            self.ran += 1
            result = {"content": [{"type": "text", "text": "shipped"}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
        await reply.send(200, json.dumps(body).encode())


async def ship(server: Changing, write_config: Callable[..., Path], *, after_change: int) -> list[Any]:
    async with scripted_http(server) as listening:
        config = write_config({"box": {"remote": {"url": listening.url}}})
        gateway = Gateway(load(str(config), os.environ), Options(use_cache=False))
        async with gateway.running():
            served = await serve_http(
                HttpOptions(port=0), gateway.make_session, parameters_of=gateway.mirrored_parameters()
            )
            try:
                async with Client(served.url, mode="legacy", read_timeout_seconds=20) as client:
                    arguments = {"region": "north", "other": "south"}
                    call = {"tool": "box/remote/ship", "arguments": arguments}
                    assert not (await client.call_tool("use_tool", call)).is_error
                    server.has_changed = True
                    results: list[Any] = []
                    for _ in range(after_change):
                        try:
                            results.append(await client.call_tool("use_tool", call))
                        except MCPError as error:
                            results.append(error)
                    return results
            finally:
                await served.stop()


async def test_a_call_whose_headers_were_refused_is_sent_again_with_those_of_the_new_list(
    write_config: Callable[..., Path],
) -> None:
    server = Changing()
    results = await ship(server, write_config, after_change=2)
    assert [result.is_error for result in results] == [False, False]
    assert (server.ran, server.lists) == (3, 2), "once for each call, and one more look at the list"


async def test_headers_that_are_refused_again_are_an_error(write_config: Callable[..., Path]) -> None:
    server = Changing(wants="other")
    (refusal,) = await ship(server, write_config, after_change=1)
    assert isinstance(refusal, MCPError) and "Header mismatch" in str(refusal)
    assert (server.ran, server.lists) == (1, 2)


async def test_a_legacy_server_may_mean_anything_by_that_code_and_is_not_called_again(
    write_config: Callable[..., Path],
) -> None:
    server = Changing(is_legacy=True)
    (refusal,) = await ship(server, write_config, after_change=1)
    assert isinstance(refusal, MCPError)
    assert (server.refused, server.lists) == (1, 1)
