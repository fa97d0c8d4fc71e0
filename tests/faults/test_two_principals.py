"""Ten thousand mixed calls of two principals, one with a key and one with a JWT, while servers are killed.

The command itself, real processes, both eras. Nothing of one principal ever reaches the other: no answer, no
notification, no kept result, no session, no process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from mcp_workbench.team.identity.named_keys import KeyFolder
from tests.faults.http_wire import HttpConversation, Wire, written
from tests.faults.running_workbench import Faults, port_of
from tests.support.client import Json, RawClient, RpcError
from tests.support.processes import command_line, descendants
from tests.support.workbench import workbench_command, write_config

SERVER = str(Path(__file__).with_name("marking_server.py"))
CALLS = 10_000
AT_ONCE = 50
SERVERS = ("one", "two", "three")
# One of them is killed after so many rounds: a server that crashes often is not restarted at once.
ROUNDS_PER_KILL = 8
KINDS = ("echo", "echo", "echo", "secret", "large", "prompt", "resource", "open", "search", "kept", "hijack", "cancel")
PATIENCE = 60.0
AUDIENCE = "https://tools.example.com/mcp"
PUBLISHED = "/jwks"
MARK = re.compile(r"<(\w+) (\d+)> heard ([\w,]+) in process (\d+)\.")


@asynccontextmanager
async def issuer(key: ECKey) -> AsyncIterator[str]:
    """Publishes its key on loopback, and answers nothing else."""
    body = json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def token_of(key: ECKey, issuer: str, subject: str) -> str:
    now = int(time.time())
    claims = {"iss": issuer, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 3600}
    return str(jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key))


class User:
    """One client of one principal and one era."""

    def __init__(self, who: str, era: str, port: int, token: str) -> None:
        self.who = who
        self.era = era
        self.token = token
        # The last id used: everybody counts from the same.
        self.last_id = 100
        self.client = HttpConversation(port, {"Authorization": f"Bearer {token}"})

    async def begin(self) -> None:
        if self.era == "modern":
            self.client.stamp(logLevel="info")
        else:
            await self.client.initialize()


class Mixture:
    """Whatever a client may do, chosen by chance; each answer is looked at."""

    def __init__(self, users: list[User], port: int, seed: int) -> None:
        self.users = users
        self.port = port
        self.chance = random.Random(seed)
        self.numbers = itertools.count(1)
        self.kept: dict[str, list[str]] = {user.who: [] for user in users}
        self.outcomes: Counter[str] = Counter()
        # Of each process that has answered, for whom.
        self.served: dict[str, set[str]] = {}

    async def one(self) -> None:
        user = self.chance.choice(self.users)
        stranger = self.chance.choice([each for each in self.users if each.who != user.who])
        kind = self.chance.choice(KINDS)
        if kind == "hijack":
            await self._hijack(user, stranger)
        elif kind == "cancel":
            await self._cancel(user, stranger)
        else:
            await self._ask(user, stranger, kind)

    async def _ask(self, user: User, stranger: User, kind: str) -> None:
        mark = f"{user.who} {next(self.numbers)}"
        method, params = self._request(kind, mark, stranger)
        if kind == "echo":
            # The same tokens for everybody.
            params["_meta"] = {"progressToken": self.chance.randrange(10)}
        try:
            user.last_id += 1
            call = await user.client.start(method, params, id=user.last_id, timeout=PATIENCE)
            answer = json.dumps(await call.result(), ensure_ascii=False)
        except RpcError as error:
            answer = json.dumps(error.error)
        assert f"<{stranger.who} " not in answer, answer[:500]
        found = {tuple(each) for each in MARK.findall(answer)}
        for who, number, heard, process in found:
            assert f"{who} {number}" == mark, "an answer to something else"
            assert heard == user.who, "a process that has served somebody else"
            self.served.setdefault(process, set()).add(user.who)
        if kind == "large" and (kept := re.search(r"workbench://results/[\w/-]+", answer)):
            self.kept[user.who].append(kept[0])
        if method == "resources/read" and "workbench" in params["uri"]:
            assert not found, "a result of somebody else"
        if kind == "secret" and user.who == "bob":
            assert not found, "it is hidden from bob"
        self.outcomes[f"{kind} {'answered' if found else 'not'}"] += 1

    def _request(self, kind: str, mark: str, stranger: User) -> tuple[str, Json]:
        server = self.chance.choice(SERVERS)
        if kind == "prompt":
            return "prompts/get", {"name": f"box/{server}/write", "arguments": {"mark": mark}}
        if kind == "resource":
            return "resources/read", {"uri": f"{server}:///{mark.replace(' ', '-')}"}
        if kind in ("open", "search"):
            arguments: Json = {"toolbox_name": "box"} if kind == "open" else {"query": "secret"}
            return "tools/call", {"name": "open_toolbox", "arguments": arguments}
        if kind == "kept" and self.kept[stranger.who]:
            return "resources/read", {"uri": self.chance.choice(self.kept[stranger.who])}
        tool: Any = {"toolbox": "box", "server": server, "tool": kind if kind in ("secret", "large") else "echo"}
        arguments = {"tool": tool, "arguments": {"mark": mark}, "max_tokens": 200}
        return "tools/call", {"name": "use_tool", "arguments": arguments}

    async def _hijack(self, user: User, stranger: User) -> None:
        """With their own token, in a session of somebody else."""
        session = stranger.client.session_id
        if session is None:
            self.outcomes["hijack not"] += 1
            return
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Authorization": f"Bearer {user.token}", "Mcp-Session-Id": session}
        wire = await Wire.open(self.port)
        try:
            status, body = await wire.ask(written(json.dumps(call).encode(), headers))
        finally:
            wire.abort()
        assert status == 404, (status, body)
        self.outcomes["hijack refused"] += 1

    async def _cancel(self, user: User, stranger: User) -> None:
        """By the ids of requests that are not theirs."""
        own = user.client.waiting()
        # Own ids that are over do not come again.
        theirs = [id for id in stranger.client.waiting() if id not in own and int(id) <= user.last_id]
        for id in theirs[:3]:
            await user.client.notify("notifications/cancelled", {"requestId": id})
        self.outcomes[f"cancel {'tried' if theirs else 'not'}"] += 1


def marking_servers(process: RawClient) -> list[int]:
    return sorted(pid for pid in descendants(process.pid) if SERVER in command_line(pid))


@pytest.mark.requirement("team.principals")
async def test_nothing_crosses_between_a_key_and_a_jwt_while_servers_are_killed(faults: Faults) -> None:
    key = ECKey.generate_key("P-256", {"kid": "one"})
    state = faults.folder / "state"
    tokens = {"ann": KeyFolder(str(state / "mcp-workbench" / "keys")).create("ann")}
    servers = {name: {"command": sys.executable, "args": [SERVER, name], "protocol": "legacy"} for name in SERVERS}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(issuer(key))
        tokens["bob"] = token_of(key, url, "bob")
        config = write_config(
            faults.folder,
            {"box": servers},
            auth={"issuer": url, "jwks": url + PUBLISHED, "publicUrl": AUDIENCE},
            policy=[{"who": ["*#bob"], "tools": ["*/*/secret"], "then": "hide"}, {"then": "allow"}],
        )
        environment = {**faults.environment(), "XDG_STATE_HOME": str(state)}
        command = workbench_command(config, "--http", "127.0.0.1:0")
        process = await stack.enter_async_context(RawClient.spawn(command, env=environment, expect_exit=False))
        port = await port_of(process)
        users = [User(who, era, port, token) for who, token in tokens.items() for era in ("legacy", "modern")]
        for user in users:
            stack.push_async_callback(user.client.close)
            await user.begin()
        mixture = Mixture(users, port, seed=16)
        killed = 0
        for batch in range(CALLS // AT_ONCE):
            under_way = [asyncio.ensure_future(mixture.one()) for _ in range(AT_ONCE)]
            if batch % ROUNDS_PER_KILL == ROUNDS_PER_KILL - 1:
                # In the middle of them.
                await asyncio.sleep(0)
                for pid in mixture.chance.sample(found := marking_servers(process), min(1, len(found))):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
            await asyncio.gather(*under_way)
        _nothing_crossed(mixture, killed)


def _nothing_crossed(mixture: Mixture, killed: int) -> None:
    outcomes = mixture.outcomes
    assert sum(outcomes.values()) == CALLS
    assert killed >= CALLS // AT_ONCE // ROUNDS_PER_KILL - 5, "servers died in between"
    assert len(mixture.served) > len(SERVERS) * 2, "and were started again"
    assert all(len(who) == 1 for who in mixture.served.values()), "a process is one principal's"
    for kind in ("echo", "secret", "large", "prompt", "resource"):
        assert outcomes[f"{kind} answered"] > 100, outcomes
    assert outcomes["hijack refused"] > 100 and outcomes["cancel tried"] > 100 and outcomes["kept not"] > 100, outcomes
    for user in mixture.users:
        strangers = [each.who for each in mixture.users if each.who != user.who]
        told = json.dumps(user.client.notifications)
        assert f"<{user.who} " in told and not any(f"<{who} " in told for who in strangers)
        assert (user.client.unmatched, user.client.garbage) == ([], [])
