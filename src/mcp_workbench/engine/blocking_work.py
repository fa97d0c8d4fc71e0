"""Work that may block indefinitely, outside the event loop: in a thread that is abandoned with its caller.

A thread pool would be joined when the interpreter exits, and a file on an unreachable network drive, or a keychain that
hangs, would block that.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Run the work; return its result or raise its exception."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        # The caller has been cancelled.
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

    # A daemon, so that the interpreter does not wait for it on exit.
    threading.Thread(target=run, name="mcp-workbench-aside", daemon=True).start()
    return await done
