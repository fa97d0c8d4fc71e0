"""A workbench with a policy, in front of a server that has two of everything, and a client that asks for it: of either
era, over stdio and over HTTP, in every face.

The server answers by itself within the event loop; over HTTP the real endpoint listens on loopback.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.model import FaceName, WorkbenchConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.link import Receiver
from tests.engine.transport.http.server.raw_client import RawClient, raw_client
from tests.support.client import Json
from tests.support.parts import joined

VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
META = "io.modelcontextprotocol/"
TASKS = "io.modelcontextprotocol/tasks"
ELICITATION: Json = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
# What is hidden, and something as near to everything else that is nowhere.
SECRET, NOWHERE = "secret", "secrex"
PATIENCE = 45.0


class _Server:
    """A server of one era (`ServerLink`), which has two of everything."""

    unsent_bytes = 0

    def __init__(self, era: str, receiver: Receiver) -> None:
        self._era = era
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self.received: list[Json] = []
        # The calls that its questions belong to.
        self._asking: dict[str, Any] = {}

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        self.received.append(message)
        if "method" in message and "id" in message:
            self._loop.call_soon(self._answer, message["id"], message["method"], message.get("params") or {})
        elif message.get("id") in self._asking:
            done = {"content": [{"type": "text", "text": "asked"}]}
            self._say({"id": self._asking.pop(message["id"]), "result": done})

    def _answer(self, id: Any, method: str, params: Json) -> None:
        if method == "tools/call" and params.get("arguments", {}).get("ask"):
            # The answer of the call waits for that of its question.
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            self._say({"id": f"ask-{id}", "method": "elicitation/create", "params": form})
            self._asking[f"ask-{id}"] = id
            return
        if method == "subscriptions/listen":
            granted = {"_meta": {META + "subscriptionId": id}, "notifications": params["notifications"]}
            self._say({"method": "notifications/subscriptions/acknowledged", "params": granted})
            return
        result = self._result(method, params)
        if result is None:
            self._say({"id": id, "error": {"code": -32601, "message": f"no {method}"}})
        else:
            self._say({"id": id, "result": {**({"resultType": "complete"} if self._era == "modern" else {}), **result}})

    def _result(self, method: str, params: Json) -> Json | None:
        both = (SECRET, "open")
        capabilities = {
            "tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {},
            "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}, "extensions": {TASKS: {}},
        }  # fmt: skip
        info = {"name": "matrix", "version": "1"}
        if method == "tools/call":
            return self._called(params)
        if method.startswith("tasks/"):
            return {"taskId": params.get("taskId"), "status": "working", "ttl": None, "content": []}
        answers: dict[str, Json] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info},
            "server/discover": {
                "supportedVersions": [VERSIONS["modern"]],
                "capabilities": capabilities,
                "_meta": {META + "serverInfo": info},
            },
            "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in both]},
            "prompts/list": {"prompts": [{"name": name} for name in both]},
            "resources/list": {"resources": [{"uri": f"test:///{name}", "name": name} for name in both]},
            "resources/templates/list": {"resourceTemplates": []},
            "prompts/get": {"messages": []},
            "resources/read": {"contents": [{"uri": params.get("uri"), "text": "read"}]},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
            "completion/complete": {"completion": {"values": ["completed"]}},
        }
        wrong_era = {"legacy": "server/discover", "modern": "initialize"}[self._era]
        return None if method == wrong_era else answers.get(method)

    def _called(self, params: Json) -> Json:
        arguments = params.get("arguments", {})
        if "task" in params:
            return {"task": {"taskId": "t-1", "status": "working"}}
        if arguments.get("task"):
            return {"resultType": "task", "taskId": "t-1", "status": "working", "ttlMs": 60_000}
        return {"content": [{"type": "text", "text": "called " * (5000 if arguments.get("large") else 1)}]}

    def _say(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._loop.call_soon(self._receiver.on_message, line)

    async def stop(self) -> None:
        pass

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []


class _Gateway(Gateway):
    def __init__(self, config: WorkbenchConfig, era: str, face: FaceName) -> None:
        super().__init__(config, Options(face=face, use_cache=False))
        self.runtime.open_link = self._open_link
        self.era = era
        self.servers: list[_Server] = []

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        self.servers.append(_Server(self.era, receiver))
        return self.servers[-1]

    def reached(self, method: str) -> list[Json]:
        """What the server got of one method."""
        return [each for server in self.servers for each in server.received if each.get("method") == method]


class PolicyClient:
    """What both transports have in common: `exchange` is theirs."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.asked = 0
        # What its user says to questions of ours.
        self.answer: Json = {"action": "accept", "content": {"allow": "once"}}
        # What happens before it does.
        self.before_answer: Callable[[], Awaitable[None]] = nothing
        self._ids = itertools.count(1)

    async def exchange(self, message: Json) -> Json:
        raise NotImplementedError

    async def on_question(self, message: Json) -> Json:
        assert message["method"] == "elicitation/create"
        self.asked += 1
        await self.before_answer()
        return {"jsonrpc": "2.0", "id": message["id"], "result": self.answer}

    async def send(self, method: str, params: Json) -> Json:
        """The answer to one request; nobody is asked anything."""
        stamp = {
            META + "protocolVersion": VERSIONS["modern"],
            META + "clientInfo": {"name": "matrix", "version": "1"},
            META + "clientCapabilities": ELICITATION,
        }
        stamped = {**params, "_meta": stamp} if self.era == "modern" else params
        return await self.exchange({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": stamped})

    async def request(self, method: str, params: Json | None = None) -> Json:
        """The same, with our questions answered."""
        answer = await self.send(method, params or {})
        while answer.get("result", {}).get("resultType") == "input_required":
            self.asked += 1
            responses = dict.fromkeys(answer["result"]["inputRequests"], self.answer)
            state = answer["result"]["requestState"]
            answer = await self.send(method, {**(params or {}), "inputResponses": responses, "requestState": state})
        return answer

    async def begin(self) -> None:
        if self.era == "legacy":
            hello = {"protocolVersion": VERSIONS["legacy"], "capabilities": ELICITATION, "clientInfo": {"name": "m"}}
            await self.send("initialize", hello)


async def nothing() -> None:
    pass


class _StdioLink:
    """What the session sees of such a client (`Link`)."""

    unsent_bytes = 0

    def __init__(self, client: StdioClient) -> None:
        self._client = client

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        self._client.take(json.loads(joined(parts)))


class StdioClient(PolicyClient):
    def __init__(self, era: str, gateway: Gateway, principal: str) -> None:
        super().__init__(era)
        self._answers: dict[Any, asyncio.Future[Json]] = {}
        self.notified: list[Json] = []
        self.session = gateway.make_session(_StdioLink(self), principal, lambda reason: None, lasts=True)

    def take(self, message: Json) -> None:
        if "method" not in message:
            self._answers.pop(message["id"]).set_result(message)
        elif "id" in message:
            self._answering = asyncio.ensure_future(self._answer(message))
        else:
            self.notified.append(message)

    async def _answer(self, message: Json) -> None:
        self.session.on_message(json.dumps(await self.on_question(message)).encode())

    async def exchange(self, message: Json) -> Json:
        future = self._answers[message["id"]] = asyncio.get_running_loop().create_future()
        self.session.on_message(json.dumps(message).encode())
        return await asyncio.wait_for(future, PATIENCE)


class HttpClient(PolicyClient):
    def __init__(self, era: str, http: RawClient, principal: str) -> None:
        super().__init__(era)
        self._http = http
        self._headers: dict[str, Any] = {"authorization": f"Bearer {principal}"}
        self.notified: list[Json] = []

    async def exchange(self, message: Json) -> Json:
        params = message["params"]
        headers = dict(self._headers)
        if self.era == "modern":
            headers |= {"mcp_protocol_version": VERSIONS["modern"], "mcp_method": message["method"]}
            name = params.get("name") or params.get("uri") or params.get("taskId")
            headers |= {} if name is None else {"mcp_name": name}
        response = await self._http.request(body=message, **headers)
        if "mcp-session-id" in response.headers:
            self._headers["mcp_session_id"] = response.headers["mcp-session-id"]
        if not response.is_stream:
            return response.json
        while True:
            told = await response.message()
            if told.get("id") == message["id"] and "method" not in told:
                return told
            if "id" in told:
                answered = await self._http.request(body=await self.on_question(told), **self._headers)
                assert answered.status == 202
            else:
                self.notified.append(told)
                if told["method"] == "notifications/subscriptions/acknowledged":
                    return told


class _ByToken:
    """Whoever says so (`Authenticator`)."""

    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> str:
        return str(head.headers["authorization"]).partition(" ")[2]


class Rig:
    def __init__(self, folder: Path, gateway: _Gateway, client: PolicyClient) -> None:
        self._folder = folder
        self.gateway = gateway
        self.client = client
        # How this face calls the tool and the prompt that nothing is decided about.
        self._open: dict[str, str] = {}

    async def look(self) -> None:
        """See how things are called. The server is known from then on."""
        if self.gateway.face.name != "flat":
            await self.client.request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
        for kind in ("tools", "prompts"):
            listed = (await self.client.request(f"{kind}/list"))["result"][kind]
            self._open[kind] = next((each["name"] for each in listed if each["name"].endswith("open")), "")

    def name(self, kind: str, own: str) -> str:
        return self._open[kind].removesuffix("open") + own

    def use(self, tool: str, **arguments: object) -> tuple[str, Json]:
        """A call of this tool, as the face wants it."""
        if self.gateway.face.name == "proxy":
            path = {"toolbox": "box", "server": "server", "tool": tool}
            return "tools/call", {"name": "use_tool", "arguments": {"tool": path, "arguments": arguments}}
        return "tools/call", {"name": self.name("tools", tool), "arguments": arguments}

    def requested(self, kind: str, own: str) -> tuple[str, Json]:
        """A request for something that the server calls so."""
        match kind:
            case "call":
                return self.use(own)
            case "prompt":
                return "prompts/get", {"name": self.name("prompts", own)}
            case "resource":
                return "resources/read", {"uri": f"test:///{own}"}
        ref = {"type": "ref/prompt", "name": self.name("prompts", own)}
        return "completion/complete", {"ref": ref, "argument": {"name": "a", "value": "b"}}

    async def decide(self, then: str) -> None:
        """Put the policy in force that decides so about what is secret."""
        await self.gateway.apply(load(str(_written(self._folder, then)), os.environ))


def _written(folder: Path, then: str) -> Path:
    secret = {
        "tools": [f"box/server/{SECRET}"],
        "prompts": [f"box/server/{SECRET}"],
        "resources": [f"*/*/test:///{SECRET}"],
    }
    policy = [{"who": ["bob"], **secret, "then": then}, {"then": "allow"}]
    servers = {"server": {"command": "none", "resultBudget": 500}}
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"policy": policy, "toolboxes": {"box": {"description": "B.", "mcpServers": servers}}}))
    return path


@asynccontextmanager
async def rigged(
    folder: Path, era: str, transport: str, server_era: str, face: FaceName = "proxy"
) -> AsyncIterator[Rig]:
    config = load(str(_written(folder, "allow")), os.environ)
    async with AsyncExitStack() as stack:
        gateway = _Gateway(config, server_era, face)
        await stack.enter_async_context(gateway.running())
        if transport == "stdio":
            local = StdioClient(era, gateway, "bob")
            stack.callback(local.session.leave)
            client: PolicyClient = local
        else:
            gateway.runtime.pool.serve_many()
            server = await serve_http(
                HttpOptions(port=0, authenticator=_ByToken()),
                gateway.make_session,
                readiness=gateway.readiness,
                parameters_of=gateway.mirrored_parameters(),
            )
            stack.push_async_callback(server.stop)
            client = HttpClient(era, await stack.enter_async_context(raw_client(server.port)), "bob")
        await client.begin()
        rig = Rig(folder, gateway, client)
        await rig.look()
        yield rig
