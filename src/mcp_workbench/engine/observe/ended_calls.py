"""Calls that have ended since somebody looked last: for those who look several times a second, so that a call itself
pays for one tuple. Bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.observe.call_record import CallEnd
from mcp_workbench.engine.steps import AnyPassage

# As many as a page shows.
MAX_ENDED_CALLS: Final = 500
# Of what they were sent and answered, which is held as it came until somebody looks.
MAX_ENDED_BYTES: Final = 1024 * 1024

# The call, the kind of its end, that end, what the client got and its size in bytes, and when, by `time.monotonic`.
EndedCall = tuple[AnyPassage, str, CallEnd, tuple[Part, ...], int, float]


class EndedCalls:
    """What one listener has not taken yet."""

    __slots__ = ("_calls", "_most_ordinary", "_on_full", "_room", "_share", "has_enough", "missed")

    def __init__(self, on_full: Callable[[], None], most: int = MAX_ENDED_CALLS, most_ordinary: int = 0) -> None:
        """`on_full`: takes them at once. `most`: how many there may be until then. `most_ordinary`: with so many,
        further ones that ended well are only counted until these are taken; 0 if all are wanted."""
        self._on_full = on_full
        self._most_ordinary = most_ordinary
        self.has_enough = False
        # Calls that were only counted, by principal.
        self.missed: dict[str, int] = {}
        # What each takes beside its content, so that one bound is enough for both.
        self._share = MAX_ENDED_BYTES // most
        self._calls: list[EndedCall] = []
        self._room = MAX_ENDED_BYTES

    def add(self, call: EndedCall) -> None:
        self._calls.append(call)
        self._room -= len(call[0].body) + call[4] + self._share
        if self._room < 0:
            self._on_full()
        elif len(self._calls) == self._most_ordinary:
            self.has_enough = True

    def miss(self, principal: str) -> None:
        self.missed[principal] = self.missed.get(principal, 0) + 1

    def take(self) -> list[EndedCall]:
        """All of them, oldest first."""
        calls, self._calls, self._room, self.has_enough = self._calls, [], MAX_ENDED_BYTES, False
        return calls

    def take_missed(self) -> dict[str, int]:
        missed, self.missed = self.missed, {}
        return missed
