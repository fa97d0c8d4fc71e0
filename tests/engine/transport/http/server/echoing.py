"""A session that needs no engine: it does what the method of a request says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from msgspec import Raw

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Envelope, Malformed
from mcp_workbench.engine.transport.http.server.endpoint import OnRefused
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, HttpServer, serve_http
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.pages import Page
from mcp_workbench.engine.transport.http.server.validation import ShownParameters
from mcp_workbench.engine.transport.link import Link
from mcp_workbench.errors import DownstreamError, WorkbenchError
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.raw_client import RawClient, RawConnection, Response, raw_client

Json = dict[str, Any]


class EchoSession:
    """Answers `echo` at once, `later` when told to, and whatever brings an error with that."""

    def __init__(self, rig: EchoRig, link: Link, principal: str) -> None:
        self.rig = rig
        self.link = link
        self.principal = principal
        self.calls: dict[bytes, Json] = {}
        self.received: list[Json] = []
        self.ended: list[str] = []
        self.peer = ""
        self.identity: object = None
        self.trace_parent = ""

    def on_message(self, line: bytes) -> None:
        assert b"\n" not in line and b"\r" not in line
        message = json.loads(line)
        self.received.append(message)
        if "id" in message and "method" in message:
            self._on_request(json.dumps(message["id"]).encode(), message["method"], message.get("params", {}))
        elif message.get("method") == "notifications/cancelled":
            self.calls.pop(json.dumps(message["params"]["requestId"]).encode(), None)

    def on_request(self, id: bytes, method: str, params: dict[str, Raw]) -> None:
        self.on_message(messages.request(id, method, messages.encode(params)))

    def on_read_message(self, line: bytes, message: Envelope | Malformed) -> None:
        assert isinstance(message, Envelope)
        self.on_message(line)

    def on_oversized(self, remains: Oversized) -> None:
        raise AssertionError("HTTP refuses what is too large")

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        raise AssertionError("no question fails here")

    def on_closed(self, reason: str) -> None:
        self.ended.append(reason)

    def end(self, error: WorkbenchError) -> None:
        for id in list(self.calls):
            del self.calls[id]
            self.refuse(id, {"code": -32603, "message": error.message})

    def _on_request(self, id: bytes, method: str, params: Any) -> None:
        if method == "initialize" and (not isinstance(params, dict) or "protocolVersion" not in params):
            self.refuse(id, {"code": -32602, "message": "no revision"})
        elif method == "initialize":
            self.answer(id, {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {}})
        elif "error" in params:
            self.refuse(id, params["error"])
        elif method in ("later", "subscriptions/listen"):
            self.calls[id] = params
        elif method == "break":
            raise RuntimeError("a defect")
        else:
            self.answer(id, {"echo": params, "principal": self.principal})

    def answer(self, id: bytes, result: Json) -> None:
        self.calls.pop(id, None)
        self.link.send(b'{"jsonrpc":"2.0","id":%b,"result":' % id, json.dumps(result).encode(), b"}")

    def refuse(self, id: bytes, error: Json) -> None:
        self.link.send(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, json.dumps(error).encode()))

    def notify(self, method: str, about: bytes | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.link.send(json.dumps(message, separators=(",", ":")).encode(), about=about)

    def ask(self, id: int, method: str, about: bytes | None = None) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.link.send(json.dumps(message, separators=(",", ":")).encode(), about=about)


class EchoRig:
    """A server with such sessions, and all of them that there ever were."""

    def __init__(self) -> None:
        self.sessions: list[EchoSession] = []
        self.server: HttpServer
        self.client: RawClient

    def make_session(self, link: Link, principal: str) -> EchoSession:
        session = EchoSession(self, link, principal)
        self.sessions.append(session)
        return session

    async def refused(self, request: Awaitable[Response], status: int) -> Response:
        """The answer to a request that goes no further: no session is made for it or hears of it, and nothing of it is
        kept."""
        before = self._surroundings()
        response = await request
        assert response.status == status, response
        assert self._surroundings() == before
        return response

    def _surroundings(self) -> tuple[object, ...]:
        heard = [(list(session.received), list(session.ended), dict(session.calls)) for session in self.sessions]
        return heard, self.server._connections.bodies.reserved

    @property
    def last(self) -> EchoSession:
        return self.sessions[-1]

    async def under_way(self, count: int = 1) -> None:
        """Until that many calls wait for their answer."""
        await wait_until(lambda: sum(len(session.calls) for session in self.sessions) >= count)


@contextlib.asynccontextmanager
async def echoing(
    limits: Limits | None = None,
    parameters_of: ShownParameters | None = None,
    pages: dict[str, Page] | None = None,
    on_refused: OnRefused | None = None,
    **options: Any,
) -> AsyncIterator[EchoRig]:
    """A rig that serves on a free port, with a client."""
    rig = EchoRig()
    rig.server = await serve_http(
        HttpOptions(port=0, limits=limits or Limits(), **options),
        rig.make_session,
        parameters_of=parameters_of,
        pages=pages,
        on_refused=on_refused,
    )
    try:
        async with raw_client(rig.server.port) as rig.client:
            yield rig
    finally:
        async with asyncio.timeout(10):
            await rig.server.stop()
    assert all(len(session.ended) == 1 for session in rig.sessions), "each session is told its end once"


async def stalled(rig: EchoRig) -> RawConnection:
    """A client whose kernel takes almost nothing, and which does not read."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", rig.server.port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=1024)
    connection = RawConnection(reader, writer)
    rig.client._open.append(connection)
    return connection
