"""Failed attempts to authenticate: each peer may make a few, then the answers come late, and the log says so.

A right token is never held up: behind a proxy everybody comes from one address, and one who guesses must not lock the
others out. Whoever guesses gets one answer a second on each of a few connections, which nobody finds a token with.

Owns the count of failures by peer, and how often they are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

# A client that was given an old token tries it a few times, at once and again when its user looks.
FREE_FAILURES: Final = 10
# After this long without any, a peer may again. It is also how often a peer that goes on is logged.
FORGET_FAILURES_SECONDS: Final = 60.0
# Nobody who made a mistake notices; nobody who guesses gets anywhere.
DELAY_SECONDS: Final = 1.0
# Answers to one peer that are held back at once; beyond, its connection is closed without one.
MOST_DELAYED: Final = 64
# Peers whose failures are remembered. The one that failed first is forgotten first.
MOST_PEERS: Final = 1000


class _Failures:
    __slots__ = ("count", "delayed", "last", "logged_at", "unlogged")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.delayed = 0
        self.last = now
        self.logged_at: float | None = None
        self.unlogged = 0


class AuthenticationThrottle:
    """Who failed, and how often."""

    __slots__ = ("_left_out", "_now", "_peers")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._peers: dict[str, _Failures] = {}
        # Failures without a line in the audit, by peer.
        self._left_out: dict[str, int] = {}

    def failed(self, peer: str, reason: str) -> float | None:
        """Somebody was not who they had to be: the seconds after which they are answered; None for no answer at all.

        Each delay is to be ended with `answered`.
        """
        now = self._now()
        found = self._find(peer, now)
        found.count += 1
        found.last = now
        self._log(peer, reason, found, now)
        if found.count <= FREE_FAILURES:
            return 0.0
        if found.delayed >= MOST_DELAYED:
            return None
        found.delayed += 1
        return DELAY_SECONDS

    def answered(self, peer: str) -> None:
        """An answer that was held back has left, or its client has."""
        found = self._peers.get(peer)
        if found is not None and found.delayed:
            found.delayed -= 1

    def leave_out(self, peer: str) -> str | None:
        """This failure has no line of its own in the audit. The first of a peer is to be followed by `take_left_out`
        after a while, for the peer that is returned: those beyond a number are counted together."""
        if peer not in self._left_out and len(self._left_out) >= MOST_PEERS:
            peer = ""
        count = self._left_out[peer] = self._left_out.get(peer, 0) + 1
        return peer if count == 1 else None

    def peers_left_out(self) -> list[str]:
        return list(self._left_out)

    def take_left_out(self, peer: str) -> int:
        """How many have had no line since the last one about this peer."""
        return self._left_out.pop(peer, 0)

    def _find(self, peer: str, now: float) -> _Failures:
        found = self._peers.get(peer)
        if found is not None and now - found.last > FORGET_FAILURES_SECONDS:
            found.count = 0
        if found is None:
            if len(self._peers) >= MOST_PEERS:
                del self._peers[next(iter(self._peers))]
            found = self._peers[peer] = _Failures(now)
        return found

    def _log(self, peer: str, reason: str, found: _Failures, now: float) -> None:
        if found.logged_at is not None and now - found.logged_at < FORGET_FAILURES_SECONDS:
            found.unlogged += 1
            return
        more = f", and {found.unlogged} more since the last line about it" if found.unlogged else ""
        log.warning("a request from %s was refused: %s%s", peer or "an unknown address", reason, more)
        found.logged_at, found.unlogged = now, 0
