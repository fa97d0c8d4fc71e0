"""What one client uses: which call served which need, and which tools it called. Exists only where the user's use is
remembered.

Owns when a need counts: if the call after it succeeded, soon enough. Does no I/O; whoever remembers it is given.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from mcp_workbench.engine.catalog.names import path_of
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.steps import find_failure

if TYPE_CHECKING:
    from msgspec import Raw

    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.economy.learned_needs import LearnedNeeds
    from mcp_workbench.engine.face.decisions import Forward

# A call that comes later is about something else.
NEED_TIMEOUT: Final = 300.0
# Beyond this many tools, a client that calls whatever there is says nothing about what its user needs.
MAX_TOOLS_OF_CLIENT: Final = 200


class UseRecorder(Protocol):
    """Remembers what users need, by `holder_of` their names. Names of tools and stems of words, nothing else."""

    def holder_of(self, principal: str) -> str:
        """Another value for each user who has had this name."""

    def needs_of(self, principal: str) -> LearnedNeeds: ...

    def learn(self, principal: str, words: tuple[str, ...], tool: str) -> None: ...

    def end(self, principal: str, tools: list[str]) -> None:
        """A client that called these tools has left."""


class ViewUse:
    """Belongs to a view."""

    __slots__ = ("_called", "_memory", "_need", "_needs", "_principal", "seen")

    def __init__(self, memory: UseRecorder, principal: str) -> None:
        self._memory = memory
        self._principal = memory.holder_of(principal)
        self._needs: LearnedNeeds | None = None
        self._need: tuple[tuple[str, ...], float] | None = None
        self._called: set[tuple[ServerEntry, str]] = set()
        # Calls of these have nothing to say. Asked for each call, so everything else happens in `note`.
        self.seen = self._called

    def needs(self) -> LearnedNeeds:
        """As of the first search, and the same from then on: the same query has the same answer."""
        if self._needs is None:
            self._needs = self._memory.needs_of(self._principal)
        return self._needs

    def searched(self, words: tuple[str, ...]) -> None:
        """The client has asked for this. The next call says whether it found what it needed."""
        if words:
            self._need, self.seen = (words, monotonic()), set()

    def note(self, decision: Forward, result: Raw) -> None:
        """A call whose tool is not among those `seen` has a result."""
        if decision.method != TOOLS_CALL:
            return
        need, self._need, self.seen = self._need, None, self._called
        if find_failure(result) is not None:
            return
        if len(self._called) < MAX_TOOLS_OF_CLIENT:
            self._called.add((decision.entry, decision.item))
        if need is not None and monotonic() - need[1] <= NEED_TIMEOUT:
            self._memory.learn(self._principal, need[0], path_of(decision.entry, decision.item))

    def end(self) -> None:
        """The client has left."""
        if self._called:
            self._memory.end(self._principal, sorted(path_of(entry, name) for entry, name in self._called))
            self._called.clear()
