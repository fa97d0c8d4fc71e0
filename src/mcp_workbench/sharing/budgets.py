"""What all clients of the shared workbench together may hold, so that one that floods or does not read harms no other.

Each client has its own limits, as over stdio (`engine/transport/stdio.py`). These are the limits for all together:
unread answers, and large messages that are still arriving. Clients that read, and small messages, are never delayed.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

# Unread answers of all clients together. Beyond this, each client may have one of the largest size waiting, and those
# that read nothing at all are disconnected.
MAX_UNREAD_BYTES: Final = 512 * 1024 * 1024
# Messages larger than this that are still arriving, of all clients together. Beyond this, they arrive one after the
# other.
MAX_ARRIVING_BYTES: Final = 256 * 1024 * 1024
LARGE_MESSAGE: Final = 1024 * 1024
# A client that sends nothing for so long in the middle of a large message lets the next one go first.
ARRIVAL_TIMEOUT: Final = 5.0


class BudgetedLink(Protocol):
    @property
    def unsent_bytes(self) -> int:
        """The size of answers that it has not read."""

    def hold(self) -> None:
        """Stop reading for now."""

    def release(self) -> None:
        """Continue reading from the client that was held."""

    def report_held(self) -> None:
        """Tell the front end that we are alive, although we read nothing."""

    def watch_stalled(self) -> None:
        """Disconnect the client if it reads nothing for a while."""


class ClientBudgets:
    """All connected clients, and their large messages."""

    def __init__(self) -> None:
        self._links: set[BudgetedLink] = set()
        # Clients with a large message in transit, by how much of it has arrived; the first may always continue, so
        # that they cannot all wait for each other.
        self._arriving: dict[BudgetedLink, int] = {}
        self._held: set[BudgetedLink] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._seen: tuple[BudgetedLink, int] | None = None

    def add(self, link: BudgetedLink) -> None:
        self._links.add(link)

    def discard(self, link: BudgetedLink) -> None:
        """Remove a client that has disconnected, with all that it held."""
        self._links.discard(link)
        self._held.discard(link)
        if self._arriving.pop(link, None) is not None:
            self._release_some()

    # ── unread answers ──

    def most_unread(self, link: BudgetedLink, largest: int) -> int:
        """Return how much this client may leave unread now. Called only if it leaves megabytes unread."""
        others = [(each.unsent_bytes, each) for each in self._links if each is not link]
        unread = sum(size for size, _ in others)
        if unread + link.unsent_bytes > MAX_UNREAD_BYTES:
            for size, each in others:
                if size > largest:
                    each.watch_stalled()
        return max(largest, MAX_UNREAD_BYTES - unread)

    # ── large messages in transit ──

    def on_arriving(self, link: BudgetedLink, size: int) -> None:
        """Note how much of an incomplete message has arrived."""
        if size <= LARGE_MESSAGE:
            if self._arriving.pop(link, None) is not None:
                self._release_some()
            return
        self._arriving[link] = size
        if not self._may_go_on(link):
            link.hold()
            self._held.add(link)
            self._watch_first()

    def _may_go_on(self, link: BudgetedLink) -> bool:
        return link is next(iter(self._arriving)) or sum(self._arriving.values()) <= MAX_ARRIVING_BYTES

    def _release_some(self) -> None:
        for link in [each for each in self._arriving if each in self._held]:
            if self._may_go_on(link):
                self._held.discard(link)
                link.release()

    def _watch_first(self) -> None:
        if self._timer is None:
            first = next(iter(self._arriving.items()))
            self._seen = first
            self._timer = asyncio.get_running_loop().call_later(ARRIVAL_TIMEOUT, self._look_at_first)

    def _look_at_first(self) -> None:
        self._timer = None
        if not self._held:
            return
        first, size = next(iter(self._arriving.items()))
        if self._seen == (first, size):
            # It has stopped in the middle: those waiting behind it go first.
            del self._arriving[first]
            self._arriving[first] = size
            self._release_some()
        if self._held:
            for link in self._held:
                link.report_held()
            self._watch_first()

    def close(self) -> None:
        """Stop the timer: no clients are served any longer."""
        if self._timer is not None:
            self._timer.cancel()
