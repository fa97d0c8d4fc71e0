"""Somebody who uses a link to a server: sends, waits for answers, keeps everything that comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Envelope, Malformed
from mcp_workbench.engine.transport.http.client.headers import FixedHeaders, HeaderSource
from mcp_workbench.engine.transport.http.client.http_client import HttpClient
from mcp_workbench.engine.transport.http.client.http_link import HttpLink
from mcp_workbench.engine.transport.http.client.http_session import ToolParameters
from mcp_workbench.engine.transport.http.client.post import HttpTransport
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.http.listening import PATIENCE

Json = dict[str, Any]
LIMIT = 8 * 1024 * 1024
MODERN = "2026-07-28"
STAMP = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "talk", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Talk:
    """The receiver of a link, with a memory."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.lines: list[bytes] = []
        # The requests on whose streams something came that is no answer.
        self.related: list[bytes] = []
        # What was handed on as it was read, and is no answer.
        self.read_aside: list[Envelope | Malformed] = []
        self.failures: dict[str, DownstreamError] = {}
        self.closed: list[str] = []
        self.on_request: Callable[[Json], Json | None] = lambda message: None
        self.link: HttpLink
        self._last = 0
        self._changed = asyncio.Event()

    # What the link tells (`Receiver`)

    def on_message(self, line: bytes) -> None:
        self.lines.append(line)
        message = json.loads(line)
        self.messages.append(message)
        if "method" in message and "id" in message:
            result = self.on_request(message)
            if result is not None:
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self._changed.set()

    def on_related_message(self, line: bytes, about: bytes) -> None:
        self.related.append(about)
        self.on_message(line)

    def on_answer(self, line: bytes, message: Envelope) -> None:
        read = messages.read(line)
        for name in Envelope.__struct_fields__:
            assert getattr(read, name) == getattr(message, name), "handed on as it was read"
        self.on_message(line)

    def on_read_message(self, line: bytes, message: Envelope | Malformed, about: bytes | None = None) -> None:
        self.read_aside.append(message)
        if about is not None:
            self.related.append(about)
        self.on_message(line)

    def on_oversized(self, remains: Oversized) -> None:
        raise AssertionError("HTTP knows which request it was")

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        assert id.decode() not in self.failures, "failed twice"
        self.failures[id.decode()] = error
        self._changed.set()

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)
        self._changed.set()

    # What tests do

    def send(self, message: Json) -> None:
        self.link.send(json.dumps(message).encode())

    def request(self, method: str, params: Json | None = None, *, modern: bool = False) -> int:
        """Send a request; its id."""
        self._last += 1
        params = {**(params or {}), **({"_meta": STAMP} if modern else {})}
        self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def answer(self, id: int) -> Json:
        """The answer to a request; its failure is raised."""
        await self.until(lambda: self._find(id) is not None or str(id) in self.failures)
        if str(id) in self.failures:
            raise self.failures[str(id)]
        found = self._find(id)
        assert found is not None
        return found

    async def failure(self, id: int) -> DownstreamError:
        await self.until(lambda: str(id) in self.failures or self._find(id) is not None)
        assert self._find(id) is None, f"answered: {self._find(id)}"
        return self.failures[str(id)]

    async def ask(self, method: str, params: Json | None = None, *, modern: bool = False) -> Json:
        return await self.answer(self.request(method, params, modern=modern))

    async def initialize(self, version: str = "2025-11-25", capabilities: Json | None = None) -> Json:
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": STAMP[_INFO]}
        answer = await self.ask("initialize", params)
        self.notify("notifications/initialized")
        return answer

    def notifications(self, method: str) -> list[Json]:
        return [message for message in self.messages if message.get("method") == method]

    def _find(self, id: int) -> Json | None:
        for message in self.messages:
            if message.get("id") == id and "method" not in message:
                return message
        return None


_INFO = "io.modelcontextprotocol/clientInfo"


@contextlib.asynccontextmanager
async def talking(
    url: str,
    *,
    transport: HttpTransport = "auto",
    source: HeaderSource | None = None,
    limit: int = LIMIT,
    parameters_of: ToolParameters | None = None,
) -> AsyncIterator[Talk]:
    """A link to a server, stopped at the end."""
    client = HttpClient("talk/1")
    talk = Talk()
    talk.link = HttpLink(
        client,
        url,
        source or FixedHeaders({}),
        talk,
        limit=limit,
        transport=transport,
        parameters_of=parameters_of,
    )
    try:
        yield talk
    finally:
        async with asyncio.timeout(PATIENCE):
            await talk.link.stop()
            await client.close()
