"""Work that may block for good, aside from the event loop: in a thread that is abandoned with whoever waits for it.

A pool of threads would be waited for when the interpreter ends, and a file on a network drive that is away, or a
keychain that hangs, would hold that up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What the work returns or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        # Whoever waited has been cancelled.
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    # A daemon, so that the interpreter does not wait for it at the end.
    threading.Thread(target=run, name="mcp-workbench-aside", daemon=True).start()
    return await done
