"""A raw HTTP client: it sends what it is told to, byte for byte, and shows everything that comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from tests.engine.transport.http.listening import PATIENCE

Json = dict[str, Any]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
STAMP = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
BASIC = {"host": "127.0.0.1", "content-type": "application/json", "accept": "application/json, text/event-stream"}


class Response:
    """The head of a response, and its body as far as it has been read."""

    def __init__(self, status: int, headers: dict[str, str], connection: RawConnection) -> None:
        self.status = status
        self.headers = headers
        self.body = b""
        self._connection = connection
        self._parser = SseParser(1 << 24)
        self._events: list[ServerSentEvent] = []
        self.comments = 0

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    @property
    def error(self) -> Json:
        found: Json = self.json["error"]
        return found

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    async def event(self) -> ServerSentEvent:
        """The next event. Comments are counted."""
        while not self._events:
            chunk = await self._connection.chunk()
            assert chunk is not None, "the stream ended"
            self.comments += chunk.startswith(b":")
            self._events += self._parser.feed(chunk)
        return self._events.pop(0)

    async def message(self) -> Json:
        """The next event that is not empty, decoded."""
        while not (event := await self.event()).data:
            pass
        found: Json = json.loads(event.data)
        return found

    async def end(self) -> None:
        """Nothing more comes."""
        while (chunk := await self._connection.chunk()) is not None:
            assert chunk.startswith(b":"), chunk
        assert not self._events


class RawConnection:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Response:
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        pairs = [(name.lower(), value.strip()) for name, value in (line.split(":", 1) for line in lines)]
        headers = dict(pairs)
        assert len(headers) == len(pairs), f"a header is given twice: {head!r}"
        return Response(int(first.split(" ")[1]), headers, self)

    async def chunk(self) -> bytes | None:
        """The next chunk of a body in chunks; None at its end."""
        async with asyncio.timeout(PATIENCE):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
        return data[:-2] if size else None

    async def response(self) -> Response:
        """A response with all of its body, unless that is a stream."""
        response = await self.head()
        if "content-length" in response.headers:
            async with asyncio.timeout(PATIENCE):
                response.body = await self.reader.readexactly(int(response.headers["content-length"]))
        return response

    async def request(
        self, method: str = "POST", path: str = "/mcp", body: bytes | Json | None = None, **headers: Any
    ) -> Response:
        """Send a request; names of headers have underscores, and None takes one out."""
        await self.send(written(method, path, body, **headers))
        return await self.response()

    async def closed(self) -> bytes:
        """Until the server closes; what came before that."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    def close(self) -> None:
        self.writer.close()


def written(method: str, path: str, body: bytes | Json | None = None, **headers: Any) -> bytes:
    """A request as it goes over the wire."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    fields: dict[str, str | None] = {**BASIC, "content-length": str(len(data)), **given}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


def modern(method: str, params: Json | None = None, id: int | str = 1) -> Json:
    """A stamped request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": STAMP}}


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    """The headers that go with it."""
    headers = {"mcp_protocol_version": MODERN, "mcp_method": method}
    return headers if name is None else {**headers, "mcp_name": name}


def legacy(method: str, params: Json | None = None, id: int | str | None = 1) -> Json:
    """A request of the legacy era; without an id a notification."""
    message: Json = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return message if id is None else {**message, "id": id}


def initialize(version: str = LEGACY) -> Json:
    return legacy("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}, id=0)


class RawClient:
    """Connects to one server; everything is closed at the end."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._open: list[RawConnection] = []

    async def connect(self) -> RawConnection:
        reader, writer = await asyncio.open_connection(*self._address, limit=1 << 24)
        connection = RawConnection(reader, writer)
        self._open.append(connection)
        return connection

    async def request(
        self, method: str = "POST", path: str = "/mcp", body: bytes | Json | None = None, **headers: Any
    ) -> Response:
        """On a connection of its own."""
        return await (await self.connect()).request(method, path, body, **headers)

    async def begin_session(self, version: str = LEGACY) -> str:
        """Shake hands; the id of the session."""
        response = await self.request(body=initialize(version))
        assert response.status == 200, response.body
        return response.headers["mcp-session-id"]

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@contextlib.asynccontextmanager
async def raw_client(port: int, host: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    client = RawClient(host, port)
    try:
        yield client
    finally:
        client.close()
