"""Asked to end with a hundred calls running: a bounded drain, an answer to each, exit 0. Asked again: at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from mcp_workbench.app.serving import HTTP_DRAIN_TIMEOUT
from mcp_workbench.engine.downstream.fair_requests import MAX_REQUESTS_IN_PROGRESS
from tests.faults.http_wire import HttpConversation, Wire
from tests.faults.running_workbench import Faults, bad_entry, error_text, port_of, use
from tests.support.client import RawClient
from tests.support.processes import alive, descendants, eventually
from tests.support.workbench import workbench_command

# What the machine may add to a bound before a test fails for it.
BUSY = 30.0
CHECK = b"GET /readyz HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize(
    ("number", "over"),
    [(signal.SIGTERM, "stdio"), (signal.SIGTERM, "HTTP"), (signal.SIGINT, "stdio"), (signal.SIGINT, "HTTP")],
)
async def test_every_one_of_a_hundred_running_calls_is_answered_and_we_end_with_0(
    faults: Faults, number: int, over: str
) -> None:
    serving = faults.serving if over == "stdio" else faults.serving_http
    async with serving({"bad": bad_entry()}) as workbench:
        await workbench.value("bad", "count")
        told = faults.path("told")
        soon = [await workbench.start("bad", "when", {"exists": str(told)}) for _ in range(50)]
        never = [await workbench.start("bad", "hang") for _ in range(50)]
        while (found := await workbench.server_status())["callsInFlight"] < 100:
            await asyncio.sleep(0.01)
        # Where a server may be shared, what exceeds a client's share waits with us.
        assert found["callsWaiting"] == (0 if over == "stdio" else 100 - MAX_REQUESTS_IN_PROGRESS)
        began = time.monotonic()
        os.kill(workbench.pid, number)
        told.touch()
        for call in soon:
            assert (await call.result())["structuredContent"] == {"exists": True}, "what can finish does"
        for call in never:
            text = error_text(await call.result())
            assert text == "[box/bad/hang] the workbench is shutting down; the call was not finished"
        workbench.is_over = True
        assert await workbench.process.wait_exit() == 0
        assert time.monotonic() - began < HTTP_DRAIN_TIMEOUT + 5 + BUSY


async def test_a_second_signal_ends_us_at_once_and_nothing_stays(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        await workbench.value("bad", "count")
        for _ in range(100):
            await workbench.start("bad", "hang")
        below = descendants(workbench.pid)
        os.kill(workbench.pid, signal.SIGTERM)
        await workbench.process.wait_for(lambda: "shutting down" in workbench.process.stderr, "the begin of the end")
        os.kill(workbench.pid, signal.SIGTERM)
        workbench.is_over = True
        # Whoever has waited for the calls ends with 0.
        workbench.status_at_end = 128 + signal.SIGTERM
        await workbench.process.wait_exit()
        await eventually(lambda: not any(map(alive, below)), what="the end of every process")


# `mcp-workbench` that waits for running calls for longer than any test lasts.
PATIENT = (
    "from mcp_workbench.app import serving; serving.STDIO_DRAIN_TIMEOUT = serving.HTTP_DRAIN_TIMEOUT = serving.DRAIN_DELAY = 600.0; "
    "from mcp_workbench.cli.main import main; raise SystemExit(main())"
)


async def test_a_signal_while_the_client_is_leaving_hurries(faults: Faults) -> None:
    config = faults.write_config({"bad": bad_entry()})
    command = [sys.executable, "-c", PATIENT, "serve", "--config", str(config)]
    async with RawClient.spawn(command, env=faults.environment()) as client:
        await client.initialize()
        hanging = await client.start_tool("use_tool", use("bad", "hang"))
        await client.use_tool("box", "bad", "count")
        client.close_stdin()
        await client.wait_for(lambda: "shutting down" in client.stderr, "the begin of the end")
        os.kill(client.pid, signal.SIGTERM)
        assert "was not finished" in error_text(await hanging.result())
        assert await client.wait_exit() == 0


async def test_a_hangup_that_is_ignored_stays_so(faults: Faults) -> None:
    """`nohup mcp-workbench serve --http` outlives its terminal."""
    config = faults.write_config({})
    command = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *workbench_command(config)]
    async with RawClient.spawn(command, env=faults.environment()) as client:
        await client.initialize()
        os.kill(client.pid, signal.SIGHUP)
        assert (await client.use_tool("box", "good", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
        client.close_stdin()
        assert await client.wait_exit() == 0


async def test_a_balancer_hears_that_we_leave_before_anybody_is_refused(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        assert (await _asked(workbench.port, CHECK)).startswith(b"HTTP/1.1 200 ")
        os.kill(workbench.pid, signal.SIGTERM)
        await workbench.process.wait_for(
            lambda: "waiting 5 s for load balancers that watch /readyz" in workbench.process.stderr, "the wait"
        )
        # Nobody knows of it yet, so calls come in as before, also on new connections.
        assert isinstance(workbench.client, HttpConversation)
        workbench.client.rest()
        await workbench.others_work()
        assert (await _asked(workbench.port, CHECK)).startswith(b"HTTP/1.1 503 ")
        workbench.is_over = True
        assert await workbench.process.wait_exit() == 0


@pytest.mark.parametrize("options", [(), ("--drain-delay", "600")])
async def test_a_balancer_may_ask_as_often_as_it_likes_before_anybody_is_refused(
    faults: Faults, options: tuple[str, ...]
) -> None:
    """HAProxy and Kubernetes believe a server that leaves after the third time."""
    config = faults.write_config({})
    # With the option, also if nobody has asked before.
    command = [sys.executable, "-c", PATIENT, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--no-token"]
    async with RawClient.spawn([*command, *options], env=faults.environment()) as process:
        port = await port_of(process)
        if not options:
            assert (await _asked(port, CHECK)).startswith(b"HTTP/1.1 200 ")
        os.kill(process.pid, signal.SIGTERM)
        await process.wait_for(lambda: "for load balancers that watch /readyz" in process.stderr, "the wait")
        for _ in range(3):
            assert (await _asked(port, CHECK)).startswith(b"HTTP/1.1 503 ")
        assert (await _asked(port, CHECK.replace(b"readyz", b"healthz"))).startswith(b"HTTP/1.1 200 ")
        os.kill(process.pid, signal.SIGTERM)
        assert await process.wait_exit() == 128 + signal.SIGTERM


async def test_ctrl_c_does_not_wait_for_a_balancer(faults: Faults) -> None:
    """Somebody at a terminal has tried `/readyz`, and nobody will again."""
    config = faults.write_config({})
    command = [sys.executable, "-c", PATIENT, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--no-token"]
    async with RawClient.spawn(command, env=faults.environment()) as process:
        assert (await _asked(await port_of(process), CHECK)).startswith(b"HTTP/1.1 200 ")
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait_exit() == 0
        assert "/readyz" not in process.stderr


async def _asked(port: int, data: bytes) -> bytes:
    wire = await Wire.open(port)
    await wire.send(data)
    answer = await wire.closed()
    wire.close()
    return answer
