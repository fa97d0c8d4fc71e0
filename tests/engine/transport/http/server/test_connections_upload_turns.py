"""Large bodies of one principal share one read in each iteration of the loop, and reach their end."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mcp_workbench.engine.transport.http.server.connections import UploadTurns
from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import modern, modern_headers, written


class Upload:
    """A connection that has more to read for so many turns."""

    def __init__(self, turns: UploadTurns, principal: str, reads: int, log: list[str]) -> None:
        self._turns, self._principal, self._reads, self._log = turns, principal, reads, log
        turns.wait(principal, self)

    def read_turn(self) -> None:
        self._log.append(self._principal)
        self._reads -= 1
        if self._reads:
            self._turns.wait(self._principal, self)


async def test_each_principal_reads_once_in_an_iteration_however_many_connections_it_has() -> None:
    turns, log = UploadTurns(), list[str]()
    for principal in ("alice", "alice", "alice", "bob"):
        Upload(turns, principal, 2, log)
    iterations: list[Counter[str]] = []
    while len(log) < 8:
        before = len(log)
        await asyncio.sleep(0)
        iterations.append(Counter(log[before:]))
    assert all(max(each.values(), default=0) <= 1 for each in iterations)
    assert [each["bob"] for each in iterations if each][:2] == [1, 1], "bob does not wait for alice"
    assert "0 of 0" in repr(turns)


async def test_a_fast_upload_is_read_once_in_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it has arrived: libuv alone would read up to 32 times in a row."""
    iteration, reads = 0, Counter[int]()
    original = InboundConnection.data_received

    def data_received(self: InboundConnection, data: bytes) -> None:
        reads[iteration] += len(data) > 10_000
        original(self, data)

    monkeypatch.setattr(InboundConnection, "data_received", data_received)
    text = "x" * 4_000_000
    async with echoing() as rig:
        loop = asyncio.get_running_loop()
        is_over = False

        def count() -> None:
            nonlocal iteration
            iteration += 1
            if not is_over:
                loop.call_soon(count)

        loop.call_soon(count)
        sent = [await rig.client.connect() for _ in range(2)]
        request = written("POST", "/mcp", modern("echo", {"text": text}), **modern_headers("echo"))
        await asyncio.gather(*(each.send(request) for each in sent))
        answers = [await each.response() for each in sent]
        is_over = True
    assert [len(each.json["result"]["echo"]["text"]) for each in answers] == [len(text)] * 2
    # The first read of each connection comes before its turn can be known.
    assert sum(reads.values()) > 20 and sum(count > 1 for count in reads.values()) <= 2


async def test_a_connection_that_is_lost_while_it_waits_is_not_read_from() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        request = written("POST", "/mcp", modern("echo", {"text": "x" * 1_000_000}), **modern_headers("echo"))
        await connection.send(request[:500_000])
        connection.writer.transport.abort()
        answer = await rig.client.request(body=modern("echo", {"n": 2}), **modern_headers("echo"))
        assert answer.json["result"]["echo"]["n"] == 2 and len(rig.sessions) == 1
