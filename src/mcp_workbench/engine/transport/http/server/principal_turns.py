"""Whose requests are handled next, while several principals send them.

The event loop serves connections one after another, so a principal with a thousand of them would get a thousand times
the time of one with a single connection. Here each has a number of requests in one iteration of the loop, whatever its
connections; those beyond it wait for the next iterations. While only one principal sends, nothing is counted.

Owns the counts and what waits. Knows nothing about what the requests are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# A few milliseconds of work: as long as a request of another principal waits.
MAX_IN_A_TURN: Final = 32


class PrincipalTurns:
    __slots__ = ("_counts", "_last", "_waiting")

    def __init__(self) -> None:
        # Who has sent the latest request.
        self._last = ""
        # How many requests of each have been handled in this iteration; None while only one principal sends.
        self._counts: dict[str, int] | None = None
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def __repr__(self) -> str:
        return f"<PrincipalTurns, {sum(map(len, self._waiting.values()))} of {len(self._waiting)} principals waiting>"

    def admits(self, principal: str) -> bool:
        """Whether a request may be handled now. If so, it counts; if not, it has to `wait`."""
        if self._counts is None:
            if principal == self._last:
                return True
            self._last = principal
            self._counts = {}
            asyncio.get_running_loop().call_soon(self._next_turn)
        count = self._counts.get(principal, 0)
        if count >= MAX_IN_A_TURN or principal in self._waiting:
            return False
        self._counts[principal] = count + 1
        return True

    def wait(self, principal: str, handle: Callable[[], None]) -> None:
        """Call `handle` when it is this principal's turn, in the order of arrival."""
        self._waiting.setdefault(principal, deque()).append(handle)

    def _next_turn(self) -> None:
        assert self._counts is not None
        if len(self._counts) <= 1 and not self._waiting:
            self._counts = None
            return
        self._counts = {}
        asyncio.get_running_loop().call_soon(self._next_turn)
        for principal in list(self._waiting):
            waiting = self._waiting.pop(principal)
            self._counts[principal] = served = min(len(waiting), MAX_IN_A_TURN)
            for _ in range(served):
                waiting.popleft()()
            if waiting:
                self._waiting[principal] = waiting
