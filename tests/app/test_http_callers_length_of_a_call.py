"""A call over HTTP of a user with a named key, under three rules, takes a fixed number of steps. They are counted from
the bytes that arrive on an open connection to those that leave it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.gateway import Options
from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.team.identity.named_keys import KeyFolder, folder
from tests.engine.router.test_router_length_of_a_call import Steps
from tests.support.in_process_workbench import InProcessGateway, Server, tool, write

pytestmark = pytest.mark.processes

META = "io.modelcontextprotocol/"
STAMP = {
    META + "protocolVersion": "2026-07-28",
    META + "clientInfo": {"name": "counted", "version": "1"},
    META + "clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "counted", "version": "1"}}
# Before the default: all of them look at who calls and what, and the last of them applies.
RULES = [
    {"who": ["bob", "ci-*"], "tools": ["*/*/status"], "then": "hide"},
    {"who": ["alice"], "tools": ["box/*/drop*", "box/other/*"], "then": "deny"},
    {"who": ["a*"], "tools": ["box/*/*"], "then": "allow"},
    {"then": "deny"},
]
CALL = {"tool": {"toolbox": "box", "server": "files", "tool": "echo"}, "arguments": {"text": "heard"}}
MOST_STEPS = {"legacy": 103, "modern": 124}


class Connection:
    """One connection to the endpoint, kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, era: str) -> None:
        self._reader = reader
        self._writer = writer
        self._era = era
        self._headers = {
            "host": "127.0.0.1",
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

    async def request(self, id: int, method: str, params: dict[str, Any]) -> Any:
        headers = dict(self._headers)
        if self._era == "modern":
            params = {**params, "_meta": STAMP}
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": params["name"]}
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()
        headers["content-length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        answered = dict(line.split(": ", 1) for line in lines[1:] if line)
        if "mcp-session-id" in answered:
            self._headers["mcp-session-id"] = answered["mcp-session-id"]
        assert lines[0].startswith("HTTP/1.1 200"), lines
        return json.loads(await self._reader.readexactly(int(answered["content-length"])))

    async def call(self, id: int) -> str:
        answer = await self.request(id, "tools/call", {"name": "use_tool", "arguments": CALL})
        return json.dumps(answer["result"])


@asynccontextmanager
async def connected(tmp_path: Path, era: str) -> AsyncIterator[Connection]:
    server = Server(tool("status", "Show."), tool("echo", "Say.", text="string"))
    path = write(tmp_path, {"box": {"files": server}}, policy=RULES)
    gateway = InProcessGateway(load(str(path), os.environ), {"box/files": server}, Options(use_cache=False))
    keys = folder()
    assert keys is not None
    token = KeyFolder(keys).create("alice")
    async with gateway.running():
        gateway.runtime.pool.serve_many()
        callers = HttpCallers(gateway, CallerOptions(token="that of others"))
        options = HttpOptions(port=0, authenticator=callers.authenticator)
        parameters = gateway.mirrored_parameters()
        endpoint = await serve_http(options, gateway.make_session, parameters_of=parameters)
        callers.started(endpoint)
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        try:
            connection = Connection(reader, writer, token, era)
            if era == "legacy":
                await connection.request(0, "initialize", HELLO)
            yield connection
        finally:
            writer.close()
            await writer.wait_closed()
            await endpoint.stop()


@pytest.mark.parametrize("era", MOST_STEPS)
async def test_a_call_with_a_key_and_rules_takes_no_more_steps_than_it_needs(tmp_path: Path, era: str) -> None:
    async with connected(tmp_path, era) as connection:
        # What is loaded, looked up or set up with the first calls. The counted one has as many bytes as these.
        for id in (11, 12, 13):
            await connection.call(id)
        with Steps() as steps:
            assert "heard" in await connection.call(14)
    assert "traffic.forward" in steps.names and "bearer_tokens.recognise" in steps.names, "otherwise nothing is counted"
    assert len(steps.names) <= MOST_STEPS[era], "\n".join(steps.names)
    assert not [path for path in steps.paths if "/cli/" in path]
    assert "message_summary.kind_and_id" not in steps.names, "the answer is not read to learn which one it is"
