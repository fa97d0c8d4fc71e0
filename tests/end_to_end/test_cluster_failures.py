"""A cluster behind HAProxy when something ends: an instance with calls in flight, the state server, one after another.

`make cluster-trial` runs the same for longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError

from mcp_workbench.engine.lasting_state import RESULT, SESSION
from tests.engine.transport.http.server.raw_client import modern, modern_headers
from tests.support.cluster_machines import PATIENCE, Machines, machines, needs_haproxy, needs_state_server
from tests.support.workbench import logged, scripted_entry

pytestmark = [pytest.mark.processes, needs_state_server, needs_haproxy]

REPETITIONS = int(os.environ.get("CLUSTER_REPETITIONS", "1"))
IS_LONG = REPETITIONS > 1
MODES = ("legacy", "auto")
IN_FLIGHT = 100
# How long calls take to fail once their instance is gone. In a trial this is what is promised; a busy machine that runs
# other tests beside this one gets longer.
FAILING_TIME = 1.0 if IS_LONG else 10.0
# HAProxy notices that an instance no longer answers by two checks of 2 s, 0.5 s apart.
CHECK_TIME = 5.0
AWAY_TIME = 30.0 if IS_LONG else 3.0
MAX_CALL_TIME = 30.0 if IS_LONG else 3.0
RUNS = 5 if IS_LONG else 1


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the address of a Unix socket has hardly more than a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


def use(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool": {"toolbox": "box", "server": "server", "tool": tool}, "arguments": arguments}


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool("use_tool", use(tool, arguments))
    assert not result.is_error, result
    return result.structured_content


def accepted(log: Path, tool: str) -> int:
    return sum(each["params"]["name"] == tool for each in logged(log, "tools/call"))


async def until_accepted(log: Path, tool: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while accepted(log, tool) < count:
            await asyncio.sleep(0.05)


async def clients_of(rig: Machines, stack: AsyncExitStack, url: str, token: str) -> list[Client]:
    # The calls of a trial take longer than clients wait otherwise.
    options = {"read_timeout_seconds": PATIENCE}
    return [await stack.enter_async_context(rig.client(url, token, mode, **options)) for mode in MODES]


async def test_calls_of_a_killed_instance_fail_at_once_and_none_is_made_again(folder: Path) -> None:
    log = folder / "calls.log"
    boxes = {"box": {"server": scripted_entry("--log", log)}}
    async with machines(folder) as rig, AsyncExitStack() as stack:
        token = rig.give_key("ann", "a", "b")
        started = {each: await rig.start(each, boxes) for each in "ab"}
        url = await rig.balance(*started.values())
        await rig.until_up(*started)
        clients = await clients_of(rig, stack, url, token)
        first = [(await call(client, "pid"))["pid"] for client in clients]

        async def failed(client: Client) -> tuple[float, str]:
            try:
                result = await client.call_tool("use_tool", use("hang", {}))
            except MCPError as error:
                return time.monotonic(), error.error.message
            raise AssertionError(result)

        calls = [asyncio.create_task(failed(client)) for client in clients for _ in range(IN_FLIGHT // 4)]
        await until_accepted(log, "hang", IN_FLIGHT // 2)
        # Within two seconds those of the legacy client become streams that can be resumed.
        await asyncio.sleep(2.2)
        calls += [asyncio.create_task(failed(client)) for client in clients for _ in range(IN_FLIGHT // 4)]
        await until_accepted(log, "hang", IN_FLIGHT)
        await rig.until_left(SESSION, "ann", rig.session_ids[token])
        killed = await rig.instance_of(url, token)
        began = time.monotonic()
        await started[killed].kill()
        async with asyncio.timeout(PATIENCE):
            outcomes = await asyncio.gather(*calls)
        assert {reason for _, reason in outcomes if "may have been accepted" not in reason} == set()
        took = max(at for at, _ in outcomes) - began
        print(f"{len(outcomes)} calls failed, the last after {took:.2f} s")
        assert took < FAILING_TIME
        # The same clients go on, the legacy one with its session, at the other instance.
        for client, pid in zip(clients, first, strict=True):
            assert (await call(client, "pid"))["pid"] != pid
        assert accepted(log, "hang") == IN_FLIGHT, "none was made again"


async def test_balancer_closes_no_connections_because_of_an_instance_that_has_ended(folder: Path) -> None:
    """The system has closed those to it. HAProxy would also end requests that it is just sending elsewhere."""
    async with machines(folder) as rig:
        started = [await rig.start(each, {"box": {"server": scripted_entry()}}) for each in "ab"]
        url = await rig.balance(*started)
        await rig.until_up("a", "b")
        await started[0].kill()
        seen = set()
        async with asyncio.timeout(PATIENCE):
            while (state := (await rig.states())["a"]) != "NOLB":
                seen.add(state.partition(" ")[0])
                assert {await rig.instance_of(url, f"user{number}") for number in range(10)} == {"b"}
        assert seen <= {"UP", "NOLB"}, "a server that is down has its connections closed"
        started[0] = await rig.start("a", {"box": {"server": scripted_entry()}}, port=started[0].port)
        await rig.until_up("a", "b")


async def test_calls_of_a_frozen_instance_fail_when_the_balancer_has_noticed(folder: Path) -> None:
    log = folder / "calls.log"
    boxes = {"box": {"server": scripted_entry("--log", log)}}
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        started = {each: await rig.start(each, boxes) for each in "ab"}
        url = await rig.balance(*started.values())
        await rig.until_up(*started)
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        many = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE, limits=many) as http:

            async def post(tool: str) -> tuple[float, Any]:
                # Not the official client, which ends as a whole when a connection does.
                named = {key.replace("_", "-"): each for key, each in modern_headers("tools/call", "use_tool").items()}
                message = modern("tools/call", {"name": "use_tool", "arguments": use(tool, {})})
                try:
                    answer = await http.post(url, json=message, headers=named)
                except httpx2.TransportError as error:
                    return time.monotonic(), error
                return time.monotonic(), answer.json()

            first = (await post("pid"))[1]["result"]["structuredContent"]["pid"]
            calls = [asyncio.create_task(post("hang")) for _ in range(20)]
            await until_accepted(log, "hang", 20)
            frozen = started[await rig.instance_of(url, token)]
            began = time.monotonic()
            frozen.signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(PATIENCE):
                    outcomes = await asyncio.gather(*calls)
                assert not [each for _, each in outcomes if isinstance(each, dict) and "result" in each]
                took = max(at for at, _ in outcomes) - began
                print(f"{len(outcomes)} calls failed, the last after {took:.2f} s")
                assert took < CHECK_TIME + FAILING_TIME
                assert (await post("pid"))[1]["result"]["structuredContent"]["pid"] != first
                assert accepted(log, "hang") == 20, "none was made again"
            finally:
                frozen.signal(signal.SIGCONT)


@pytest.mark.parametrize("how", ["killed", "frozen", "full", "emptied"])
async def test_no_call_fails_while_the_state_is_away(folder: Path, how: str) -> None:
    boxes = {"box": {"server": scripted_entry(resultBudget=200)}}
    async with machines(folder) as rig, AsyncExitStack() as stack:
        token = rig.give_key("ann", "a", "b")
        started = [await rig.start(each, boxes) for each in "ab"]
        url = await rig.balance(*started)
        await rig.until_up("a", "b")
        clients = await clients_of(rig, stack, url, token)
        for client in clients:
            await call(client, "echo")
        await rig.until_left(SESSION, "ann", rig.session_ids[token])
        long = [asyncio.create_task(call(each, "slow", seconds=AWAY_TIME + 2)) for each in clients for _ in range(12)]
        if how == "frozen":
            rig.state.signal(signal.SIGSTOP)
        elif how == "full":
            await rig.state.command("CONFIG", "SET", "maxmemory", "1")
        else:
            await rig.state.kill()
        if how == "emptied":
            await rig.state.start()
        end = time.monotonic() + AWAY_TIME
        count = 0
        while time.monotonic() < end:
            await asyncio.gather(*(call(client, "echo", number=count) for client in clients))
            count += 1
            await asyncio.sleep(0.02)
        # What is new is kept here, and written when the server is back.
        shown = await clients[0].call_tool("use_tool", use("big", {"bytes": 5_000}))
        uri = next(str(each.uri) for each in shown.content if each.type == "resource_link")
        if how == "frozen":
            rig.state.signal(signal.SIGCONT)
        elif how == "full":
            await rig.state.command("CONFIG", "SET", "maxmemory", "0")
        elif how == "killed":
            await rig.state.start()
        await asyncio.gather(*long)
        print(f"{24 + 2 * count} calls, none failed")
        await rig.until_left(RESULT, "ann", uri.rpartition("/")[2])
        await rig.until_left(SESSION, "ann", rig.session_ids[token])


@pytest.mark.parametrize("run", range(RUNS))
async def test_rolling_restart_fails_no_call(folder: Path, run: int) -> None:
    boxes = {"box": {"server": scripted_entry()}}
    # A delay longer than two checks of the balancer, and time for the longest call.
    flags = ("--drain-delay", 3, "--drain-seconds", MAX_CALL_TIME + 15)
    async with machines(folder) as rig, AsyncExitStack() as stack:
        users = {name: rig.give_key(name, *"abc") for name in ("ann", "ben", "cem", "dan")}
        started = {each: await rig.start(each, boxes, *flags) for each in "abc"}
        url = await rig.balance(*started.values())
        await rig.until_up(*started)
        chance = random.Random(run)
        is_over = False
        made = 0

        async def keep_calling(client: Client, longest: float) -> None:
            nonlocal made
            while not is_over:
                seconds = 0.05 * (longest / 0.05) ** chance.random()
                await call(client, "slow", seconds=seconds)
                made += 1

        calling = []
        for token in users.values():
            for mode in MODES:
                client = await stack.enter_async_context(rig.client(url, token, mode, read_timeout_seconds=PATIENCE))
                calling += [asyncio.create_task(keep_calling(client, each)) for each in (0.1, 1.0, MAX_CALL_TIME)]
        for name, instance in list(started.items()):
            await instance.stop()
            started[name] = await rig.start(name, boxes, *flags, port=instance.port)
            await rig.until_up(*started)
        is_over = True
        outcomes = await asyncio.gather(*calling, return_exceptions=True)
        print(f"{made} calls during the restart of {len(started)} instances")
        failed = [repr(each) for each in outcomes if each is not None]
        # The clients' own ends would hide the reason.
        print(*failed, sep="\n")
        assert failed == []
        assert made > 50
