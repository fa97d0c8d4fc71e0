"""Servers for tests, on a free port of this machine, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn

# Generous, because the machine may be busy: nothing that works comes near it.
PATIENCE = 45.0


class Request:
    """One request as it arrived at a scripted server."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body


class Reply:
    """What a scripted server does with a request: it writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, headers: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await self.raw(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode("latin-1"))

    async def send(self, status: int, body: bytes = b"", content_type: str = "application/json", **extra: str) -> None:
        headers = {"content-type": content_type, "content-length": str(len(body))}
        headers |= {name.replace("_", "-"): value for name, value in extra.items()}
        await self.head(status, headers)
        await self.raw(body)

    async def begin_events(self, **extra: str) -> None:
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        await self.head(200, headers | {name.replace("_", "-"): value for name, value in extra.items()})

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self._writer.transport.abort()

    async def wait_gone(self) -> None:
        """Until the client closes the connection."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read(1)


Handler = Callable[[Request, Reply], Awaitable[None]]


class ScriptedHttp:
    """An HTTP server that does whatever a test wants, and remembers what it was asked."""

    def __init__(self, handler: Handler) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.open_connections = 0
        self.port = 0
        self._handler = handler

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                method, path, _ = first.split(" ", 2)
                pairs = (line.split(":", 1) for line in lines)
                headers = {name.lower(): value.strip() for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(method, path, headers, body)
                self.requests.append(request)
                await self._handler(request, Reply(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()


@contextlib.asynccontextmanager
async def scripted_http(handler: Handler) -> AsyncIterator[ScriptedHttp]:
    """Run one for as long as the context lasts."""
    scripted = ScriptedHttp(handler)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(scripted._serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=16 * 1024 * 1024)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for task in set(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(set(tasks))


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """An ASGI application (the SDK's servers are such) behind uvicorn; its origin."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.shutdown()
        # A library of the SDK's watches for the end of the process in a task that nobody ends.
        watchers = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == _WATCHER]
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


_WATCHER = "_shutdown_watcher"


async def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)
