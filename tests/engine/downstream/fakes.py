"""A server that exists in memory only: a link that answers, hangs or dies as it is told.

Owns what a `Connection` needs around it. Refuses to be a process: those are tested end to end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from tests.support.parts import joined

INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake"}}
TOOLS = {"tools": [{"name": "t", "inputSchema": {}}]}
NEVER = object()


class FakeLink:
    """One life of the server."""

    def __init__(self, server: FakeServer, receiver: Receiver) -> None:
        self.server = server
        self.receiver = receiver
        self.received: list[str] = []
        self.stopped = False
        self.unsent_bytes = 0
        self.stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        self.received.append(message["method"])
        answer = self.server.answers.get(message["method"], NEVER)
        if "id" in message and answer is not NEVER:
            written = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}).encode()
            self._loop.call_soon(self._deliver, written)

    def _deliver(self, line: bytes) -> None:
        if not self.stopped:
            self.receiver.on_message(line)

    def die(self, reason: str = "the server exited with status 1") -> None:
        self.receiver.on_closed(reason)

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []

    async def stop(self) -> None:
        self.stopping.set()
        await self.server.may_stop.wait()
        self.stopped = True


class Alone:
    """Owns a connection of the only client."""

    def conceal(self, text: str) -> str:
        return text

    def last_seen(self, principal: str) -> float:
        return inf

    def on_handshake(self, entry: ServerEntry) -> None:
        pass

    def on_session_end(self, entry: ServerEntry, version: str, seconds: float) -> None:
        pass


class FakeServer:
    """One connection, everything around it, and every link that it opened."""

    def __init__(self, **settings: Any) -> None:
        config = ServerConfig(name="server", command="fake", **{"protocol": "legacy", **settings})
        box = ToolboxConfig(name="box", description="A box.", servers={"server": config})
        self.catalog = Catalog(WorkbenchConfig(path="config", toolboxes={"box": box}), ManifestStore(lambda: None))
        self.entry = self.catalog.toolboxes["box"]["server"]
        self.links: list[FakeLink] = []
        self.link_type: type[FakeLink] = FakeLink
        self.tasks: list[asyncio.Task[None]] = []
        self.answers: dict[str, Any] = {"initialize": INITIALIZED, "tools/list": TOOLS}
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.before_opening: Callable[[], Awaitable[None]] | None = None
        self.connection = Connection(
            self.entry, self.catalog.servers, Caller("local", "modern"), b"{}", self._open, self._start_task, Alone()
        )

    async def _open(self, connection: Connection, receiver: Receiver) -> FakeLink:
        if self.before_opening is not None:
            await self.before_opening()
        link = self.link_type(self, receiver)
        self.links.append(link)
        return link

    def _start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def run() -> None:
            await work

        self.tasks.append(asyncio.get_running_loop().create_task(run()))
        return self.tasks[-1]

    async def __aenter__(self) -> FakeServer:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        self.may_stop.set()
        self.connection.request_stop()
        if kind is not None:
            # A test has failed, so what it leaves running is not waited for.
            for task in self.tasks:
                task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert all(link.stopped for link in self.links), "a server that nobody ended"
