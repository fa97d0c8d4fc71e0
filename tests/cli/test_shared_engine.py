"""Our end of the connection to a shared workbench that does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.cli import shared_engine
from mcp_workbench.cli.shared_engine import GONE, SILENT, SharedClientEnd
from mcp_workbench.errors import DownstreamError
from mcp_workbench.sharing.front.line_protocol import CONTROL, PING_LINE, PONG


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[SharedClientEnd, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client, and what the workbench at the other end reads and writes."""
    ours, theirs = socket.socketpair()
    client = SharedClientEnd(*await asyncio.open_unix_connection(sock=ours))
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    reading = asyncio.create_task(client.read())
    try:
        yield client, reader, writer
    finally:
        for end in (client._writer, writer):
            end.close()
        await asyncio.gather(reading, return_exceptions=True)


async def test_a_workbench_that_hangs_is_pinged_and_then_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_engine, "SILENCE_TIMEOUT", 0.01)
    async with connected() as (client, reader, _):
        with pytest.raises(DownstreamError, match="does not answer any more") as raised:
            await client.request("tools/call", {})
        assert raised.value.message == SILENT and "mcp-workbench status" in (raised.value.hint or "")
        await reader.readline()
        assert await reader.readline() == PING_LINE
        # Nothing is waited for again.
        with pytest.raises(DownstreamError, match="does not answer any more"):
            await client.request("tools/list", {})


async def test_a_workbench_that_answers_a_ping_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_engine, "SILENCE_TIMEOUT", 0.05)
    monkeypatch.setattr(shared_engine, "DEADLINE_CHECK_INTERVAL", 60.0)
    async with connected() as (client, reader, writer):
        calling = asyncio.create_task(client.request("tools/call", {}))
        await reader.readline()
        for _ in range(3):
            assert await reader.readline() == PING_LINE
            writer.write(CONTROL + PONG + b"\n")
        writer.write(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        assert bytes(await calling) == b"{}"


async def test_a_workbench_that_ends_is_not_asked_again() -> None:
    async with connected() as (client, reader, writer):
        calling = asyncio.create_task(client.request("tools/call", {}))
        await reader.readline()
        writer.close()
        with pytest.raises(DownstreamError, match=GONE):
            await calling
        with pytest.raises(DownstreamError, match=GONE):
            await client.request("tools/call", {})
