"""The official SDK on both sides of a workbench, within one process.

Owns the two joints: a transport for the SDK's client whose other end is one of our sessions, and a link to a server of
the SDK. What crosses them is bytes, as over a pipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.client._transport import TransportStreams
from mcp.server.runner import serve_loop
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from conformance.everything_server import EverythingServer
from mcp_workbench.app.gateway import Gateway
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from tests.faces.memory import ClientLink, MemoryGateway
from tests.support.everything_server import build
from tests.support.parts import joined


def _read(line: bytes) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))


def _written(message: SessionMessage) -> bytes:
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def serve(server: EverythingServer, era: str, read: Any, write: Any) -> None:
    """Serve one client in one era."""
    options = server.create_initialization_options()
    if era == "modern":
        # The era is decided by the first request, and the workbench begins with a modern one.
        await server.run(read, write, options)
        return
    async with server.lifespan(server) as state:
        await serve_loop(server, read, write, lifespan_state=state, init_options=options)


class SdkLink:
    """A link to a server of the SDK (`ServerLink`)."""

    unsent_bytes = 0

    def __init__(self, era: str, receiver: Receiver) -> None:
        self._receiver = receiver
        self._to_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(era))

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        self._to_server.put_nowait(joined(parts))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []

    async def _run(self, era: str) -> None:
        in_send, in_receive = create_context_streams[SessionMessage | Exception](0)
        out_send, out_receive = create_context_streams[SessionMessage](0)

        async def feed() -> None:
            async with in_send:
                while (line := await self._to_server.get()) is not None:
                    await in_send.send(_read(line))

        async def drain() -> None:
            async with out_receive:
                async for message in out_receive:
                    self._receiver.on_message(_written(message))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed)
            tasks.start_soon(drain)
            await serve(build(), era, in_receive, out_send)
            tasks.cancel_scope.cancel()


class SdkGateway(MemoryGateway):
    """Its servers are the SDK's; the only flag is their era."""

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        return SdkLink(connection.config.args[0], receiver)


@asynccontextmanager
async def _piped(send: Callable[[bytes], None], arrived: asyncio.Queue[bytes]) -> AsyncIterator[TransportStreams]:
    in_send, in_receive = create_context_streams[SessionMessage | Exception](0)
    out_send, out_receive = create_context_streams[SessionMessage](0)

    async def read() -> None:
        async with in_send:
            while True:
                await in_send.send(_read(await arrived.get()))

    async def write() -> None:
        async with out_receive:
            async for message in out_receive:
                send(_written(message))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        with suppress(anyio.ClosedResourceError):
            yield in_receive, out_send
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def through(gateway: Gateway) -> AsyncIterator[TransportStreams]:
    """A transport to a workbench."""
    link = ClientLink()
    session = gateway.make_session(link, "", lambda reason: None)
    async with _piped(session.on_message, link.sent) as streams:
        yield streams
    session.leave()


@asynccontextmanager
async def directly(era: str) -> AsyncIterator[TransportStreams]:
    """A transport to the server itself."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    class Direct:
        """`Receiver` of the one link."""

        def on_message(self, line: bytes) -> None:
            arrived.put_nowait(line)

    link = SdkLink(era, Direct())  # type: ignore[arg-type]
    async with _piped(lambda line: link.send(line), arrived) as streams:
        yield streams
    await link.stop()
