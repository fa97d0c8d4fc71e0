"""A workbench in this process: the real packages between a fake client and fake servers, message by message.

Owns the two ends. Between them lies everything that serves real clients, from session to traffic; there are no
processes and no pipes, so a message has arrived when `send` returns, and nothing is left to time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.model import FaceName, ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from tests.bridge.fake_server import FakeServer
from tests.support.parts import joined

Json = dict[str, Any]

ERAS = ("legacy", "modern")
LEGACY_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
# Everything that a server may ask for.
EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
# For what has to go through the event loop (the start of a server); nothing that works comes near it.
PATIENCE = 45.0


class Request:
    """A request of the client, and its answer once there is one."""

    def __init__(self, id: int, client: Client) -> None:
        self.id = id
        self._client = client

    @property
    def answer(self) -> Json | None:
        """The whole message, None while it is under way. Two answers are never right."""
        found = [
            message for message in self._client.received if message.get("id") == self.id and "method" not in message
        ]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def result(self) -> Json:
        assert self.answer is not None, "not answered yet"
        assert "result" in self.answer, self.answer
        result: Json = self.answer["result"]
        return result

    @property
    def error(self) -> Json:
        assert self.answer is not None, "not answered yet"
        assert "error" in self.answer, self.answer
        error: Json = self.answer["error"]
        return error

    @property
    def progress(self) -> list[Json]:
        """What came as progress, in order."""
        return self._client.told("notifications/progress")


class Client:
    """A client of one era (`Link`), controlled by the test."""

    unsent_bytes = 0

    def __init__(
        self, gateway: Gateway, era: str, capabilities: Json, principal: str, face: str, lasts: bool = False
    ) -> None:
        self.era = era
        # Whether a modern one has a session: its link is its own.
        self.lasts = lasts
        self.face = face
        self.capabilities = capabilities
        self.principal = principal
        self.received: list[Json] = []
        self.session = gateway.make_session(self, principal, lambda reason: None, lasts=lasts)
        # What a modern one stamps its requests with.
        self.version = MODERN_VERSION
        # In front of flat names.
        self.toolbox = "" if gateway.config.plain else "box:"
        self._ids = itertools.count(1)
        if era == "legacy":
            params = {"protocolVersion": LEGACY_VERSION, "capabilities": capabilities, "clientInfo": {"name": "fake"}}
            self.send_request("initialize", params)
            self.notify("notifications/initialized")

    # what the session does with it

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        assert message["jsonrpc"] == "2.0"
        self.received.append(message)

    # what the test does with it

    def send_raw(self, message: Json) -> None:
        self.session.on_message(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_request(self, method: str, params: Json | None = None, *, meta: Json | None = None) -> Request:
        """A request in the way of the client's era; `meta` are further members of `_meta`."""
        params = dict(params or {})
        stamp = {**(self.stamp() if self.era == "modern" else {}), **(meta or {})}
        if stamp:
            params["_meta"] = stamp
        request = Request(next(self._ids), self)
        self.send_raw({"id": request.id, "method": method, "params": params})
        return request

    def stamp(self) -> Json:
        return {
            META + "protocolVersion": self.version,
            META + "clientInfo": {"name": "fake", "version": "1"},
            META + "clientCapabilities": self.capabilities,
        }

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send_raw({"method": method, "params": params or {}})

    def cancel(self, request: Request) -> None:
        self.notify("notifications/cancelled", {"requestId": request.id, "reason": "the test cancels"})

    def told(self, method: str) -> list[Json]:
        """The parameters of the notifications of one kind, in order."""
        return [message.get("params", {}) for message in self.received if message.get("method") == method]

    def questions(self) -> list[Json]:
        """What this client was asked in the legacy way, in order."""
        return [message for message in self.received if "method" in message and "id" in message]

    def answer(self, question: Json, result: object) -> None:
        self.send_raw({"id": question["id"], "result": result})

    def refuse(self, question: Json, code: int, message: str) -> None:
        self.send_raw({"id": question["id"], "error": {"code": code, "message": message}})

    def call(self, route: str = "tool", *, meta: Json | None = None, **fields: object) -> Request:
        """One of the three requests that a server may ask questions about; `fields` go beside the usual ones."""
        return self.send_request(*self.written(route, **fields), meta=meta)

    def written(self, route: str, **fields: object) -> tuple[str, Json]:
        """Method and parameters of a call, as the face wants them."""
        if route == "resource":
            return "resources/read", {"uri": "test:///one", **fields}
        arguments = fields.pop("arguments", {"a": "1"})
        name = "write" if route == "prompt" else "work"
        if self.face == "flat":
            named: Json = {"name": f"{self.toolbox}server:{name}", "arguments": arguments}
        elif route == "prompt":
            named = {"name": f"box/server/{name}", "arguments": arguments}
        else:
            path = {"toolbox": "box", "server": "server", "tool": name}
            named = {"name": "use_tool", "arguments": {"tool": path, "arguments": arguments}}
        return ("prompts/get" if route == "prompt" else "tools/call"), {**named, **fields}

    def retry(self, asked: Request, responses: object, route: str = "tool", **fields: object) -> Request:
        """Come back with answers to an `input_required`. `responses` None leaves the member out."""
        more = {} if responses is None else {"inputResponses": responses}
        return self.call(route, **{"requestState": asked.result["requestState"], **more, **fields})


class InProcessWorkbench:
    """The gateway, its clients and its servers."""

    def __init__(self, gateway: GatewayToFakeServers, face: str) -> None:
        self.gateway = gateway
        self.parking = gateway.parking
        self.clients: list[Client] = []
        self._face = face

    def client(self, era: str, capabilities: Json | None = None, principal: str = "", *, lasts: bool = False) -> Client:
        declared = EVERYTHING if capabilities is None else capabilities
        self.clients.append(Client(self.gateway, era, declared, principal, self._face, lasts))
        return self.clients[-1]

    async def connect(self, client: Client, server: str = "server") -> FakeServer:
        """The server that this client's calls go to, started and listed."""
        probe = client.send_request("tools/call", _warm_up(client, server))
        await until(lambda: any(call["params"].get("name") == "warm_up" for call in self.unanswered()))
        fake, call = next(
            (each, call)
            for each in self.gateway.fake_servers
            for call in each.open_calls()
            if call["params"].get("name") == "warm_up"
        )
        fake.reply(call, {"content": []})
        assert probe.result["content"] == []
        client.received.clear()
        fake.received.clear()
        connection = fake.connection
        await until(lambda: connection.entry.is_live)
        return fake

    def unanswered(self) -> list[Json]:
        return [call for fake in self.gateway.fake_servers for call in fake.open_calls()]

    def is_clean(self) -> bool:
        """Whether nothing is kept for any call: neither here nor on the way to a server."""
        return (
            len(self.parking) == 0
            and not self.parking._counts
            and not any(fake.traffic.call_count for fake in self.gateway.fake_servers)
            and not any(len(fake.traffic.questions) for fake in self.gateway.fake_servers)
            and not any(client.session.calls or len(client.session.questions) for client in self.clients)
        )


def _warm_up(client: Client, server: str) -> Json:
    if client.face == "flat":
        return {"name": f"{client.toolbox}{server}:warm_up", "arguments": {}}
    path = {"toolbox": "box", "server": server, "tool": "warm_up"}
    return {"name": "use_tool", "arguments": {"tool": path, "arguments": {}}}


class GatewayToFakeServers(Gateway):
    """Starts fake servers instead of processes."""

    def __init__(
        self,
        config: WorkbenchConfig,
        options: Options,
        eras: Mapping[str, str],
        versions: Sequence[str],
        capabilities: Mapping[str, Json],
    ) -> None:
        super().__init__(config, options)
        self.runtime.open_link = self._open_link
        self._capabilities = capabilities
        self._versions = versions
        self.fake_servers: list[FakeServer] = []
        self._eras = eras
        # Awaited before each start: a test holds it up or fails it.
        self.before_start: Callable[[], Awaitable[object]] | None = None
        # Methods that servers started from now on answer with an error.
        self.refused: set[str] = set()

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        name = connection.config.name
        if self.before_start is not None:
            await self.before_start()
        more = self._capabilities.get(name)
        fake = FakeServer(self._eras[name], connection, receiver, self._versions, more)
        fake.refused |= self.refused
        self.fake_servers.append(fake)
        return fake


@asynccontextmanager
async def in_process_workbench(
    server_era: str,
    *,
    face: FaceName = "flat",
    servers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    use_cache: bool = False,
    versions: Sequence[str] = (MODERN_VERSION,),
    capabilities: Mapping[str, Json] | None = None,
    settings: Mapping[str, Any] | None = None,
    policy: tuple[PolicyRule, ...] = (),
    limits: tuple[LimitRule, ...] = (),
    plain: bool = False,
) -> AsyncIterator[InProcessWorkbench]:
    """One server of this era, or those of `servers`, in one toolbox; `timeout` is that of their calls.

    `versions` are the modern revisions that they speak, `capabilities` what each declares beside the usual,
    `settings` further ones of each."""
    eras = servers or {"server": server_era}
    configs = {name: ServerConfig(name=name, command="fake", timeout=timeout, **(settings or {})) for name in eras}
    box = ToolboxConfig(name="box", description="The box.", servers=configs)
    config = WorkbenchConfig(path="fake.json", toolboxes={"box": box}, policy=policy, limits=limits, plain=plain)
    gateway = GatewayToFakeServers(config, Options(face=face, use_cache=use_cache), eras, versions, capabilities or {})
    async with gateway.running():
        workbench = InProcessWorkbench(gateway, face)
        yield workbench
        for client in workbench.clients:
            client.session.leave()


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


async def settled() -> None:
    """Let the event loop do what it has to do anyway."""
    for _ in range(10):
        await asyncio.sleep(0)
