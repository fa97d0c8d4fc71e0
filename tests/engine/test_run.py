"""The event loop, and what is turned on with it."""

from __future__ import annotations

import gc
import sys

from mcp_workbench.engine.run import SWITCH_INTERVAL, run


async def _is_collecting() -> bool:
    return gc.isenabled()


def test_garbage_is_collected_while_the_loop_runs_though_it_was_not_before() -> None:
    frozen = gc.get_freeze_count()
    assert run(_is_collecting())
    # Frozen objects may be freed meanwhile; none are added.
    assert gc.get_freeze_count() <= frozen
    gc.disable()
    try:
        assert run(_is_collecting())
        assert gc.get_freeze_count() > frozen
    finally:
        gc.enable()
        gc.unfreeze()


def test_threads_that_compute_let_the_event_loop_in_soon() -> None:
    async def interval() -> float:
        return sys.getswitchinterval()

    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        assert abs(run(interval()) - SWITCH_INTERVAL) < 1e-6
    finally:
        sys.setswitchinterval(before)
