"""Cancelled before, during and after; cancelled in storms; clients that vanish in the middle of a call.

Relayed as the era says: a notification over stdio and for legacy clients over HTTP, a disconnect for modern ones over
HTTP. A legacy client that only lost its connection cancels nothing. Races are harmless.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, use
from tests.support.client import Call, RawClient
from tests.support.processes import alive, eventually
from tests.support.workbench import workbench_command


async def cancelled_at_server(workbench: RunningWorkbench, count: int) -> list[Any]:
    """What the server was told to give up, once it was told so often."""
    found: list[Any] = []
    for _ in range(400):
        found = (await workbench.value("bad", "cancelled"))["cancelled"]
        if len(found) >= count:
            break
        await asyncio.sleep(0.02)
    assert len(found) == count, found
    return found


async def test_before_and_after_change_nothing_and_during_is_relayed_once(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        await workbench.value("bad", "count")
        for odd in ({}, {"requestId": None}, {"requestId": "never"}, {"requestId": [1]}, {"requestId": 10**30}):
            await workbench.client.notify("notifications/cancelled", odd)
        # Before: the id is used only later, and that call is served.
        await workbench.client.notify("notifications/cancelled", {"requestId": "later"})
        params = {"name": "use_tool", "arguments": use("bad", "echo", {"n": 1})}
        later = await workbench.client.start("tools/call", params, id="later")
        assert (await later.result())["structuredContent"] == {"n": 1}
        # After.
        await workbench.client.cancel(later)
        assert await cancelled_at_server(workbench, 0) == []
        # During, several times.
        hanging = await workbench.start("bad", "hang")
        for _ in range(3):
            await workbench.client.cancel(hanging, "no longer needed")
        (told,) = await cancelled_at_server(workbench, 1)
        assert told["reason"] == "no longer needed" and isinstance(told["requestId"], int)
        assert not hanging.answered and workbench.client.unmatched == []
        assert (await workbench.server_status())["callsInFlight"] == 0


@pytest.mark.parametrize("http", [False, True], ids=["stdio", "legacy HTTP"])
async def test_a_storm_of_cancels_leaves_every_call_answered_or_cancelled(faults: Faults, http: bool) -> None:
    serving = faults.serving_http if http else faults.serving
    async with serving({"bad": bad_entry()}) as workbench:
        await _storm(workbench, 100)
        await workbench.remember()
        await _storm(workbench, 300 if http else 1000)


async def _storm(workbench: RunningWorkbench, count: int) -> None:
    rng = random.Random(7)
    calls: list[Call] = []
    cancelled: set[Any] = set()
    for number in range(count):
        tool = rng.choice(["echo", "hang", "late"])
        calls.append(await workbench.start("bad", tool, {"n": number, "seconds": rng.random() / 20}))
        for call in rng.sample(calls, min(len(calls), rng.randrange(4))):
            cancelled.add(call.id)
            await workbench.client.cancel(call)
    for call in calls:
        if not call.answered and call.id not in cancelled:
            cancelled.add(call.id)
            await workbench.client.cancel(call)
    # An answer may have been on its way already; whoever was not cancelled has one, or would have hung.
    assert await workbench.value("bad", "echo", {"n": -1}) == {"n": -1}
    for call in calls:
        assert call.answered or call.id in cancelled
    for _ in range(20):
        if (await workbench.server_status())["callsInFlight"] == 0:
            break
        # Over HTTP a cancel may overtake the call that it is about, which then knows nothing of it.
        for call in calls:
            if not call.answered:
                await workbench.client.cancel(call)
    assert (await workbench.server_status())["callsInFlight"] == 0


async def test_a_modern_client_that_disconnects_cancels_over_http(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}, era="modern") as workbench:
        client = workbench.client
        assert isinstance(client, HttpConversation)
        await workbench.value("bad", "count")
        calls = [await workbench.start("bad", "hang") for _ in range(20)]
        for _ in range(200):
            if (await workbench.server_status())["callsInFlight"] == 20:
                break
            await asyncio.sleep(0.02)
        for call in calls:
            await client.give_up(call)
        assert len(await cancelled_at_server(workbench, 20)) == 20
        assert (await workbench.server_status())["callsInFlight"] == 0


async def test_a_legacy_client_that_disconnects_cancels_nothing_over_http_and_one_that_ends_its_session_does(
    faults: Faults,
) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        other = HttpConversation(workbench.port)
        await other.initialize()
        assert (await other.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
        calls = [await other.start_tool("use_tool", use("bad", "hang")) for _ in range(5)]
        for _ in range(200):
            if (await workbench.server_status())["callsInFlight"] == 5:
                break
            await asyncio.sleep(0.02)
        for call in calls:
            await other.give_up(call)
        assert (await workbench.value("bad", "cancelled"))["cancelled"] == []
        assert (await workbench.server_status())["callsInFlight"] == 5
        await other.end_session()
        await other.close()
        assert len(await cancelled_at_server(workbench, 5)) == 5


async def test_a_client_that_vanishes_over_stdio_takes_everything_with_it(faults: Faults) -> None:
    config = faults.write_config({"bad": bad_entry()})
    async with RawClient.spawn(workbench_command(config), env=faults.environment(), expect_exit=False) as client:
        await client.initialize()
        found = (await client.use_tool("box", "bad", "pid"))["structuredContent"]["pid"]
        calls = [await client.start_tool("use_tool", use("bad", "hang")) for _ in range(50)]
        # As when the client is killed: both of its ends close at once.
        client.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        client.close_stdin()
        assert await client.wait_exit() == 0
        await eventually(lambda: not alive(found), what="the end of the server")
        del calls
    faults.nothing_left_on_disk()


async def test_clients_that_come_and_vanish_over_http_leave_nothing(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        await _visits(workbench, 20)
        await workbench.remember()
        await _visits(workbench, 60)


async def _visits(workbench: RunningWorkbench, count: int) -> None:
    async def visit(number: int) -> None:
        client = HttpConversation(workbench.port)
        client.stamp()
        try:
            calls = [await client.start_tool("use_tool", use("bad", "hang")) for _ in range(3)]
            assert (await client.use_tool("box", "bad", "echo", {"n": number}))["structuredContent"] == {"n": number}
            del calls
        finally:
            await client.close()

    for start in range(0, count, 20):
        await asyncio.gather(*(visit(start + number) for number in range(20)))
    for _ in range(400):
        if (await workbench.server_status())["callsInFlight"] == 0:
            break
        await asyncio.sleep(0.02)
    assert (await workbench.server_status())["callsInFlight"] == 0


async def test_cancelling_a_call_that_waits_for_its_server_to_start_ends_it(faults: Faults) -> None:
    path = faults.write_faults({"start": {"hang": True}})
    async with faults.serving({"bad": bad_entry("--faults", path, startupTimeout=2)}) as workbench:
        calls = [await workbench.start("bad", "count") for _ in range(20)]
        for call in calls:
            await workbench.client.cancel(call)
        await workbench.others_work()
        faults.write_faults({})
        assert await workbench.unavailable() in ({}, {"bad": (await workbench.server_status())["lastError"]})
        assert not any(call.answered for call in calls)
