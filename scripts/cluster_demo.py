"""`make cluster-demo`: three instances, a state server and HAProxy on this machine; moves users, kills one of each
(an instance, the state server, HAProxy), and prints what happened. Every line is about something that was just seen.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, MCPError

from mcp_workbench.engine.lasting_state import SESSION
from tests.support.cluster_machines import HAPROXY, STATE_SERVER, Instance, Machines, end, machines
from tests.support.workbench import scripted_entry

NAMES = ("one", "two", "three")
USERS = ("ann", "ben", "cem", "dan", "eva", "fay")
# What the status 503 asks of clients (`Retry-After`); nothing was accepted then.
RETRY_INTERVAL = 1.0
BOXES = {"desk": {"server": scripted_entry("--tool-names", "pid,count,slow")}}


def say(text: str) -> None:
    print(text, flush=True)


async def use(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await call(client, {"toolbox": "desk", "server": "server", "tool": tool}, arguments)
    if result.is_error:
        raise SystemExit(f"error: a call failed: {result.content}")
    found: dict[str, Any] = result.structured_content or {}
    return found


async def call(client: Client, path: dict[str, str], arguments: dict[str, Any]) -> Any:
    while True:
        try:
            return await client.call_tool("use_tool", {"tool": path, "arguments": arguments})
        except MCPError as error:
            if not error.error.message.endswith("try again"):
                raise
        say("  (on this busy machine, an instance did not hear from the state in time: a call is made again)")
        await asyncio.sleep(RETRY_INTERVAL)


class Demo:
    def __init__(self, rig: Machines, stack: AsyncExitStack) -> None:
        self._rig = rig
        self._stack = stack
        self._tokens: dict[str, str] = {}
        self._clients: dict[str, Client] = {}
        self._instances: dict[str, Instance] = {}
        self._url = ""

    async def run(self) -> None:
        await self._start()
        await self._kill_an_instance()
        await self._kill_the_state()
        await self._kill_the_balancer()
        await self._restart_one()

    async def _start(self) -> None:
        rig = self._rig
        self._tokens = {user: rig.give_key(user, *NAMES) for user in USERS}
        for name in NAMES:
            flags = ("--drain-delay", 2, "--drain-seconds", 20)
            self._instances[name] = await rig.start(name, BOXES, *flags)
        self._url = await rig.balance(*self._instances.values())
        await rig.until_up(*NAMES)
        say(f"{len(NAMES)} instances, {Path(STATE_SERVER or '').name} and HAProxy run on this machine: {self._url}")
        for number, user in enumerate(USERS):
            mode = ("legacy", "auto")[number % 2]
            opening = rig.client(self._url, self._tokens[user], mode)
            self._clients[user] = await self._stack.enter_async_context(opening)
            count = (await use(self._clients[user], "count"))["count"]
            era = self._clients[user].protocol_version
            say(f"  {user} (MCP {era}) is on instance {await self._where(user)}; their own server has counted {count}")

    async def _where(self, user: str) -> str:
        return await self._rig.instance_of(self._url, self._tokens[user])

    async def _kill_an_instance(self) -> None:
        victim = await self._where(USERS[0])
        theirs = [user for user in USERS if await self._where(user) == victim]
        before = {user: await self._where(user) for user in USERS}
        pids = {user: (await use(self._clients[user], "pid"))["pid"] for user in USERS}
        for user in theirs:
            if (id := self._rig.session_ids.get(self._tokens[user])) is not None:
                await self._rig.until_left(SESSION, user, id)
        calls = [asyncio.create_task(self._outcome(user)) for user in USERS]
        await asyncio.sleep(1.0)
        say(f"\nkilling instance {victim} (SIGKILL) with a call of each user in flight")
        began = time.monotonic()
        await self._instances[victim].kill()
        for user, call in zip(USERS, calls, strict=True):
            outcome, at = await call
            say(f"  {user}: the call {outcome}" + (f", {at - began:.2f} s after" if user in theirs else ""))
        for user in USERS:
            now = (await use(self._clients[user], "pid"))["pid"]
            where = await self._where(user)
            moved = f"moved from {before[user]} to {where}" if where != before[user] else f"stayed on {where}"
            server = "the same server process" if now == pids[user] else "a new server process"
            say(f"  {user} {moved} with the same client, and has {server}")
        self._instances[victim] = await self._rig.start(
            victim, BOXES, "--drain-delay", 2, "--drain-seconds", 20, port=self._instances[victim].port
        )
        await self._rig.until_up(*NAMES)
        for user in USERS:
            await use(self._clients[user], "count")
        back = [user for user in theirs if await self._where(user) == victim]
        say(f"  instance {victim} was started again, and has {', '.join(back)} back")

    async def _outcome(self, user: str) -> tuple[str, float]:
        try:
            await use(self._clients[user], "slow", seconds=3)
        except MCPError as error:
            return f"failed: {error.error.message}", time.monotonic()
        return "was answered", time.monotonic()

    async def _kill_the_state(self) -> None:
        say("\nkilling the state server (SIGKILL)")
        await self._rig.state.kill()
        end, count = time.monotonic() + 3.0, 0
        while time.monotonic() < end:
            for client in self._clients.values():
                await use(client, "count")
                count += 1
        say(f"  {count} calls in 3 s without it, none failed")
        await self._rig.state.start()
        began = time.monotonic()
        legacy = next(user for user in USERS if self._tokens[user] in self._rig.session_ids)
        await self._rig.until_left(SESSION, legacy, self._rig.session_ids[self._tokens[legacy]])
        say(f"  started again, empty: the session of {legacy} was there again after {time.monotonic() - began:.1f} s")

    async def _kill_the_balancer(self) -> None:
        say("\nkilling HAProxy (SIGKILL)")
        pids = {user: (await use(self._clients[user], "pid"))["pid"] for user in USERS}
        await end(self._rig.balancers["haproxy"])
        address = httpx2.URL(self._url)
        async with httpx2.AsyncClient() as http:
            try:
                await http.get(address.copy_with(path="/readyz"))
            except httpx2.ConnectError:
                say("  nobody can be reached while it is away; run two of them behind one address")
            else:
                raise SystemExit("error: somebody else answers at its address")
        await self._rig.balance(*self._instances.values(), port=address.port or 0)
        await self._rig.until_up(*NAMES)
        same = [user for user in USERS if (await use(self._clients[user], "pid"))["pid"] == pids[user]]
        say(f"  started again: {', '.join(same)} go on with the same clients and server processes")
        if len(same) < len(USERS):
            raise SystemExit("error: it sends users to other instances than the one before")

    async def _restart_one(self) -> None:
        name = await self._where(USERS[-1])
        say(f"\nrestarting instance {name} (SIGTERM) under calls")
        is_over, count = False, 0

        async def keep_calling(client: Client) -> None:
            nonlocal count
            while not is_over:
                await use(client, "slow", seconds=0.2)
                count += 1

        calling = [asyncio.create_task(keep_calling(client)) for client in self._clients.values()]
        await self._instances[name].stop()
        say(f"  it has ended; {USERS[-1]} is on {await self._where(USERS[-1])}")
        is_over = True
        outcomes = await asyncio.gather(*calling, return_exceptions=True)
        if failed := {str(each) for each in outcomes if each is not None}:
            # The clients' own ends would hide the reason.
            say(f"  a call failed: {', '.join(failed)}")
            raise SystemExit(1)
        say(f"  {count} calls meanwhile, none failed")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="wb") as folder:
        async with machines(Path(folder)) as rig, AsyncExitStack() as stack:
            await Demo(rig, stack).run()


if __name__ == "__main__":
    if STATE_SERVER is None or HAPROXY is None:
        missing = "the demo needs haproxy, and valkey-server or redis-server"
        sys.exit(f"error: {missing}\nhint: apt-get install haproxy redis-server")
    asyncio.run(main())
