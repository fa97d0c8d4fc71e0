"""HTTP as a client speaks it, on bare sockets: one connection, and a conversation over as many as it takes.

Owns bytes and connections. Refuses to know what should happen: every wait is bounded, and what came back is kept.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from tests.support.client import LEGACY_VERSION, MODERN_VERSION, Call, Conversation, Json

# Generous, because the machine may be busy: nothing that works comes near it.
PATIENCE = 30.0
ACCEPT = "application/json, text/event-stream"
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
READ_LIMIT = 1 << 27


def written(
    body: bytes,
    headers: dict[str, str] | None = None,
    *,
    verb: str = "POST",
    path: str = "/mcp",
    host: str = "127.0.0.1",
) -> bytes:
    """A request as it goes over the wire."""
    fields = {
        "Host": host,
        "Content-Type": "application/json",
        "Accept": ACCEPT,
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


class Wire:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def open(cls, port: int) -> Wire:
        async with asyncio.timeout(PATIENCE):
            return cls(*await asyncio.open_connection("127.0.0.1", port, limit=READ_LIMIT))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self.writer.drain()

    async def head(self, patience: float | None = PATIENCE) -> int:
        """The head of a response; its status."""
        async with asyncio.timeout(patience):
            head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        return self.status

    async def body(self) -> bytes:
        """A whole body of known length."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(int(self.headers.get("content-length", "0")))

    async def chunk(self, patience: float | None = PATIENCE) -> bytes:
        """The next piece of a body of unknown length; nothing at its end."""
        async with asyncio.timeout(patience):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """A request, and its whole answer."""
        await self.send(data)
        return await self.head(), await self.body()

    async def closed(self, patience: float = PATIENCE) -> bytes:
        """Until the other side closes; what came before that."""
        found = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(patience):
                while data := await self.reader.read(65536):
                    found += data
        return found

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Gone without a word."""
        self.writer.transport.abort()


class HttpConversation(Conversation):
    """A client over HTTP, of either era. Requests run side by side, each on a connection that nobody else uses."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self.port = port
        self.session_id: str | None = None
        self.connections = 0
        self._headers = headers or {}
        self._idle: list[Wire] = []
        self._posts: dict[Any, asyncio.Task[None]] = {}
        self._wires: dict[Any, Wire] = {}

    async def send_bytes(self, data: bytes) -> None:
        message = json.loads(data)
        if "method" in message and "id" in message:
            task = self._posts[message["id"]] = asyncio.create_task(self._post(message, data))
            task.add_done_callback(lambda _: self._posts.pop(message["id"], None))
        else:
            await self._post(message, data)

    async def give_up(self, call: Call) -> None:
        """Disconnect in the middle of a call: how a modern client cancels, and what happens to a legacy one."""
        wire = self._wires.pop(call.id, None)
        if wire is not None:
            wire.abort()
        task = self._posts.get(call.id)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def rest(self, kept: int = 0) -> None:
        """Keep no connection that is not needed, or only so many."""
        while len(self._idle) > kept:
            self._idle.pop().close()

    async def close(self) -> None:
        for task in list(self._posts.values()):
            task.cancel()
        await asyncio.gather(*self._posts.values(), return_exceptions=True)
        for wire in (*self._idle, *self._wires.values()):
            wire.abort()
        # One iteration of the loop for sockets that have just been aborted.
        await asyncio.sleep(0)

    async def end_session(self) -> None:
        if self.session_id is not None:
            wire = await self._wire()
            await wire.send(written(b"", self._headers_for({}), verb="DELETE"))
            await wire.head()
            wire.close()
            self.session_id = None

    # One request

    async def _post(self, message: Json, data: bytes) -> None:
        id = message.get("id")
        wire = await self._wire()
        self._wires[id] = wire
        try:
            await wire.send(written(data.rstrip(b"\n"), self._headers_for(message)))
            await wire.head(None)
            self.session_id = wire.headers.get("mcp-session-id", self.session_id)
            if wire.headers.get("content-type") == "text/event-stream":
                await self._read_events(wire)
            elif body := await wire.body():
                await self.take_line(body)
        except (ConnectionError, asyncio.IncompleteReadError):
            self._fail(id)
            wire.abort()
        except BaseException:
            wire.abort()
            raise
        else:
            self._idle.append(wire)
        finally:
            self._wires.pop(id, None)

    def _fail(self, id: Any) -> None:
        future = self._waiting.pop(id, None)
        if future is not None and not future.done():
            future.set_exception(EOFError("the connection was closed before it was answered"))
            future.exception()

    async def _read_events(self, wire: Wire) -> None:
        rest = b""
        while chunk := await wire.chunk(None):
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                lines = [
                    line.removeprefix(b"data:").strip() for line in event.split(b"\n") if line.startswith(b"data:")
                ]
                if data := b"\n".join(lines):
                    await self.take_line(data)

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if not wire.reader.at_eof() and not wire.writer.is_closing():
                return wire
            wire.close()
        self.connections += 1
        return await Wire.open(self.port)

    def _headers_for(self, message: Json) -> dict[str, str]:
        headers = dict(self._headers)
        method = message.get("method", "")
        if self._meta:
            headers |= {"Mcp-Protocol-Version": MODERN_VERSION, "Mcp-Method": method}
            if method in NAMED_BY:
                headers["Mcp-Name"] = message["params"][NAMED_BY[method]]
        elif self.session_id is not None:
            headers |= {"Mcp-Session-Id": self.session_id, "Mcp-Protocol-Version": LEGACY_VERSION}
        return headers
