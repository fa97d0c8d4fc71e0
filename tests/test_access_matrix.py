"""Everything that a client can ask for, under each decision, in both eras, over stdio and HTTP: one policy, one answer.

The server answers by itself within the event loop; over HTTP the real endpoint listens on loopback.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import load
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.server_link import ServerLink
from mcp_workbench.gateway import Gateway, Options
from mcp_workbench.jsonrpc.messages import Part
from mcp_workbench.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.transport.http.server.request_head import RequestHead
from mcp_workbench.transport.link import Receiver
from tests.support.client import Json
from tests.support.parts import joined
from tests.transport.http.server.raw_client import RawClient, raw_client

pytestmark = pytest.mark.processes

DECISIONS = ("allow", "deny", "hide", "ask")
ERAS = ("legacy", "modern")
TRANSPORTS = ("stdio", "http")
KINDS = (
    "list",
    "search",
    "call",
    "prompt",
    "resource",
    "subscription",
    "completion",
    "task",
    "kept result",
    "parked call",
)
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

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        self.received.append(message)
        if "method" in message and "id" in message:
            self._loop.call_soon(self._answer, message["id"], message["method"], message.get("params") or {})

    def _answer(self, id: Any, method: str, params: Json) -> None:
        if method == "tools/call" and params.get("arguments", {}).get("ask"):
            # Its question has the answer of the call wait for it.
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            self._say({"id": f"ask-{id}", "method": "elicitation/create", "params": form})
            self._say({"id": id, "result": {"content": [{"type": "text", "text": "asked"}]}}, after=0.4)
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

    def _say(self, message: Json, after: float = 0.0) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._loop.call_later(after, self._receiver.on_message, line)

    async def stop(self) -> None:
        pass

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []


class _Gateway(Gateway):
    def __init__(self, config: WorkbenchConfig, era: str) -> None:
        super().__init__(config, Options(face="proxy", use_cache=False))
        self.era = era
        self.servers: list[_Server] = []

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        self.servers.append(_Server(self.era, receiver))
        return self.servers[-1]

    def reached(self, method: str) -> list[Json]:
        """What the server got of one method."""
        return [each for server in self.servers for each in server.received if each.get("method") == method]


class _Client:
    """What both transports have in common: `exchange` is theirs."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.asked = 0
        # What its user says to questions of ours.
        self.answer: Json = {"action": "accept", "content": {"allow": "once"}}
        self._ids = itertools.count(1)

    async def exchange(self, message: Json) -> Json:
        raise NotImplementedError

    def on_question(self, message: Json) -> Json:
        assert message["method"] == "elicitation/create"
        self.asked += 1
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


class _StdioLink:
    """What the session sees of such a client (`Link`)."""

    unsent_bytes = 0

    def __init__(self, client: _StdioClient) -> None:
        self._client = client

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        self._client.take(json.loads(joined(parts)))


class _StdioClient(_Client):
    def __init__(self, era: str, gateway: Gateway, principal: str) -> None:
        super().__init__(era)
        self._answers: dict[Any, asyncio.Future[Json]] = {}
        self.notified: list[Json] = []
        self.session = gateway.make_session(_StdioLink(self), principal, lambda reason: None, lasts=True)

    def take(self, message: Json) -> None:
        if "method" not in message:
            self._answers.pop(message["id"]).set_result(message)
        elif "id" in message:
            answer = json.dumps(self.on_question(message)).encode()
            asyncio.get_running_loop().call_soon(self.session.on_message, answer)
        else:
            self.notified.append(message)

    async def exchange(self, message: Json) -> Json:
        future = self._answers[message["id"]] = asyncio.get_running_loop().create_future()
        self.session.on_message(json.dumps(message).encode())
        return await asyncio.wait_for(future, PATIENCE)


class _HttpClient(_Client):
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
                answered = await self._http.request(body=self.on_question(told), **self._headers)
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
    def __init__(self, folder: Path, gateway: _Gateway, client: _Client) -> None:
        self._folder = folder
        self.gateway = gateway
        self.client = client

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
async def rigged(folder: Path, era: str, transport: str, server_era: str) -> AsyncIterator[Rig]:
    config = load(str(_written(folder, "allow")), os.environ)
    async with AsyncExitStack() as stack:
        gateway = _Gateway(config, server_era)
        await stack.enter_async_context(gateway.running())
        if transport == "stdio":
            local = _StdioClient(era, gateway, "bob")
            stack.callback(local.session.leave)
            client: _Client = local
        else:
            gateway.runtime.pool.serve_many()
            server = await serve_http(
                HttpOptions(port=0, authenticator=_ByToken()),
                gateway.make_session,
                readiness=gateway.readiness,
                parameters_of=gateway.mirrored_parameters(),
            )
            stack.push_async_callback(server.stop)
            client = _HttpClient(era, await stack.enter_async_context(raw_client(server.port)), "bob")
        await client.begin()
        # The server is known from here on.
        await client.request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
        yield Rig(folder, gateway, client)


def use(tool: str, **arguments: object) -> tuple[str, Json]:
    path = {"toolbox": "box", "server": "server", "tool": tool}
    return "tools/call", {"name": "use_tool", "arguments": {"tool": path, "arguments": arguments}}


REQUESTS: dict[str, Callable[[str], tuple[str, Json]]] = {
    "call": lambda name: use(name),
    "prompt": lambda name: ("prompts/get", {"name": f"box/server/{name}"}),
    "resource": lambda name: ("resources/read", {"uri": f"test:///{name}"}),
    "completion": lambda name: (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": f"box/server/{name}"}, "argument": {"name": "a", "value": "b"}},
    ),
}
REACHED = {kind: request("")[0] for kind, request in REQUESTS.items()}


def is_refused(answer: Json) -> bool:
    return "error" in answer or answer["result"].get("isError") is True


def said(answer: Json) -> str:
    return json.dumps({key: value for key, value in answer.items() if key != "id"})


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("then", DECISIONS)
@pytest.mark.parametrize("kind", KINDS)
async def test_one_policy_decides_about_everything(
    tmp_path: Path, kind: str, then: str, era: str, transport: str
) -> None:
    # A modern client of a legacy server is the one whose calls are parked; tasks are those of the client's era.
    server_era = "legacy" if kind == "parked call" else era
    async with rigged(tmp_path, era, transport, server_era) as rig:
        if kind in REQUESTS:
            await _requested(rig, kind, then)
        elif kind in ("list", "search"):
            await rig.decide(then)
            await (_listed if kind == "list" else _searched)(rig.client, then)
        else:
            await {
                "subscription": _subscribed,
                "task": _asked_about_task,
                "kept result": _read_on,
                "parked call": _came_back,
            }[kind](rig, then)


async def _requested(rig: Rig, kind: str, then: str) -> None:
    await rig.decide(then)
    client = rig.client
    answer = await client.request(*REQUESTS[kind](SECRET))
    arrived = len(rig.gateway.reached(REACHED[kind]))
    asks = then == "ask" and kind != "completion"
    assert client.asked == asks
    passes = then == "allow" or asks
    assert is_refused(answer) is not passes, answer
    assert arrived == passes
    if then == "deny":
        assert "policy[0]" in said(answer)
    if then == "ask" and not asks:
        assert "needs the user's approval" in said(answer)
    if then == "hide":
        unknown = await client.request(*REQUESTS[kind](NOWHERE))
        assert said(unknown).replace(NOWHERE, SECRET) == said(answer)
    if asks:
        client.answer = {"action": "decline"}
        assert "did not approve" in said(await client.request(*REQUESTS[kind](SECRET)))
        assert len(rig.gateway.reached(REACHED[kind])) == 1


async def _listed(client: _Client, then: str) -> None:
    for method in ("prompts/list", "resources/list"):
        assert (SECRET in said(await client.request(method))) is (then != "hide")


async def _searched(client: _Client, then: str) -> None:
    for arguments in ({"query": SECRET}, {"toolbox_name": "box"}, {"tools": [f"box/server/{SECRET}"]}):
        answer = await client.request("tools/call", {"name": "open_toolbox", "arguments": arguments})
        found = f'"{SECRET}"' in said(answer).replace("\\", "") or f"server/{SECRET}" in said(answer)
        is_named = "tools" in arguments and then == "hide"
        assert found is (then != "hide") or is_named, answer
        if then == "hide":
            other = json.loads(json.dumps(arguments).replace(SECRET, NOWHERE))
            unknown = await client.request("tools/call", {"name": "open_toolbox", "arguments": other})
            assert said(unknown).replace(NOWHERE, SECRET) == said(answer)


async def _subscribed(rig: Rig, then: str) -> None:
    await rig.decide(then)
    client, uri = rig.client, f"test:///{SECRET}"
    if client.era == "legacy":
        answer = await client.request("resources/subscribe", {"uri": uri})
        assert is_refused(answer) is (then in ("deny", "hide"))
        assert client.asked == (then == "ask")
        return
    params: Json = {"notifications": {"resourceSubscriptions": [uri]}}
    if isinstance(client, _HttpClient):
        told = await client.send("subscriptions/listen", params)
    else:
        assert isinstance(client, _StdioClient)
        waiting = asyncio.ensure_future(client.send("subscriptions/listen", params))
        async with asyncio.timeout(PATIENCE):
            while not client.notified:
                await asyncio.sleep(0)
        waiting.cancel()
        (told,) = client.notified
    granted = told["params"]["notifications"].get("resourceSubscriptions", [])
    # Nobody can be asked in the middle of such a stream.
    assert granted == ([uri] if then == "allow" else [])


async def _asked_about_task(rig: Rig, then: str) -> None:
    client = rig.client
    if client.era == "modern":
        method, params = use(SECRET, task=True)
    else:
        method, params = use(SECRET)
        params["task"] = {"ttl": 60_000}
    created = await client.request(method, params)
    assert "t-1" in said(created), created
    await rig.decide(then)
    answer = await client.request("tasks/get", {"taskId": "t-1"})
    assert is_refused(answer) is (then in ("deny", "hide"))
    assert client.asked == 0, "it was approved as a call"
    if then == "hide":
        assert "task `t-1` is not known" in said(answer)


async def _read_on(rig: Rig, then: str) -> None:
    client = rig.client
    head = said(await client.request(*use(SECRET, large=True)))
    uri = head[head.index("workbench://results/") :].partition("\\")[0].partition('"')[0]
    await rig.decide(then)
    read = await client.request(
        "tools/call", {"name": "use_tool", "arguments": {"tool": uri, "arguments": {"start": 0}}}
    )
    whole = await client.request("resources/read", {"uri": uri})
    keeps = then in ("allow", "ask")
    assert ("called" in said(read)) is keeps is ("called" in said(whole))
    assert client.asked == 0
    if not keeps:
        other = uri[:-3] + "zzz"
        missing = await client.request("resources/read", {"uri": other})
        assert said(missing).replace(other, uri) == said(whole)


async def _came_back(rig: Rig, then: str) -> None:
    client = rig.client
    if client.era == "legacy":
        # It is asked in the middle of its call, which has passed.
        client.answer = {"action": "accept", "content": {}}
        answer = await client.request(*use(SECRET, ask=True))
        assert "asked" in said(answer) and client.asked == 1
        return
    method, params = use(SECRET, ask=True)
    away = await client.send(method, params)
    assert away["result"]["resultType"] == "input_required"
    await rig.decide(then)
    accepted: Json = {"action": "accept", "content": {}}
    responses = dict.fromkeys(away["result"]["inputRequests"], accepted)
    back = await client.send(
        method, {**params, "inputResponses": responses, "requestState": away["result"]["requestState"]}
    )
    assert is_refused(back) is (then in ("deny", "hide")), back
    assert ("asked" in said(back)) is (then in ("allow", "ask"))
