"""Links under test, each with a peer at its other end that echoes, is deaf, or says something and goes.

Owns how each kind of link is set up and taken down; refuses to know what is asserted. A new transport gets a rig here
and passes the same tests as the others.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.transport.child import spawn
from mcp_workbench.engine.transport.link import Link
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.stdio import StdioLink
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError
from mcp_workbench.sharing.budgets import ClientBudgets
from mcp_workbench.sharing.client import FrontEndLink

LIMIT = 16 * 1024 * 1024


class Recorder:
    """A receiver that keeps everything, in order of head."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.oversized: list[Oversized] = []
        self.failed: list[tuple[bytes, DownstreamError]] = []
        self.closed: list[str] = []

    def on_message(self, line: bytes) -> None:
        assert not self.closed, "a message after the end"
        self.messages.append(line)

    def on_oversized(self, remains: Oversized) -> None:
        assert not self.closed, "a message after the end"
        self.oversized.append(remains)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        self.failed.append((id, error))

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)

    async def wait_messages(self, count: int) -> list[bytes]:
        await self.wait(lambda: len(self.messages) >= count)
        return self.messages

    async def wait_closed(self) -> str:
        await self.wait(lambda: bool(self.closed))
        return self.closed[0]

    async def wait(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not predicate():
                await asyncio.sleep(0.001)


Connected = AbstractAsyncContextManager[tuple[Link, Recorder]]


class Rig(Protocol):
    """A kind of link with a peer of each kind."""

    def echoing(self, limit: int = LIMIT) -> Connected:
        """The peer sends everything back."""

    def deaf(self) -> Connected:
        """The peer never reads."""

    def speaking(self, data: bytes, limit: int = LIMIT) -> Connected:
        """The peer writes these bytes and goes."""


class ChildRig:
    """A child process, and us in front of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def echoing(self, limit: int = LIMIT) -> Connected:
        return self._connected("cat", limit)

    def deaf(self) -> Connected:
        return self._connected("exec sleep 600", LIMIT)

    @asynccontextmanager
    async def deaf_until_told(self) -> AsyncIterator[tuple[Link, Recorder, Callable[[], None]]]:
        """The peer reads nothing until the third of what it returns is called, then sends everything back."""
        fifo = self._folder / "fifo"
        os.mkfifo(fifo)
        async with self._connected(f"read go < {shlex.quote(str(fifo))}; exec cat", LIMIT) as (link, recorder):

            def tell() -> None:
                fifo.write_text("go\n")

            yield link, recorder, tell

    def speaking(self, data: bytes, limit: int = LIMIT) -> Connected:
        script = self._folder / "script"
        script.write_bytes(data)
        return self._connected(f"cat {shlex.quote(str(script))}", limit)

    @asynccontextmanager
    async def _connected(self, command: str, limit: int) -> AsyncIterator[tuple[Link, Recorder]]:
        recorder = Recorder()
        table = ProcessTable()
        batch = WriteBatch()
        link = spawn(
            "/bin/sh", ("-c", command), os.environ, None, table=table, batch=batch, receiver=recorder, limit=limit
        )
        try:
            yield link, recorder
        finally:
            await link.stop()
            table.close()


class StdioRig:
    """Our own stdin and stdout, and a client at their other ends."""

    def echoing(self, limit: int = LIMIT) -> Connected:
        return self._connected(_echo, limit)

    def deaf(self) -> Connected:
        return self._connected(_ignore, LIMIT)

    def reading(self, into: bytearray) -> Connected:
        """The peer reads everything and says nothing."""

        async def read(read_end: int, write_end: int) -> None:
            os.set_blocking(read_end, False)
            loop = asyncio.get_running_loop()
            loop.add_reader(read_end, lambda: into.extend(os.read(read_end, 65536)))
            try:
                await asyncio.Event().wait()
            finally:
                loop.remove_reader(read_end)

        return self._connected(read, LIMIT)

    def speaking(self, data: bytes, limit: int = LIMIT) -> Connected:
        async def speak(read_end: int, write_end: int) -> None:
            await asyncio.to_thread(_write_all, write_end, data)

        return self._connected(speak, limit)

    @asynccontextmanager
    async def _connected(
        self, peer: Callable[[int, int], Awaitable[None]], limit: int
    ) -> AsyncIterator[tuple[Link, Recorder]]:
        recorder = Recorder()
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        with _standing_in(stdin, stdout):
            link = StdioLink(WriteBatch(), limit)
        task = asyncio.create_task(_as_peer(peer, from_stdout, to_stdin))
        link.start(recorder)
        try:
            yield link, recorder
        finally:
            with _standing_in(stdin, stdout):
                link.close()
            os.close(stdin)
            os.close(stdout)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class FrontEndRig(StdioRig):
    """The workbench's end of the connection to a front end, and a client behind that."""

    @asynccontextmanager
    async def _connected(
        self, peer: Callable[[int, int], Awaitable[None]], limit: int
    ) -> AsyncIterator[tuple[Link, Recorder]]:
        recorder = Recorder()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        link = FrontEndLink(WriteBatch(), limit, os.dup(ours.fileno()), ours.detach(), ClientBudgets())
        task = asyncio.create_task(_as_peer(peer, os.dup(theirs.fileno()), theirs.detach()))
        link.start(recorder)
        try:
            yield link, recorder
        finally:
            link.close()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class _standing_in:
    """Descriptors 0 and 1 point at these while a link takes them up or gives them back."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stand_ins = stdin, stdout

    def __enter__(self) -> None:
        self._saved = os.dup(0), os.dup(1)
        for target, stand_in in enumerate(self._stand_ins):
            os.dup2(stand_in, target)

    def __exit__(self, *error: object) -> None:
        for target, saved in enumerate(self._saved):
            os.dup2(saved, target)
            os.close(saved)


async def _as_peer(peer: Callable[[int, int], Awaitable[None]], read_end: int, write_end: int) -> None:
    try:
        await peer(read_end, write_end)
    finally:
        os.close(write_end)
        os.close(read_end)


async def _echo(read_end: int, write_end: int) -> None:
    loop = asyncio.get_running_loop()
    os.set_blocking(read_end, False)
    readable = asyncio.Event()
    loop.add_reader(read_end, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            with suppress(BlockingIOError):
                if not (data := os.read(read_end, 65536)):
                    return
                await asyncio.to_thread(_write_all, write_end, data)
    finally:
        loop.remove_reader(read_end)


async def _ignore(read_end: int, write_end: int) -> None:
    await asyncio.Event().wait()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
