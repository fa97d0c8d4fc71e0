"""Work in a thread that is abandoned with its caller."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mcp_workbench.engine.blocking_work import aside


async def test_result_without_waiters_is_discarded() -> None:
    release, discarded = threading.Event(), asyncio.Event()
    task = asyncio.ensure_future(aside(lambda: release.wait() and "late", lambda result: discarded.set()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not discarded.is_set()
    release.set()
    await discarded.wait()


async def test_a_result_that_arrives_together_with_the_cancellation_is_discarded_too() -> None:
    discarded: list[str] = []
    task = asyncio.ensure_future(aside(lambda: "second", discarded.append))
    await asyncio.sleep(0)
    for thread in threading.enumerate():
        if thread.name == "mcp-workbench-aside":
            thread.join()
    # The result is in the loop's queue, in front of what follows.
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert discarded == ["second"]


async def test_a_result_that_is_waited_for_is_not_discarded() -> None:
    discarded: list[str] = []
    assert await aside(lambda: "kept", discarded.append) == "kept"
    assert discarded == []
