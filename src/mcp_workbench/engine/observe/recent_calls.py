"""The latest calls, for `top`: listens to calls only while somebody looks. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mcp_workbench.engine.config.redact import without_keys
from mcp_workbench.engine.observe.call_record import CallRecord

# Of all servers: those of one are looked for among them.
MAX_RECENT_CALLS: Final = 200


class RecentCalls:
    """Listens to the calls of all servers of a process (`call_record.CallListener`)."""

    def __init__(self) -> None:
        self._last: deque[dict[str, Any]] = deque(maxlen=MAX_RECENT_CALLS)

    def calls(self, redact: Callable[[str], str]) -> list[dict[str, Any]]:
        """The latest calls that have ended, oldest first."""
        # A URI may hold a key.
        return [call | {name: without_keys(redact(call[name])) for name in ("item", "reason")} for call in self._last]

    def begun(self, call: CallRecord) -> None:
        """Only ends count."""

    def changed(self, call: CallRecord) -> None:
        """Only ends count."""

    def ended(self, call: CallRecord) -> None:
        # Requests to all servers name none.
        if call.server:
            # Not the record, which may hold a long `_meta`.
            self._last.append(call.as_json() | {"reason": call.reason})
