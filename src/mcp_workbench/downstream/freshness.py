"""How old it is what a server said of its offer, and for how long that holds by the server's own word (`ttlMs`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Freshness:
    """Of the lists of one connection."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._listed_at = 0.0
        self._ttls: dict[str, int] = {}
        # Since when an answer has been waited for; None while nothing is asked.
        self._asked_at: float | None = None

    def on_asked(self) -> None:
        """The lists are being fetched."""
        self._asked_at = self._now()

    def on_listed(self, ttls: dict[str, int]) -> None:
        """They are there; `ttls` say for how many milliseconds each of them holds since it was asked for."""
        self._listed_at, self._asked_at = self._asked_at or self._now(), None
        self._ttls = ttls

    def on_failed(self) -> None:
        """They could not be fetched: those from before are as old as they were."""
        self._asked_at = None

    def has_expired(self, kinds: Iterable[str]) -> bool:
        """Whether one of these lists does not hold any longer. Of a list without a time nothing is said."""
        age = (self._now() - self._listed_at) * 1000
        return any(age >= self._ttls[kind] for kind in kinds if kind in self._ttls)

    def has_been_asking_for(self, seconds: float) -> bool:
        """Whether the lists have been asked for longer ago than this, and have not come yet."""
        return self._asked_at is not None and self._now() - self._asked_at > seconds
