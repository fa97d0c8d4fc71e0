"""The bare forwarder with HTTP in front: the least that can stand between, with a server over stdio or HTTP behind it.

Owns a counter, a table of ids, and one child or a pool of connections. Each body is decoded, its id replaced, and sent
on; the answer gets its old id back. No checks, no routing, no sessions: the yardstick for what the workbench adds.

    python -m bench.http_forwarder --stdio COMMAND [ARGUMENT ...]
    python -m bench.http_forwarder --http URL
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import orjson
import uvloop

from bench.echo_server import LEGACY_REVISION
from bench.forwarder import Lines
from bench.http_client import MODERN_VERSION
from bench.http_wire import Incoming, Outgoing, listen

INITIALIZE = {
    "protocolVersion": LEGACY_REVISION,
    "capabilities": {},
    "clientInfo": {"name": "forwarder", "version": "1"},
}


class Asked(NamedTuple):
    """Who waits for an answer, and under which id."""

    connection: Incoming
    identifier: object


class Downstream(Protocol):
    """The way to the server."""

    def send(self, message: dict[str, Any]) -> None:
        """One message, with the id that its answer will carry."""


class HttpForwarder:
    """Gives each request an id of its own, and each answer its old one."""

    def __init__(self) -> None:
        self.downstream: Downstream | None = None
        self._counter = 0
        self._asked: dict[int, Asked] = {}

    def handle(self, connection: Incoming, body: bytes) -> None:
        assert self.downstream is not None
        message = orjson.loads(body)
        if "id" in message and "method" in message:
            self._counter += 1
            self._asked[self._counter] = Asked(connection, message["id"])
            message["id"] = self._counter
        else:
            connection.respond(b"")
        self.downstream.send(message)

    def answered(self, body: bytes) -> None:
        if not body:
            return
        message = orjson.loads(body)
        asked = self._asked.pop(message.get("id"), None)
        if asked is not None:
            message["id"] = asked.identifier
            asked.connection.respond(orjson.dumps(message))


class ChildDownstream(asyncio.SubprocessProtocol):
    """A server over stdio."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        self._answered = answered
        self._lines = Lines()
        self._sink: asyncio.WriteTransport | None = None

    async def start(self, command: list[str]) -> None:
        child, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self, *command, stderr=None, stdin=-1, stdout=-1
        )
        self._sink = cast(asyncio.WriteTransport, child.get_pipe_transport(0))
        # Once, for all clients: the modern ones have no handshake of their own. Its answer is nobody's.
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self._sink is not None
        self._sink.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._answered(line)


class HttpDownstream:
    """A server over HTTP: connections are kept, and opened when all are busy."""

    def __init__(self, url: str, answered: Callable[[bytes], None]) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._answered = answered
        self._free: list[Outgoing] = []
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, message: dict[str, Any]) -> None:
        request = self._request(message)
        if self._free:
            self._free.pop().request(request)
            return
        task = asyncio.get_running_loop().create_task(self._open(request))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Outgoing(self._received), self._host, self._port)
        connection.request(request)

    def _received(self, connection: Outgoing, body: bytes) -> None:
        self._free.append(connection)
        self._answered(body)

    def _request(self, message: dict[str, Any]) -> bytes:
        body = orjson.dumps(message)
        method, name = message.get("method", ""), (message.get("params") or {}).get("name", "")
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN_VERSION}\r\n"
            f"Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def forward(kind: str, target: list[str]) -> None:
    forwarder = HttpForwarder()
    if kind == "--http":
        forwarder.downstream = HttpDownstream(target[0], forwarder.answered)
    else:
        child = ChildDownstream(forwarder.answered)
        await child.start(target)
        forwarder.downstream = child
    await listen(forwarder.handle)


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in ("--stdio", "--http"):
        print("usage: python -m bench.http_forwarder --stdio COMMAND [ARGUMENT ...] | --http URL", file=sys.stderr)
        return 2
    uvloop.run(forward(arguments[0], arguments[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
