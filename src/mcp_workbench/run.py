"""The event loop: `uvloop` where it exists, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    # There is none for Windows.
    with contextlib.suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)
