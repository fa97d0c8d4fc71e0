"""The event loop: `uvloop` where it exists, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

# How long a thread that computes may keep the interpreter when the event loop wants it. The loop lets go of it whenever
# it waits for input, so with Python's 5 ms a call takes 10 ms for as long as anybody's large message is being read.
SWITCH_INTERVAL: Final = 0.0002

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    if not gc.isenabled():
        # Off while everything was imported (`entry_point`). None of that is ever garbage; looking at it would take the
        # time that was saved, and again whenever the collector comes by. It costs 0.3 MiB of memory.
        gc.freeze()
        gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL)
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    # There is none for Windows.
    with contextlib.suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)
