"""The latest calls, for `top`: described when somebody looks, so that a call itself pays for one tuple. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mcp_workbench.engine.config.redact import without_keys
from mcp_workbench.engine.observe.call_figures import record_of
from mcp_workbench.engine.observe.ended_calls import EndedCalls

# Of all servers: those of one are looked for among them.
MAX_RECENT_CALLS: Final = 200
# Calls that have ended since somebody looked, of which all but the latest are dropped: one or two megabytes.
MAX_UNSEEN_CALLS: Final = 5000


class RecentCalls:
    """The calls of all servers of a process, from when its `ended` is told of them (`CallFigures.collect`)."""

    def __init__(self) -> None:
        self.ended = EndedCalls(self._describe, MAX_UNSEEN_CALLS)
        self._last: deque[dict[str, Any]] = deque(maxlen=MAX_RECENT_CALLS)

    def calls(self, redact: Callable[[str], str]) -> list[dict[str, Any]]:
        """The latest calls that have ended, oldest first."""
        self._describe()

        # A URI may hold a key. Most calls are about the same few items.
        @cache
        def shown(text: str) -> str:
            return without_keys(redact(text))

        return [call | {name: shown(call[name]) for name in ("item", "reason")} for call in self._last]

    def _describe(self) -> None:
        # Requests to all servers name none.
        named = [each for each in self.ended.take() if each[0].origin.server]
        for record in map(record_of, named[-MAX_RECENT_CALLS:]):
            # Not the record, which may hold a long `_meta`.
            self._last.append(record.as_json() | {"reason": record.reason})
