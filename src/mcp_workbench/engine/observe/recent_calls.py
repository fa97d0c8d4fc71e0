"""The latest calls, for `top`: described when somebody looks, so that a call itself pays for one tuple. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import to_builtins

from mcp_workbench.engine.config.redact import without_keys
from mcp_workbench.engine.observe.call_figures import reason_of
from mcp_workbench.engine.observe.ended_calls import EndedCall, EndedCalls
from mcp_workbench.engine.observe.shown_calls import CallDescriber, ShownCall

# Of all servers: those of one are looked for among them. With so many since somebody looked, further ones that ended
# well are only counted: nobody could read them, and each call would pay for it.
MAX_RECENT_CALLS: Final = 200
# Calls that have failed since somebody looked, of which all but the latest are dropped: a megabyte at most.
MAX_UNSEEN_CALLS: Final = 5000


class RecentCalls:
    """The calls of all servers of a process, from when its `ended` is told of them (`CallFigures.collect`)."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.ended = EndedCalls(self._describe, MAX_UNSEEN_CALLS, MAX_RECENT_CALLS)
        self._redact = redact
        self._last: deque[ShownCall | dict[str, Any]] = deque(maxlen=MAX_RECENT_CALLS)

    def calls(self) -> list[ShownCall | dict[str, Any]]:
        """The latest calls that have ended, oldest first; those that failed with a `reason`."""
        self._describe()
        return list(self._last)

    def _describe(self) -> None:
        describer, found = CallDescriber(self._redact), list[ShownCall | dict[str, Any]]()
        # The figures tell how many there were.
        self.ended.take_missed()
        for call in reversed(self.ended.take()):
            _, shown = describer.ended(call)
            # Requests to all servers name none.
            if shown.server:
                found.append(shown if shown.end == "ok" else self._with_reason(call, shown))
                if len(found) == MAX_RECENT_CALLS:
                    break
        self._last += reversed(found)

    def _with_reason(self, call: EndedCall, shown: ShownCall) -> dict[str, Any]:
        return {**to_builtins(shown), "reason": without_keys(self._redact(reason_of(call)))}
