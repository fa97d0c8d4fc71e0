"""A call over HTTP of a user with a named key, under three rules, takes a fixed number of steps. They are counted from
the bytes that arrive on an open connection to those that leave it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mcp_workbench.app.gateway import Options
from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce, folder
from tests.engine.router.test_router_length_of_a_call import PACKAGE, Steps
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
MAX_STEPS = {"legacy": 65, "modern": 80}


class Connection:
    """One connection to the endpoint, kept open."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        token: str,
        era: str,
        callers: HttpCallers,
    ) -> None:
        self._callers = callers
        self._reader = reader
        self._writer = writer
        self._era = era
        self._headers = {
            "host": "127.0.0.1",
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

    @property
    def keys(self) -> KeysInForce:
        assert self._callers._keys is not None
        return self._callers._keys

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


class Bytecodes:
    """Counts the bytecodes that functions of ours run while it is entered, in this thread."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()

    def __enter__(self) -> Bytecodes:
        # That of coverage, if it is measured.
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _on_call(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        name, count = f"{Path(code.co_filename).stem}.{code.co_name}", self.by_function

        def on_event(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            count[name] += event == "opcode"
            return on_event

        return on_event


@asynccontextmanager
async def connected(
    tmp_path: Path, era: str, expires: float | None = None, *, is_open: bool = False, is_audited: bool = False
) -> AsyncIterator[Connection]:
    """`is_open`: anybody may call, without rules."""
    server = Server(tool("status", "Show."), tool("echo", "Say.", text="string"))
    settings: dict[str, Any] = {} if is_open else {"policy": RULES}
    if is_audited:
        settings["audit"] = {"file": str(tmp_path / "audit.jsonl")}
    path = write(tmp_path, {"box": {"files": server}}, **settings)
    options = Options(use_cache=False, is_audited=is_audited)
    gateway = InProcessGateway(load(str(path), os.environ), {"box/files": server}, options)
    keys = folder()
    assert keys is not None
    token = "" if is_open else KeyFolder(keys).create("alice", expires=expires)
    async with gateway.running():
        gateway.runtime.pool.serve_many()
        proofs = CallerOptions(serves_everyone=True) if is_open else CallerOptions(token="that of others")
        callers = HttpCallers(gateway, proofs)
        http = HttpOptions(port=0, authenticator=callers.authenticator)
        parameters = gateway.mirrored_parameters()
        endpoint = await serve_http(http, gateway.make_session, parameters_of=parameters)
        callers.started(endpoint)
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        try:
            connection = Connection(reader, writer, token, era, callers)
            if era == "legacy":
                await connection.request(0, "initialize", HELLO)
            yield connection
        finally:
            writer.close()
            await writer.wait_closed()
            await endpoint.stop()


@pytest.mark.parametrize("era", MAX_STEPS)
async def test_a_call_with_a_key_and_rules_takes_no_more_steps_than_it_needs(tmp_path: Path, era: str) -> None:
    async with connected(tmp_path, era) as connection:
        # What is loaded, looked up or set up with the first calls. The counted one has as many bytes as these.
        for id in (11, 12, 13):
            await connection.call(id)
        with Steps() as steps:
            assert "heard" in await connection.call(14)
    assert "traffic.forward" in steps.names and "rules_in_force.decide" in steps.names, "otherwise nothing is counted"
    assert "bearer_tokens.recognise" not in steps.names, "a key that was not revoked since need not be looked up again"
    assert len(steps.names) <= MAX_STEPS[era], "\n".join(steps.names)
    assert not [path for path in steps.paths if "/cli/" in path]
    assert "message_summary.kind_and_id" not in steps.names, "the answer is not read to learn which one it is"


# A key, three rules and an audit, against the same call without them. Its line of the audit is written by a thread.
MAX_TIMES_GUARDED = 1.5


@pytest.mark.parametrize("era", MAX_STEPS)
async def test_key_rules_and_audit_take_at_most_half_of_a_call_in_addition(tmp_path: Path, era: str) -> None:
    counted: list[Counter[str]] = []
    for is_open in (True, False):
        folder = tmp_path / str(is_open)
        folder.mkdir()
        async with connected(folder, era, is_open=is_open, is_audited=not is_open) as connection:
            for id in (11, 12, 13):
                await connection.call(id)
            with Bytecodes() as bytecodes:
                assert "heard" in await connection.call(14)
        counted.append(bytecodes.by_function)
    plain, guarded = counted
    assert "traffic.forward" in plain and "rules_in_force.decide" not in plain, "otherwise nothing is compared"
    assert "rules_in_force.decide" in guarded and "audit_step.on_end" in guarded, "otherwise nothing is compared"
    assert guarded.total() <= MAX_TIMES_GUARDED * plain.total(), guarded - plain


# ── what is remembered of a key is not believed for longer than the key ──


REFUSED = r"HTTP/1\.1 401"


async def test_a_key_that_was_revoked_is_refused_with_the_next_call(tmp_path: Path) -> None:
    async with connected(tmp_path, "modern") as connection:
        for id in (11, 12):
            assert "heard" in await connection.call(id)
        KeyFolder(connection.keys.path).revoke("alice")
        connection.keys.reload()
        with pytest.raises(AssertionError, match=REFUSED):
            await connection.call(13)


async def test_a_key_that_has_expired_is_refused_with_the_next_call(tmp_path: Path) -> None:
    async with connected(tmp_path, "modern", expires=2_000_000_000.0) as connection:
        connection.keys._now = lambda: 1_999_999_999.0
        for id in (11, 12):
            assert "heard" in await connection.call(id)
        connection.keys._now = lambda: 2_000_000_000.0
        with pytest.raises(AssertionError, match=REFUSED):
            await connection.call(13)


async def test_a_key_that_could_not_be_read_again_is_looked_up_each_time(tmp_path: Path) -> None:
    async with connected(tmp_path, "modern") as connection:
        for id in (11, 12):
            assert "heard" in await connection.call(id)
        with Steps() as steps:
            assert "heard" in await connection.call(13)
        assert "named_keys.find" not in steps.names
        connection.keys._note("disk full")
        with Steps() as steps:
            assert "heard" in await connection.call(14)
        assert "named_keys.find" in steps.names


async def test_limits_of_a_key_that_was_made_again_apply_to_the_next_call(tmp_path: Path) -> None:
    """The file of the key is replaced by one with the same token: only the limits are others."""
    async with connected(tmp_path, "modern") as connection:
        for id in (11, 12):
            assert "heard" in await connection.call(id)
        file = Path(connection.keys.path, "alice.json")
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "toolboxes": ["others"]}))
        connection.keys.reload()
        assert "heard" not in await connection.call(13)
