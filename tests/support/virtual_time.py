"""An event loop whose time passes at once: when nothing is left to do, its clock moves to the next timer.

Owns time and threads. What goes to a thread is done in its turn on the loop, a moment later, so that a run depends on
its seed alone; nothing of the outside world is waited for, and a loop that has neither work nor a timer is stuck.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any

# The longest that a thread takes.
THREAD_SECONDS = 0.02


class _Selector(selectors.SelectSelector):
    """Never waits."""

    passes: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for something that cannot happen any more"
        if timeout > 0:
            self.passes(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, seed: int) -> None:
        selector = _Selector()
        super().__init__(selector)
        self._now = 1000.0
        self._random = random.Random(seed)
        selector.passes = self._pass

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if done.done():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_later(self._random.uniform(0, THREAD_SECONDS), work)
        return done

    async def aside(self, work: Callable[[], Any], discard: object = None) -> Any:
        """In the place of `blocking_work.aside`."""
        return await self.run_in_executor(None, work)
