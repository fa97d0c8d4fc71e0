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
from tests.faults.stage import BAD_SERVER, Faults, Stage, bad_entry, error_text
from tests.support.processes import command_line, descendants, eventually

TIMEOUT = 1.0


@asynccontextmanager
async def frozen(stage: Stage, seconds: float) -> AsyncIterator[None]:
    """At least for so long, and while the body of this runs."""
    began = time.monotonic()
    os.kill(stage.pid, signal.SIGSTOP)
    try:
        yield
        await eventually(lambda: time.monotonic() > began + seconds, seconds + 10)
    finally:
        os.kill(stage.pid, signal.SIGCONT)


@pytest.mark.parametrize("over", ["stdio", "HTTP"])
async def test_an_answer_that_came_while_we_were_stopped_is_delivered(faults: Faults, over: str) -> None:
    remote = Remote(faults)
    if over == "HTTP":
        await remote.start()
    try:
        entry = bad_entry(timeout=TIMEOUT) if over == "stdio" else remote.entry(timeout=TIMEOUT, idleTimeout=60)
        async with faults.serving({"bad": entry}) as stage:
            await stage.value("bad", "count")
            late = await stage.start("bad", "late", {"seconds": TIMEOUT / 2})
            hanging = await stage.start("bad", "hang")
            async with frozen(stage, 2 * TIMEOUT):
                pass
            assert (await late.result())["structuredContent"] == {"late": True}
            assert "did not answer within 1 s" in error_text(await hanging.result()), "what has not come is late"
            stage.is_over = over == "HTTP"
            if stage.is_over:
                stage.process.close_stdin()
    finally:
        remote.stop()


async def test_so_are_all_that_a_pipe_could_not_hold_at_once(faults: Faults) -> None:
    """The server waits in the middle of its answers for us to read."""
    async with faults.serving({"bad": bad_entry(timeout=TIMEOUT)}, large=True) as stage:
        await stage.value("bad", "count")
        go = faults.path("go")
        busy = await stage.start("bad", "busy", {"until": str(go)})
        calls = [await stage.start("bad", "large", {"bytes": 512 * 1024}) for _ in range(20)]
        while (await stage.server_status())["callsInFlight"] < 21:
            pass
        async with frozen(stage, 2 * TIMEOUT):
            go.touch()
        assert (await busy.result())["structuredContent"] == {"busy": False}
        for call in calls:
            assert not (await call.result()).get("isError")


async def test_a_server_that_started_while_we_were_stopped_has_started(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(startupTimeout=TIMEOUT)}) as stage:
        call = await stage.start("bad", "count")
        await eventually(
            lambda: any(f"{BAD_SERVER} --name bad" in command_line(pid) for pid in descendants(stage.pid)),
            what="the start of the server",
        )
        async with frozen(stage, 2 * TIMEOUT):
            pass
        assert (await call.result())["structuredContent"] == {"count": 1}
        assert (await stage.server_status())["starts"] == 1
