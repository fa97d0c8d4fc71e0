"""The clock of an event loop, put forward by a test: what takes half an hour happens at once, and nothing earlier.

Owns that loop's time. Refuses to know who looks at it.
"""

from __future__ import annotations

import asyncio


class Clock:
    """Of the running loop; to be made before whatever goes by it. It is the test's clock too: the 120 s
    that one may take go by it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real, self._ahead = loop.time, 0.0
        # A loop belongs to one test, so nothing has to be put back.
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
