"""Work that may block indefinitely, outside the event loop: in a thread that is abandoned with its caller.

A thread pool would be joined when the interpreter exits, and a file on an unreachable network drive, or a keychain that
hangs, would block that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], discard: Callable[[T], None] | None = None) -> T:
    """Run the work; return its result or raise its exception. `discard` gets a result that nobody waits for any
    more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        # The caller has been cancelled.
        if done.done():
            if discard is not None and error is None:
                discard(result)  # type: ignore[arg-type]
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
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            # The loop has ended meanwhile.
            if discard is not None and failure is None:
                discard(result)  # type: ignore[arg-type]

    # A daemon, so that the interpreter does not wait for it on exit.
    threading.Thread(target=run, name="mcp-workbench-aside", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        if discard is not None and done.done() and not done.cancelled() and done.exception() is None:
            discard(done.result())
        raise
