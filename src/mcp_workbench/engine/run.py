"""The event loop: `uvloop` where it exists, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    if not gc.isenabled():
        # Off while everything was imported (`entry_point`). None of that is ever garbage; looking at it would take the
        # time that was saved, and again whenever the collector comes by. It costs 0.3 MiB of memory.
        gc.freeze()
        gc.enable()
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    # There is none for Windows.
    with contextlib.suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)
