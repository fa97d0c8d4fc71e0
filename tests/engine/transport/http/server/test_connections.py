"""What all connections hold together: who does not read goes, whoever has not for longest first."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing, stalled
from tests.engine.transport.http.server.raw_client import modern, modern_headers, written


async def test_clients_that_have_not_read_for_longest_are_dropped_first() -> None:
    limits = Limits(pause_bytes=100_000, unread_bytes_in_all=15_000_000)
    async with echoing(limits) as rig:
        request = written("POST", "/mcp", modern("echo", {"text": "x" * 8_000_000}), **modern_headers("echo"))
        connections = []
        for _ in range(8):
            connections.append(await stalled(rig))
            await connections[-1].send(request)
            await wait_until(lambda: len(rig.sessions) == len(connections))
        await wait_until(lambda: rig.server.connection_count <= 4)
        assert (await connections[-1].response()).status == 200, "the last one came after the others"


async def test_unread_data_never_exceeds_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made before an answer is written, not once it has been."""
    limits = Limits(pause_bytes=100_000, unread_bytes_in_all=20_000_000)
    most, write = 0, InboundConnection.write

    def watched(connection: InboundConnection, data: bytes | memoryview) -> None:
        nonlocal most
        write(connection, data)
        most = max(most, sum(each.unsent_bytes for each in connection._connections.open))

    monkeypatch.setattr(InboundConnection, "write", watched)
    async with echoing(limits) as rig:
        request = written("POST", "/mcp", modern("echo", {"text": "x" * 9_000_000}), **modern_headers("echo"))
        for number in range(1, 7):
            await (await stalled(rig)).send(request)
            await wait_until(lambda count=number: len(rig.sessions) == count)  # type: ignore[misc]
        assert 9_000_000 < most <= limits.unread_bytes_in_all


async def test_slow_readers_are_dropped_after_stalled_ones() -> None:
    limits = Limits(pause_bytes=100_000, unread_bytes_in_all=20_000_000)
    async with echoing(limits) as rig:
        request = written("POST", "/mcp", modern("echo", {"text": "x" * 9_000_000}), **modern_headers("echo"))
        readers = []
        for number in range(1, 3):
            readers.append(await stalled(rig))
            await readers[-1].send(request)
            await wait_until(lambda count=number: len(rig.sessions) == count)  # type: ignore[misc]
        first, second = rig.server._connections._stalled
        before = first.unsent_bytes
        await readers[0].reader.readexactly(1_000_000)
        await wait_until(lambda: first.unsent_bytes < before)
        first.on_timer(asyncio.get_running_loop().time())
        assert next(iter(rig.server._connections._stalled)) is second
