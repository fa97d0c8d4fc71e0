"""One timer for many: members are told once an interval, and judged only after what came has been read."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.jsonrpc.pending import STOPPED_PROCESS_THRESHOLD
from mcp_workbench.engine.transport.shared_timer import SharedTimer


class Quiet:
    """Would be judged by the time since it was last heard."""

    def __init__(self) -> None:
        self.looks: list[float] = []
        self.heard = 0.0
        self.looked = asyncio.Event()

    def on_timer(self, now: float) -> None:
        self.looks.append(now - self.heard)
        self.looked.set()


async def test_input_received_while_suspended_is_read_before_time_limits_apply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    real_time, stopped = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real_time() + stopped[0])
    timer: SharedTimer[Quiet] = SharedTimer(0.01)
    member = Quiet()
    member.heard = loop.time()
    timer.add(member)
    stopped[0] += 100 * STOPPED_PROCESS_THRESHOLD

    def read() -> None:
        member.heard = loop.time()

    # Behind the timer, which is due: as what lies in a socket is read in the pass after the timers.
    loop.call_later(0.001, read)
    await member.looked.wait()
    assert member.looks[0] < 100 * STOPPED_PROCESS_THRESHOLD
    timer.stop()
