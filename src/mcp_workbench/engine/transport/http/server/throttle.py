"""Failed authentication: each peer may fail a few times, then its responses are delayed and the log reports it.

A valid token is never delayed: behind a proxy all clients share one address, and guesses by one must not lock out the
others. An attacker gets one response a second on each of a few connections, which is far too slow to find a token.

Owns the count of failures by peer, and how often they are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

# A client with an outdated token tries it a few times at once, and again when its user looks.
FREE_FAILURES: Final = 10
# A peer's failures are forgotten after this long without any. Continuing failures are logged this often.
FAILURE_WINDOW: Final = 60.0
# Not noticeable after a mistake; hopeless for guessing.
FAILED_AUTHENTICATION_DELAY: Final = 1.0
# Delayed responses to one peer; beyond this, its connection is closed without a response.
MAX_DELAYED_RESPONSES: Final = 64
# Peers whose failures are counted. The oldest is dropped first.
MAX_THROTTLED_PEERS: Final = 1000


class _Failures:
    __slots__ = ("count", "delayed", "last", "logged_at", "unlogged")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.delayed = 0
        self.last = now
        self.logged_at: float | None = None
        self.unlogged = 0


class AuthenticationThrottle:
    """The failures of each peer."""

    __slots__ = ("_left_out", "_now", "_peers")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._peers: dict[str, _Failures] = {}
        # Failures that have no line in the audit, by peer.
        self._left_out: dict[str, int] = {}

    def failed(self, peer: str, reason: str) -> float | None:
        """Count a failure. Returns the seconds by which to delay the response; None for no response at all.

        Each delay must be ended with `answered`.
        """
        now = self._now()
        found = self._find(peer, now)
        found.count += 1
        found.last = now
        self._log(peer, reason, found, now)
        return self.hold(peer)

    def is_slowed(self, peer: str) -> bool:
        """Whether a peer has failed too often, and continues to."""
        found = self._peers.get(peer)
        return found is not None and found.count > FREE_FAILURES and self._now() - found.last <= FAILURE_WINDOW

    def hold(self, peer: str) -> float | None:
        """The delay for an attempt that could not be checked, which does not count as a failure; None for no
        response."""
        found = self._peers.get(peer)
        if found is None or not self.is_slowed(peer):
            return 0.0
        if found.delayed >= MAX_DELAYED_RESPONSES:
            return None
        found.delayed += 1
        return FAILED_AUTHENTICATION_DELAY

    def answered(self, peer: str) -> None:
        """A delayed response has been sent, or its client has disconnected."""
        found = self._peers.get(peer)
        if found is not None and found.delayed:
            found.delayed -= 1

    def leave_out(self, peer: str) -> str | None:
        """Count a failure that gets no audit line. Returns the peer to pass to `take_left_out` after a while, for the
        first such failure of a peer, else None. Peers beyond the limit are counted together."""
        if peer not in self._left_out and len(self._left_out) >= MAX_THROTTLED_PEERS:
            peer = ""
        count = self._left_out[peer] = self._left_out.get(peer, 0) + 1
        return peer if count == 1 else None

    def peers_left_out(self) -> list[str]:
        return list(self._left_out)

    def take_left_out(self, peer: str) -> int:
        """How many failures of this peer have had no line since the last one."""
        return self._left_out.pop(peer, 0)

    def _find(self, peer: str, now: float) -> _Failures:
        found = self._peers.get(peer)
        if found is not None and now - found.last > FAILURE_WINDOW:
            found.count = 0
        if found is None:
            if len(self._peers) >= MAX_THROTTLED_PEERS:
                del self._peers[next(iter(self._peers))]
            found = self._peers[peer] = _Failures(now)
        return found

    def _log(self, peer: str, reason: str, found: _Failures, now: float) -> None:
        if found.logged_at is not None and now - found.logged_at < FAILURE_WINDOW:
            found.unlogged += 1
            return
        more = f", and {found.unlogged} more since the last line about it" if found.unlogged else ""
        log.warning("a request from %s was refused: %s%s", peer or "an unknown address", reason, more)
        found.logged_at, found.unlogged = now, 0
