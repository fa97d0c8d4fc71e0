"""A workbench within the test: the real packages, with threads in place of server processes and no pipe to the client.

Owns what carries messages here. Everything between the two ends, from session to traffic, is what is served to clients;
`process` runs the same tests against the command.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.face.base import Face
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.errors import DownstreamError
from tests.support.client import Conversation
from tests.support.parts import joined
from tests.support.processes import eventually
from tests.support.scripted_server import ScriptedServer, parse
from tests.support.scripted_tools import NoAnswer

# A server that has been told to end goes at once; only a defect of a test can hold it up.
THREAD_END = 10.0


class ThreadedServer:
    """A scripted server on a thread, and the link to it (`ServerLink`)."""

    unsent_bytes = 0

    def __init__(self, options: Namespace, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_over = False
        # Not by a thread that waits for the thread: what is looked for is told by the one that ends.
        self._ended = asyncio.Event()
        server = ScriptedServer(options, self._from_server, self._crash)
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        self._lines.put(joined(parts))

    async def stop(self) -> None:
        self._is_over = True
        self._lines.put(None)
        async with asyncio.timeout(THREAD_END):
            await self._ended.wait()

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return ["the last words"]

    def _serve(self, server: ScriptedServer) -> None:
        try:
            server.serve(self._received())
        except NoAnswer:
            return
        finally:
            # Unless the test is over, and with it the loop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)

    def _received(self) -> Iterator[bytes]:
        while (line := self._lines.get()) is not None:
            yield line

    def _from_server(self, data: bytes) -> None:
        self._in_loop(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        for line in data.splitlines():
            self._receiver.on_message(line)

    def _crash(self, status: int) -> NoReturn:
        self._lines.put(None)
        self._in_loop(self._receiver.on_closed, f"the server exited with status {status}")
        # A thread cannot be ended from outside; this one ends by not answering.
        raise NoAnswer

    def _in_loop(self, function: object, argument: object) -> None:
        def call() -> None:
            if not self._is_over:
                function(argument)  # type: ignore[operator]

        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The test is over, and with it the loop.
            return


class MemoryGateway(Gateway):
    """Starts scripted servers on threads. A server's `args` are the flags of the scripted server."""

    def __init__(self, config: WorkbenchConfig, options: Options) -> None:
        super().__init__(config, options)
        self.runtime.open_link = self._open_link
        # Every server that was started, by `toolbox/server`.
        self.started: list[str] = []
        self._arrived = 0
        self._gates: dict[str, asyncio.Event] = {}
        self._forbidden: set[str] = set()

    def close_gate(self, label: str) -> asyncio.Event:
        """Hold the start of a server back until the event is set."""
        gate = self._gates[label] = asyncio.Event()
        return gate

    async def wait_for_arrivals(self, count: int) -> None:
        """Until so many servers are held back."""
        await eventually(lambda: self._arrived >= count, what=f"the start of {count} servers")

    def forbid(self, label: str) -> None:
        """From now on this server cannot be started."""
        self._forbidden.add(label)

    def allow(self, label: str) -> None:
        """It is mended."""
        self._forbidden.discard(label)

    def only_connection(self, label: str) -> Connection:
        """The connection to a server that one client uses."""
        (found,) = [each for each in self.runtime.pool.connections() if each.label == label]
        return found

    def _summarise_soon(self, face: Face, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """What instructions say of toolboxes that were opened before is no subject here, and ending waits for it."""

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        options = parse(connection.config.args)
        self.started.append(connection.label)
        if connection.label in self._gates:
            self._arrived += 1
            await self._gates[connection.label].wait()
        if connection.label in self._forbidden:
            raise DownstreamError("the server exited with status 9")
        if options.exit_at_start is not None:
            raise DownstreamError(f"the server exited with status {options.exit_at_start}")
        return ThreadedServer(options, receiver)


class ClientLink:
    """What a session sees of a client (`Link`)."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        self.sent.put_nowait(joined(parts))


class MemoryClient(Conversation):
    """A client whose other end is a session. Use as `async with MemoryClient.of(gateway) as client`."""

    def __init__(self, gateway: Gateway, principal: str) -> None:
        super().__init__()
        self._link = ClientLink()
        self.session = gateway.make_session(self._link, principal, lambda reason: None)

    @classmethod
    @asynccontextmanager
    async def of(cls, gateway: Gateway, principal: str = "") -> AsyncIterator[MemoryClient]:
        client = cls(gateway, principal)
        reading = asyncio.create_task(client._read())
        try:
            yield client
        finally:
            client.session.leave()
            reading.cancel()
            await asyncio.wait({reading})

    async def send_bytes(self, data: bytes) -> None:
        for line in data.splitlines():
            self.session.on_message(line)
        # As over a pipe, what is answered at once is seen only later.
        await asyncio.sleep(0)

    async def _read(self) -> None:
        while True:
            await self.take_line(await self._link.sent.get())


class DirectClient(Conversation):
    """A client that speaks to a scripted server with nothing in between. Use as `async with DirectClient.of(...)`."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._server: ThreadedServer | None = None

    @classmethod
    @asynccontextmanager
    async def of(cls, *flags: object) -> AsyncIterator[DirectClient]:
        client = cls()
        client._server = ThreadedServer(parse([str(flag) for flag in flags]), client)
        reading = asyncio.create_task(client._read())
        try:
            yield client
        finally:
            await client._server.stop()
            reading.cancel()
            await asyncio.wait({reading})

    async def send_bytes(self, data: bytes) -> None:
        assert self._server is not None
        for line in data.splitlines():
            self._server.send(line)

    async def _read(self) -> None:
        while True:
            await self.take_line(await self._arrived.get())

    # `Receiver`

    def on_message(self, line: bytes) -> None:
        self._arrived.put_nowait(line)

    def on_oversized(self, remains: Oversized) -> None:
        raise AssertionError("there is no limit here")

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        raise AssertionError("a thread does not fail")

    def on_closed(self, reason: str) -> None:
        self.hung_up()
