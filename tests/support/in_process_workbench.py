"""A workbench within the test, in front of servers whose tools are whatever a test says.

Owns these servers, which answer within the event loop and count what they are asked. Everything between them and the
client is what is served to agents.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.catalog.replacement import Difference
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.errors import DownstreamError
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.client import Json
from tests.support.parts import joined

Answer = Callable[[str, Json], Json]
# What a list holds, and what a `Server` keeps it as.
LISTS = {
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "templates"),
    "skills/list": ("skills", "skills"),
}


def tool(name: str, description: str = "", /, **schema: Any) -> Json:
    """A definition; `schema` are the properties, those that end in `_` required, under their name without it."""
    properties = {
        key.rstrip("_"): value if isinstance(value, dict) else {"type": value} for key, value in schema.items()
    }
    required = [key.rstrip("_") for key in schema if key.endswith("_")]
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, **({"required": required} if required else {})},
    }


def text_of(result: Json) -> str:
    found: str = result["content"][0]["text"]
    return found


def echoed(name: str, arguments: Json) -> Json:
    return {"content": [{"type": "text", "text": json.dumps({"tool": name, "arguments": arguments})}]}


class Server:
    """What a server offers and how it answers. `failing` is why it does not start; `gate` holds its start back."""

    def __init__(self, *tools: Json, answer: Answer = echoed, instructions: str = "", **settings: Any) -> None:
        self.tools = list(tools)
        self.prompts: list[Json] = []
        self.resources: list[Json] = []
        self.templates: list[Json] = []
        self.skills: list[Json] = []
        # What it answers to other methods, by method.
        self.others: dict[str, Callable[[Json], Json]] = {}
        # Further capabilities.
        self.declared: Json = {}
        # What it lists instead on the connections of some principals.
        self.tools_of: dict[str, list[Json]] = {}
        # The same for `prompts`, `resources` and `templates`, by principal and kind.
        self.lists_of: dict[tuple[str, str], list[Json]] = {}
        self.answer = answer
        self.instructions = instructions
        # Further keys of its entry in the configuration.
        self.settings = settings
        self.failing: str | None = None
        self.gate: asyncio.Event | None = None
        # Where it is a list, calls are not answered before what is put into it is called.
        self.held: list[Callable[[], None]] | None = None
        self.starts = 0
        self.calls: list[tuple[str, Json]] = []
        # The ids of the calls that were cancelled.
        self.cancelled: list[Any] = []
        # Called with the client's answers to what it asks.
        self.on_answer: Callable[[Json], None] = lambda answer: None
        # What it was asked beside tools: the method, and the item.
        self.asked: list[tuple[str, str]] = []
        self.links: list[_Link] = []

    def capabilities(self) -> Json:
        found: Json = {"tools": {"listChanged": True}}
        if self.prompts:
            found["prompts"] = {}
        if self.resources or self.templates:
            found["resources"] = {"subscribe": True}
        return {**found, **self.declared}

    def say_changed(self, principal: str | None = None) -> None:
        for link in self.links:
            if principal in (None, link.principal):
                link.say({"method": "notifications/tools/list_changed"})


class _Link:
    """The connection to a server (`ServerLink`)."""

    unsent_bytes = 0

    def __init__(self, server: Server, receiver: Receiver, principal: str) -> None:
        self._server = server
        self.principal = principal
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        if "id" in message and "method" in message:
            self._answer(message["id"], message["method"], message.get("params") or {})
        elif message.get("method") == "notifications/cancelled":
            self._server.cancelled.append(message["params"]["requestId"])
        elif "method" not in message:
            self._server.on_answer(message)

    def _answer(self, id: Any, method: str, params: Json) -> None:
        if method in self._server.others:
            self._server.asked.append((method, params.get("uri") or params.get("taskId") or ""))
            result: Json = self._server.others[method](params)
            if not result:
                # It never answers.
                return
            if "code" in result:
                self.say({"id": id, "error": result})
                return
        elif method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": self._server.capabilities(),
                "serverInfo": {"name": "in-process", "version": "1"},
            }
            if self._server.instructions:
                result["instructions"] = self._server.instructions
        elif method == "server/discover" and self._server.settings.get("protocol") == "modern":
            info = {"io.modelcontextprotocol/serverInfo": {"name": "in-process", "version": "1"}}
            offered = {"supportedVersions": ["2026-07-28"], "capabilities": self._server.capabilities()}
            result = {"resultType": "complete", **offered, "_meta": info}
        elif method == "tools/list":
            result = {"tools": self._server.tools_of.get(self.principal, self._server.tools)}
        elif method in LISTS:
            member, attribute = LISTS[method]
            own = self._server.lists_of.get((self.principal, attribute))
            result = {member: getattr(self._server, attribute) if own is None else own}
        elif method in ("prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe"):
            item = params.get("name") or params.get("uri") or ""
            self._server.asked.append((method, item))
            read = {"contents": [{"uri": item, "text": "content"}]}
            result = {"messages": []} if method == "prompts/get" else read if method == "resources/read" else {}
        elif method == "tools/call":
            self._server.calls.append((params["name"], params.get("arguments", {})))
            result = self._server.answer(params["name"], params.get("arguments", {}))
            if "code" in result:
                self.say({"id": id, "error": result})
                return
            if self._server.held is not None:
                self._server.held.append(partial(self.say, {"id": id, "result": result}))
                return
        else:
            self.say({"id": id, "error": {"code": -32601, "message": f"no {method}"}})
            return
        self.say({"id": id, "result": result})

    def say(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()
        self._loop.call_soon(lambda: None if self._is_over else self._receiver.on_message(line))

    def die(self, reason: str) -> None:
        self._is_over = True
        self._loop.call_soon(self._receiver.on_closed, reason)

    async def stop(self) -> None:
        self._is_over = True

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []


Boxes = Mapping[str, Mapping[str, Server]]


class InProcessGateway(Gateway):
    """A workbench whose servers are values."""

    def __init__(self, config: WorkbenchConfig, servers: Mapping[str, Server], options: Options) -> None:
        super().__init__(config, options)
        self.runtime.open_link = self._open_link
        self._servers = servers

    async def apply_boxes(self, folder: Path, boxes: Boxes, **settings: Any) -> Difference:
        """Have a file with these servers in force; settings as for `write`."""
        self.use(boxes)
        difference = await self.apply(load(str(write(folder, boxes, **settings)), os.environ))
        assert difference is not None
        return difference

    def use(self, boxes: Boxes) -> None:
        """These are the servers that the file names from now on."""
        self._servers = {f"{box}/{name}": server for box, inside in boxes.items() for name, server in inside.items()}

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        server = self._servers[f"{connection.entry.toolbox}/{connection.entry.name}"]
        server.starts += 1
        if server.gate is not None:
            await server.gate.wait()
        if server.failing is not None:
            raise DownstreamError(server.failing)
        link = _Link(server, receiver, connection.principal)
        server.links.append(link)
        return link


class ConnectedClient:
    """One client in front of such a workbench."""

    def __init__(self, gateway: InProcessGateway, client: MemoryClient) -> None:
        self.gateway = gateway
        self.client = client

    async def open(self, **arguments: Any) -> Json:
        return await self.client.call_tool("open_toolbox", arguments)

    async def said(self, **arguments: Any) -> str:
        """The text of the answer of `open_toolbox`."""
        return text_of(await self.open(**arguments))

    async def use(self, tool: Any, arguments: Json | None = None, **more: Any) -> Json:
        return await self.client.call_tool("use_tool", {"tool": tool, "arguments": arguments or {}, **more})


def write(folder: Path, boxes: Boxes, **settings: Any) -> Path:
    """A configuration; `descriptions` and `budgets` are those of toolboxes, by name."""
    descriptions, budgets = settings.pop("descriptions", {}), settings.pop("budgets", {})
    toolboxes = {}
    for box, servers in boxes.items():
        entries = {
            name: {"command": f"{box}/{name}", "protocol": "legacy", **s.settings} for name, s in servers.items()
        }
        toolboxes[box] = {"description": descriptions.get(box, f"Toolbox {box}."), "mcpServers": entries}
        if box in budgets:
            toolboxes[box]["budget"] = budgets[box]
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"toolboxes": toolboxes, **settings}))
    return path


@asynccontextmanager
async def workbench_with(
    folder: Path,
    boxes: Boxes,
    *,
    era: str = "legacy",
    options: Mapping[str, Any] | None = None,
    principal: str = "",
    abilities: Json | None = None,
    **settings: Any,
) -> AsyncIterator[ConnectedClient]:
    """A client that has introduced itself to a workbench in front of these servers."""
    config = load(str(write(folder, boxes, **settings)), os.environ)
    servers = {f"{box}/{name}": server for box, inside in boxes.items() for name, server in inside.items()}
    async with AsyncExitStack() as stack:
        gateway = InProcessGateway(config, servers, Options(**(options or {})))
        await stack.enter_async_context(gateway.running())
        client = await stack.enter_async_context(MemoryClient.of(gateway, principal))
        await introduce(client, era, abilities)
        yield ConnectedClient(gateway, client)
