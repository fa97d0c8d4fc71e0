"""The lists of one server: when they are fetched, what waits for them, and for how long they are valid.

Owns those times and the announced changes. Knows nothing about how lists are fetched: the owner task of the connection
does that when it is woken up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from mcp_workbench.engine.downstream.lifecycle import quiet_future
from mcp_workbench.errors import DownstreamError

# Changes that are announced together are fetched together: after a pause, or at the latest after a second.
REFRESH_PAUSE: Final = 0.1
REFRESH_AT_LATEST: Final = 1.0


class ListRefresh:
    """The lists of one connection, across all runs of its server. `wake` wakes up the owner task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._listed = quiet_future(loop)
        # Whether the owner task has to fetch them.
        self.is_due = False
        # Lists that the server announced as changed, and that have not been fetched since.
        self._announced: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0
        self._listed_at = 0.0
        self._ttls: dict[str, int] = {}
        # Since when a response is awaited; None if no request is in progress.
        self._asked_at: float | None = None

    # ── for those who wait ──

    async def wait(self) -> None:
        """Return when the server has been listed. Raises the error if that failed."""
        await asyncio.shield(self._listed)

    @property
    def is_done(self) -> bool:
        """Whether the current run of the server has been listed."""
        return self._listed.done() and self._listed.exception() is None

    @property
    def has_failed(self) -> bool:
        """Whether fetching the lists failed the last time."""
        return self._listed.done() and self._listed.exception() is not None

    def request(self) -> None:
        """Have the lists fetched again, unless that is already awaited."""
        if self._listed.done():
            self._listed = quiet_future(self._loop)
            self._fetch_now()

    def has_expired(self, kinds: Iterable[str]) -> bool:
        """Whether one of these lists has expired. A list without `ttlMs` never does."""
        age = (self._loop.time() - self._listed_at) * 1000
        return any(age >= self._ttls[kind] for kind in kinds if kind in self._ttls)

    def has_been_asking_for(self, seconds: float) -> bool:
        """Whether the lists were requested longer ago than this, and have not arrived."""
        return self._asked_at is not None and self._loop.time() - self._asked_at > seconds

    # ── what the server says ──

    def on_changed(self, kind: str) -> None:
        """The server announced that one of its lists has changed."""
        self._announced.add(kind)
        self.refresh_soon()

    def refresh_soon(self) -> None:
        """Schedule a fetch, because something may have changed."""
        now = self._loop.time()
        if self._timer is None:
            self._latest = now + REFRESH_AT_LATEST
        else:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, min(REFRESH_PAUSE, self._latest - now)), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fetch_now()

    def _fetch_now(self) -> None:
        self.is_due = True
        self._wake()

    # ── for the owner task ──

    def on_start(self) -> None:
        """The server is being started; its lists are fetched as soon as it is ready."""
        self._listed = quiet_future(self._loop)
        self.is_due = False

    def on_end(self, error: DownstreamError) -> None:
        """The server has ended: nothing will be listed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._listed.done():
            self._listed.set_exception(error)

    def on_asked(self) -> frozenset[str]:
        """The lists are being fetched. Returns those whose change has been announced so far."""
        self.is_due = False
        self._asked_at = self._loop.time()
        announced, self._announced = frozenset(self._announced), set()
        return announced

    def on_listed(self, ttls: dict[str, int]) -> None:
        """The lists have arrived; `ttls` are their lifetimes in milliseconds, counted from the request."""
        self._listed_at, self._asked_at = self._asked_at or self._loop.time(), None
        self._ttls = ttls

    def on_learnt(self) -> None:
        """The lists have been processed: release the callers that wait."""
        if self._listed.done():
            self._listed = quiet_future(self._loop)
        self._listed.set_result(None)

    def on_not_listed(self, announced: frozenset[str]) -> None:
        """Fetching failed: the previous lists keep their age, and announced changes are still to be fetched."""
        self._asked_at = None
        self._announced |= announced
