"""What all clients of the shared workbench may hold together, so that one that floods or does not read harms no other.

Each client has bounds of its own, as over stdio (`transport/stdio.py`). Here is what they may take in all: answers that
are not read, and large messages that are still arriving. A client that reads, and small messages, are never held up.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

# Answers that clients have not read, of all together. Beyond, a client may have one of the largest size waiting, and
# those that read nothing at all are let go of.
MOST_UNREAD: Final = 512 * 1024 * 1024
# Messages larger than this that are still arriving, of all clients together. Beyond, one after the other.
MOST_ARRIVING: Final = 256 * 1024 * 1024
LARGE_MESSAGE: Final = 1024 * 1024
# A client in the middle of a large message that sends nothing for so long lets the next one go first.
ARRIVAL_SECONDS: Final = 5.0


class BudgetedLink(Protocol):
    @property
    def unsent_bytes(self) -> int:
        """Answers that it has not read."""

    def hold(self) -> None:
        """Read no further for now."""

    def release(self) -> None:
        """Read on."""

    def say_held(self) -> None:
        """Tell the front end that we are there, though we read nothing."""

    def watch_stalled(self) -> None:
        """Let go of it, should it read nothing for a while."""


class ClientBudgets:
    """Everybody who is connected, and what is large."""

    def __init__(self) -> None:
        self._links: set[BudgetedLink] = set()
        # Those with a large message on its way, by how much of it has come; the first may always go on.
        self._arriving: dict[BudgetedLink, int] = {}
        self._held: set[BudgetedLink] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._seen: tuple[BudgetedLink, int] | None = None

    def add(self, link: BudgetedLink) -> None:
        self._links.add(link)

    def discard(self, link: BudgetedLink) -> None:
        """It is gone, with all that it held."""
        self._links.discard(link)
        self._held.discard(link)
        if self._arriving.pop(link, None) is not None:
            self._release_some()

    # ── answers that are not read ──

    def most_unread(self, link: BudgetedLink, largest: int) -> int:
        """How much this one may leave unread now. Asked only where it leaves megabytes."""
        others = [(each.unsent_bytes, each) for each in self._links if each is not link]
        unread = sum(size for size, _ in others)
        if unread + link.unsent_bytes > MOST_UNREAD:
            for size, each in others:
                if size > largest:
                    each.watch_stalled()
        return max(largest, MOST_UNREAD - unread)

    # ── large messages that arrive ──

    def on_arriving(self, link: BudgetedLink, size: int) -> None:
        """So much has come of a message that is not complete."""
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
        return link is next(iter(self._arriving)) or sum(self._arriving.values()) <= MOST_ARRIVING

    def _release_some(self) -> None:
        for link in [each for each in self._arriving if each in self._held]:
            if self._may_go_on(link):
                self._held.discard(link)
                link.release()

    def _watch_first(self) -> None:
        if self._timer is None:
            first = next(iter(self._arriving.items()))
            self._seen = first
            self._timer = asyncio.get_running_loop().call_later(ARRIVAL_SECONDS, self._look_at_first)

    def _look_at_first(self) -> None:
        self._timer = None
        if not self._held:
            return
        first, size = next(iter(self._arriving.items()))
        if self._seen == (first, size):
            # It has stopped in the middle: whoever waits behind it goes first.
            del self._arriving[first]
            self._arriving[first] = size
            self._release_some()
        if self._held:
            for link in self._held:
                link.say_held()
            self._watch_first()

    def close(self) -> None:
        """Nobody is served any more."""
        if self._timer is not None:
            self._timer.cancel()
