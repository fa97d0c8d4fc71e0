"""When the lists of a server are fetched again after it has announced changes: once for all that come together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Changes of a list that come together are fetched together: when they have paused, or at the latest after a second.
RELIST_PAUSE: Final = 0.1
RELIST_AT_LATEST: Final = 1.0


class Relisting:
    """The changes of one connection that have not been fetched yet. `fetch` is called when it is time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fetch: Callable[[], None]) -> None:
        # The lists that the server said have changed.
        self.announced: set[str] = set()
        self._loop = loop
        self._fetch = fetch
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0

    def take(self) -> set[str]:
        """What has been announced up to now, and is going to be fetched."""
        announced, self.announced = self.announced, set()
        return announced

    def soon(self) -> None:
        """Something may have changed."""
        now = self._loop.time()
        if self._timer is None:
            self._latest = now + RELIST_AT_LATEST
        else:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, min(RELIST_PAUSE, self._latest - now)), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._fetch()
