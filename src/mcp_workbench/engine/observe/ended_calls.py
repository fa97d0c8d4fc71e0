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

    __slots__ = ("_calls", "_on_full", "_room", "_share")

    def __init__(self, on_full: Callable[[], None], most: int = MAX_ENDED_CALLS) -> None:
        """`on_full`: takes them at once. `most`: how many there may be until then."""
        self._on_full = on_full
        # What each takes beside its content, so that one bound is enough for both.
        self._share = MAX_ENDED_BYTES // most
        self._calls: list[EndedCall] = []
        self._room = MAX_ENDED_BYTES

    def add(self, call: EndedCall) -> None:
        self._calls.append(call)
        self._room -= len(call[0].body) + call[4] + self._share
        if self._room < 0:
            self._on_full()

    def take(self) -> list[EndedCall]:
        """All of them, oldest first."""
        calls, self._calls, self._room = self._calls, [], MAX_ENDED_BYTES
        return calls
