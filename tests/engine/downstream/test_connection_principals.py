"""Whose connection it is: a link gets the credentials of the principal whose connection it is, and no others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal
from tests.engine.transport.http.listening import Reply, Request, scripted_http

pytestmark = pytest.mark.processes

RESULTS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
    "tools/list": {"tools": []},
}


class Waiting:
    """Headers that are there once somebody lets them be."""

    def __init__(self, principal: str) -> None:
        self._headers = {"authorization": f"Bearer {principal}"}
        self.is_there = asyncio.Event()

    def headers(self) -> Mapping[str, str] | None:
        return self._headers if self.is_there.is_set() else None

    async def fetch(self) -> Mapping[str, str]:
        await self.is_there.wait()
        return self._headers

    async def refused(self, refusal: CredentialRefusal) -> bool:
        return False


async def test_each_principal_has_its_own_header_source_that_blocks_no_other() -> None:
    seen: list[tuple[str, str]] = []

    async def answer(request: Request, reply: Reply) -> None:
        message = json.loads(request.body) if request.body else {}
        seen.append((message.get("method", request.method), request.headers.get("authorization", "")))
        if "id" in message:
            result = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}
            await reply.send(200, json.dumps(result).encode())
        else:
            await reply.send(202 if message else 405, b"")

    async with scripted_http(answer) as server:
        config = ServerConfig(name="server", url=server.url, transport="http", protocol="legacy")
        box = ToolboxConfig(name="box", description="A box.", servers={"server": config})
        gateway = Gateway(WorkbenchConfig(path="c.json", toolboxes={"box": box}), Options(use_cache=False))
        sources = {name: Waiting(name) for name in ("anna", "bert")}
        gateway.runtime.header_source = lambda connection: sources[connection.principal]
        entry = gateway.catalog.toolboxes["box"]["server"]
        async with asyncio.timeout(20), gateway.running():
            anna, bert = (gateway.runtime.pool.connection(entry, Caller(name, "legacy")) for name in ("anna", "bert"))
            assert (anna.principal, bert.principal) == ("anna", "bert") and anna is not bert
            late = asyncio.create_task(anna.ensure_listed())
            sources["bert"].is_there.set()
            await bert.ensure_listed()
            assert {token for _, token in seen} == {"Bearer bert"} and not late.done()
            sources["anna"].is_there.set()
            await late
    listed = [token for method, token in seen if method == "tools/list"]
    assert listed == ["Bearer bert", "Bearer anna"]
    assert {token for _, token in seen} == {"Bearer bert", "Bearer anna"}
