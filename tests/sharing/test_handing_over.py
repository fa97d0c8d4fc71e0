"""How a workbench that is restarted takes leave of its clients."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.cli.serving_context import Contexts
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.sharing import client
from mcp_workbench.sharing.front.line_protocol import COME_AGAIN, CONTROL, PONG, written_hello
from mcp_workbench.sharing.workbench import SharedWorkbench
from tests.support.processes import eventually
from tests.support.workbench import scripted_entry, write_config

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GOODBYE = CONTROL + COME_AGAIN + b"\n"
HANGING = {"tool": {"toolbox": "box", "server": "server", "tool": "hang"}, "arguments": {}}


@asynccontextmanager
async def joined(folder: Path, config: Path) -> AsyncIterator[tuple[SharedWorkbench, Streams]]:
    """A shared workbench in this process, and the connection of a front end whose client has introduced itself."""
    folder.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen()
    served = SharedWorkbench(listener, Contexts().of, Redactor(()))
    running = asyncio.create_task(served.run())
    reader, writer = await asyncio.open_unix_connection(folder / "s")
    try:
        writer.write(written_hello(("--config", str(config))))
        assert (await reader.readline()).startswith(b"\x01accepted ")
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        send(writer, {"id": 0, "method": "initialize", "params": about})
        send(writer, {"method": "notifications/initialized"})
        yield served, (reader, writer)
    finally:
        writer.close()
        served.end("the test is over", COME_AGAIN)
        await running


def send(writer: asyncio.StreamWriter, message: dict[str, object]) -> None:
    writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def test_calls_that_had_their_time_do_not_keep_a_client_waiting_after_the_goodbye(
    sockets_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESTART_DRAIN_TIMEOUT", 1.0)
    monkeypatch.setattr(client, "STDIO_DRAIN_TIMEOUT", 0.0)
    monkeypatch.setattr(client, "SIGN_OF_LIFE_INTERVAL", 0.1)
    config = write_config(tmp_path, {"box": {"server": scripted_entry("--log", tmp_path / "log")}}, shared=True)
    async with joined(sockets_folder, config) as (served, (reader, writer)):
        send(writer, {"id": 1, "method": "tools/call", "params": {"name": "use_tool", "arguments": HANGING}})
        await eventually(lambda: (tmp_path / "log").exists() and '"hang"' in (tmp_path / "log").read_text())
        served.end("a restart", COME_AGAIN, is_succeeded=True)
        await reader.readuntil(GOODBYE)
        writer.write_eof()
        rest = await reader.read()
    assert b'"id":1,' in rest
    assert CONTROL + PONG not in rest, "it went on waiting"


async def test_clients_are_handed_over_even_if_no_room_can_be_made(
    sockets_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, {"box": {"server": scripted_entry()}}, shared=True)
    async with joined(sockets_folder, config) as (served, (reader, writer)):

        async def fails() -> None:
            raise OSError

        monkeypatch.setattr(served, "_make_room", fails)
        served.end("a restart", COME_AGAIN, is_succeeded=True)
        await reader.readuntil(GOODBYE)
        writer.write_eof()
        await reader.read()
