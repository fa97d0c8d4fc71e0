"""A server at an address whose notification stream breaks while it lives: it is listened to again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.downstream import server_subscriptions
from mcp_workbench.engine.downstream.sharing import Caller
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until

pytestmark = pytest.mark.processes

ACKNOWLEDGED = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}


class Restarted:
    """Breaks the first stream after its acknowledgement, or refuses to stream at all; its tools change meanwhile."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.lists = 0
        self.streams = 0

    async def __call__(self, request: Request, reply: Reply) -> None:
        message = json.loads(request.body)
        method = message["method"]
        if method == "subscriptions/listen" and not self.refuses:
            self.streams += 1
            await reply.begin_events()
            await reply.chunk(b"data: " + json.dumps(ACKNOWLEDGED).encode() + b"\n\n")
            if self.streams == 1:
                reply.hang_up()
            else:
                await reply.wait_gone()
            return
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "no streams here"}}
        if method == "subscriptions/listen":
            self.streams += 1
        elif method == "server/discover":
            capabilities = {"tools": {"listChanged": True}}
            answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}}
        elif method == "tools/list":
            self.lists += 1
            name = "old" if self.lists == 1 else "new"
            answer = {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}}], "ttlMs": 0}}
        await reply.send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())


async def tools_after(server: Restarted, write_config: Callable[..., Path], until: Callable[[], bool]) -> list[str]:
    async with scripted_http(server) as listening:
        config = write_config({"box": {"remote": {"url": listening.url}}})
        gateway = Gateway(load(str(config), os.environ), Options(use_cache=False))
        async with gateway.running():
            entry = gateway.catalog.toolboxes["box"]["remote"]
            await gateway.runtime.pool.connection(entry, Caller("", "modern")).ensure_listed()
            await wait_until(until)
            await wait_until(lambda: server.refuses or "new" in entry.tools)
            return list(entry.tools)


async def test_a_stream_that_broke_is_opened_again_and_the_list_looked_at(
    write_config: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_subscriptions, "LISTEN_AGAIN_AFTER", 0.01)
    server = Restarted()
    assert await tools_after(server, write_config, lambda: server.streams >= 2) == ["new"]
    assert (server.streams, server.lists) == (2, 2)


async def test_a_server_that_says_that_it_has_no_streams_is_not_asked_again(
    write_config: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_subscriptions, "LISTEN_AGAIN_AFTER", 0.0)
    server = Restarted(refuses=True)
    assert await tools_after(server, write_config, lambda: server.lists >= 1) == ["old"]
    assert server.streams == 1
