"""Ten thousand mixed calls of two principals while servers are killed: nothing of one is ever seen by the other."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.link import Receiver
from tests.support.client import Json
from tests.support.parts import joined

CALLS = 10_000
IN_FLIGHT = 50
META = "io.modelcontextprotocol/"
SECRET = "secret"
# Bob never hears of what is secret; Alice may use it.
POLICY = (PolicyRule(who=("bob",), tools=(f"*/*/{SECRET}",), then="hide"), PolicyRule(then="allow"))


class _Echo:
    """A server that answers with what it was sent (`ServerLink`), until it is killed."""

    unsent_bytes = 0

    def __init__(self, label: str, receiver: Receiver) -> None:
        self.label = label
        self.is_dead = False
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        # Who has been heard here.
        self.heard: set[str] = set()

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        message = json.loads(joined(parts))
        if "id" in message and "method" in message and not self.is_dead:
            result = self._result(message["method"], message.get("params") or {})
            line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self._loop.call_soon(self._deliver, line)

    def _deliver(self, line: bytes) -> None:
        if not self.is_dead:
            self._receiver.on_message(line)

    def _result(self, method: str, params: Json) -> Json:
        info = {"name": "echo", "version": "1"}
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in (SECRET, "echo")]}
        if method == "prompts/list":
            return {"prompts": [{"name": "write"}]}
        mark = params.get("arguments", {}).get("mark", "")
        self.heard.add(mark.partition(" ")[0])
        text = f"{mark} by {self.label} {params.get('name')} " * (
            300 if params.get("name") == "echo" and "large" in mark else 1
        )
        if method == "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        return {"content": [{"type": "text", "text": text}]}

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._receiver.on_closed("killed")

    async def stop(self) -> None:
        self.is_dead = True

    @property
    def unread_bytes(self) -> int:
        return 0

    def stderr_lines(self, count: int) -> list[str]:
        return []


class _Gateway(Gateway):
    def __init__(self, config: WorkbenchConfig) -> None:
        super().__init__(config, Options(face="proxy", use_cache=False))
        self.runtime.open_link = self._open_link
        self.started: list[_Echo] = []

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        self.started.append(_Echo(connection.label, receiver))
        return self.started[-1]


class _User:
    """One client of one principal and one era (`Link`)."""

    unsent_bytes = 0

    def __init__(self, gateway: Gateway, principal: str, era: str) -> None:
        self.principal = principal
        self._era = era
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[str]] = {}
        self.session = gateway.make_session(self, principal, lambda reason: None)
        if era == "legacy":
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": principal}}
            self._send(0, "initialize", hello)

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        text = joined(parts).decode()
        waiting = self._answers.pop(json.loads(text).get("id", 0), None)
        if waiting is not None:
            waiting.set_result(text)

    def _send(self, id: int, method: str, params: Json) -> None:
        if self._era == "modern":
            stamp = {META + "protocolVersion": "2026-07-28", META + "clientInfo": {"name": self.principal}}
            params = {**params, "_meta": {**stamp, META + "clientCapabilities": {}}}
        self.session.on_message(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())

    async def ask(self, method: str, params: Json) -> str:
        """The whole answer, as text."""
        id = next(self._ids)
        future = self._answers[id] = asyncio.get_running_loop().create_future()
        self._send(id, method, params)
        return await asyncio.wait_for(future, 60)


class _Mixture:
    """Whatever a client may do, chosen by chance; each answer is looked at."""

    def __init__(self, gateway: _Gateway, seed: int) -> None:
        self.gateway = gateway
        self.chance = random.Random(seed)
        self.users = [_User(gateway, who, era) for who in ("alice", "bob") for era in ("legacy", "modern")]
        self.numbers = itertools.count(1)
        self.kept: dict[str, list[str]] = {"alice": [], "bob": []}
        self.outcomes: Counter[str] = Counter()

    async def one(self) -> None:
        user = self.chance.choice(self.users)
        kind = self.chance.choice(("echo", "echo", SECRET, "prompt", "open", "search", "large", "read"))
        mark = f"{user.principal} {next(self.numbers)}" + (" large" if kind == "large" else "")
        stranger = "bob" if user.principal == "alice" else "alice"
        method, params = self._request(kind, mark, stranger)
        answer = await user.ask(method, params)
        assert f"{stranger} " not in answer, answer[:500]
        if user.principal == "bob":
            assert f"/{SECRET} " not in answer and f" {SECRET} by" not in answer
            assert f"server/{SECRET}" not in answer or kind == SECRET, "only what was asked for is repeated"
        is_echoed = mark in answer
        if kind == SECRET and user.principal == "bob":
            assert not is_echoed
        if kind == "large" and "workbench://results/" in answer:
            self.kept[user.principal].append(answer[answer.index("workbench://results/") :].partition("\\")[0])
        if method == "resources/read":
            assert "by box/" not in answer, "a result of somebody else"
        self.outcomes[f"{method if kind == 'read' else kind} {'echoed' if is_echoed else 'not'}"] += 1

    def _request(self, kind: str, mark: str, stranger: str) -> tuple[str, Json]:
        server = self.chance.choice(("one", "two"))
        if kind == "prompt":
            return "prompts/get", {"name": f"box/{server}/write", "arguments": {"mark": mark}}
        if kind in ("open", "search"):
            arguments: Json = {"toolbox_name": "box"} if kind == "open" else {"query": SECRET}
            return "tools/call", {"name": "open_toolbox", "arguments": arguments}
        if kind == "read" and self.kept[stranger]:
            return "resources/read", {"uri": self.chance.choice(self.kept[stranger])}
        tool: Any = {"toolbox": "box", "server": server, "tool": SECRET if kind == SECRET else "echo"}
        return "tools/call", {
            "name": "use_tool",
            "arguments": {"tool": tool, "arguments": {"mark": mark}, "max_tokens": 200},
        }


@pytest.mark.requirement("team.principals")
async def test_nothing_crosses_in_ten_thousand_mixed_calls_under_kills() -> None:
    servers = {name: ServerConfig(name=name, command="none", protocol="legacy") for name in ("one", "two")}
    box = ToolboxConfig(name="box", description="The box.", servers=servers)
    gateway = _Gateway(WorkbenchConfig(path="two.json", toolboxes={"box": box}, policy=POLICY))
    async with gateway.running():
        mixture = _Mixture(gateway, seed=16)
        for batch in range(CALLS // IN_FLIGHT):
            under_way = [asyncio.ensure_future(mixture.one()) for _ in range(IN_FLIGHT)]
            if batch % 4 == 0 and gateway.started:
                # In the middle of them.
                await asyncio.sleep(0)
                mixture.chance.choice(gateway.started).kill()
            await asyncio.gather(*under_way)
        for user in mixture.users:
            user.session.leave()
    assert sum(mixture.outcomes.values()) == CALLS
    assert len(gateway.started) > 10, "otherwise nothing was killed"
    assert mixture.outcomes["resources/read not"] > 100, "somebody else's kept results were asked for"
    assert mixture.outcomes["echo echoed"] > 1000 and mixture.outcomes[f"{SECRET} echoed"] > 100, mixture.outcomes
    for server in gateway.started:
        assert len(server.heard - {""}) <= 1, "a process is one principal's"
