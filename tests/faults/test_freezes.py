"""We are stopped for a while, as by a debugger, a snapshot or a machine without memory: what came meanwhile counts.

Deadlines pass while nobody looks. What lies in the pipes then came in time, as far as anybody can tell.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.remote import Remote
from tests.faults.running_workbench import BAD_SERVER, Faults, RunningWorkbench, bad_entry, error_text
from tests.support.processes import command_line, descendants, eventually

# Long enough for a busy machine to get from a call to the moment when we are stopped.
TIMEOUT = 3.0


@asynccontextmanager
async def frozen(workbench: RunningWorkbench) -> AsyncIterator[None]:
    """Until every deadline has passed, and while the body of this runs."""
    began = time.monotonic()
    os.kill(workbench.pid, signal.SIGSTOP)
    try:
        yield
        await eventually(lambda: time.monotonic() > began + TIMEOUT, 2 * TIMEOUT)
    finally:
        os.kill(workbench.pid, signal.SIGCONT)


@pytest.mark.parametrize("over", ["stdio", "HTTP"])
async def test_an_answer_that_came_while_we_were_stopped_is_delivered(faults: Faults, over: str) -> None:
    remote = Remote(faults)
    if over == "HTTP":
        await remote.start()
    go, sent = faults.path("go"), faults.path("sent")
    try:
        if over == "HTTP":
            entry = remote.entry(timeout=TIMEOUT, idleTimeout=60)
        else:
            entry = bad_entry("--log", remote.log, timeout=TIMEOUT)
        async with faults.serving({"bad": entry}) as workbench:
            await workbench.value("bad", "count")
            hanging = await workbench.start("bad", "hang")
            late = await workbench.start("bad", "when", {"exists": str(go), "sent": str(sent)})
            await eventually(lambda: remote.calls("hang") + remote.calls("when") == 2, what="both calls")
            async with frozen(workbench):
                go.touch()
                await eventually(sent.exists, what="the answer")
            assert (await late.result())["structuredContent"] == {"exists": True}
            assert f"did not answer within {TIMEOUT:g} s" in error_text(await hanging.result()), "what has not come"
            workbench.is_over = over == "HTTP"
            if workbench.is_over:
                workbench.process.close_stdin()
    finally:
        remote.stop()


async def test_so_are_all_that_a_pipe_could_not_hold_at_once(faults: Faults) -> None:
    """The server waits in the middle of its answers for us to read."""
    async with faults.serving({"bad": bad_entry(timeout=TIMEOUT)}, large=True) as workbench:
        await workbench.value("bad", "count")
        go = faults.path("go")
        busy = await workbench.start("bad", "busy", {"until": str(go)})
        calls = [await workbench.start("bad", "large", {"bytes": 512 * 1024}) for _ in range(3)]
        while (await workbench.server_status())["callsInFlight"] <= len(calls):
            pass
        async with frozen(workbench):
            go.touch()
        assert (await busy.result())["structuredContent"] == {"busy": False}
        for call in calls:
            assert not (await call.result()).get("isError")


async def test_a_server_that_started_while_we_were_stopped_has_started(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(startupTimeout=TIMEOUT)}) as workbench:
        call = await workbench.start("bad", "count")
        await eventually(
            lambda: any(f"{BAD_SERVER} --name bad" in command_line(pid) for pid in descendants(workbench.pid)),
            what="the start of the server",
        )
        async with frozen(workbench):
            pass
        assert (await call.result())["structuredContent"] == {"count": 1}
        assert (await workbench.server_status())["starts"] == 1
