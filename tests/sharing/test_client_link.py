"""The link to a front end: what is for the front end itself, and when it is told what."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError
from mcp_workbench.sharing.client import FrontEndLink

MESSAGE = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


class Received:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def on_message(self, line: bytes) -> None:
        self.lines.append(line)

    def on_oversized(self, remains: Oversized) -> None:
        raise AssertionError(remains)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        raise AssertionError(error)

    def on_closed(self, reason: str) -> None:
        pass


class FrontEnd:
    """The other end of a link, read and written by the test."""

    def __init__(self, link: FrontEndLink, end: socket.socket) -> None:
        self.link = link
        self._end = end

    async def send(self, data: bytes) -> None:
        self._end.sendall(data)
        for _ in range(3):
            await asyncio.sleep(0)

    async def read(self) -> bytes:
        """All that has been written so far, and what follows as there is room again."""
        found = b""
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0)
            try:
                found += self._end.recv(1 << 20)
                quiet = 0
            except BlockingIOError:
                quiet += 1
        return found


@asynccontextmanager
async def linked(received: Received, unannounced: list[list[bytes]] | None = None) -> AsyncIterator[FrontEnd]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    link = FrontEndLink(
        WriteBatch(),
        1 << 27,
        os.dup(ours.fileno()),
        ours.detach(),
        unannounced=lambda: unannounced.pop(0) if unannounced else [],
    )
    link.start(received)
    try:
        yield FrontEnd(link, theirs)
    finally:
        link.close()
        theirs.close()


@pytest.mark.parametrize("cut", range(6))
async def test_a_ping_is_answered_and_is_no_message_however_it_arrives(cut: int) -> None:
    received = Received()
    async with linked(received) as front_end:
        await front_end.send(MESSAGE + b"\n" + b"\x01ping\n"[:cut])
        await front_end.send(b"\x01ping\n"[cut:] + MESSAGE + b"\n")
        assert received.lines == [MESSAGE, MESSAGE]
        assert await front_end.read() == b"\x01pong\n"


@pytest.mark.parametrize("line", [b"\x01pig", b"a\x01ping", b"\x01pinging", b"\x01"])
async def test_client_lines_that_look_like_control_lines_are_messages(line: bytes) -> None:
    received = Received()
    async with linked(received) as front_end:
        await front_end.send(line[:1])
        await front_end.send(line[1:] + b"\n" + MESSAGE + b"\n")
        assert received.lines == [line, MESSAGE]
        assert await front_end.read() == b""


async def test_control_lines_are_sent_once_before_messages_sent_together() -> None:
    async with linked(Received(), [[b"resume {}", b"lasting 7"]]) as front_end:
        front_end.link.send(b"one")
        front_end.link.send(b"two")
        assert await front_end.read() == b"\x01resume {}\n\x01lasting 7\none\ntwo\n"


async def test_control_lines_precede_the_answer_to_a_single_message() -> None:
    class Answering(Received):
        def on_message(self, line: bytes) -> None:
            front_end.link.send(b"answer")

    async with linked(Answering(), [[], [b"resume {}"]]) as front_end:
        for expected in (b"answer\n", b"\x01resume {}\nanswer\n"):
            await front_end.send(MESSAGE + b"\n")
            assert await front_end.read() == expected


async def test_behind_a_message_that_has_to_wait_each_is_announced_by_itself() -> None:
    unannounced: list[list[bytes]] = [[]]
    async with linked(Received(), unannounced) as front_end:
        large = b"x" * (4 << 20)
        front_end.link.send(large)
        for _ in range(3):
            await asyncio.sleep(0)
        assert front_end.link.unsent_bytes, "otherwise nothing waits"
        unannounced += [[b"resume 1"], [], [b"resume 2"]]
        for message in (b"one", b"two", b"three"):
            front_end.link.send(message)
        assert await front_end.read() == large + b"\n\x01resume 1\none\ntwo\n\x01resume 2\nthree\n"
