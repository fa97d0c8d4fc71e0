"""How fast servers are right now, and the latest calls, for `top`: listens to calls only while somebody looks.

Owns what it remembers of them, all of it bounded.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any, Final

from mcp_workbench.engine.observe.call_record import CallRecord

# Percentiles are computed from this many of the latest calls of a server.
MOST_DURATIONS: Final = 512
# Rates are computed from this many calls; with more calls in `RATE_SECONDS`, the rate is too low.
MOST_RATED: Final = 10_000
MOST_LAST_CALLS: Final = 50
# The period of rates.
RATE_SECONDS: Final = 10.0
# Servers; the names in refused calls are those that clients used.
MOST_SERVERS: Final = 1000

Label = tuple[str, str]


class RecentFigures:
    """The latest figures of one server, including all of its processes."""

    __slots__ = ("calls", "durations", "ended_at", "errors")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.durations: deque[float] = deque(maxlen=MOST_DURATIONS)
        self.ended_at: deque[float] = deque(maxlen=MOST_RATED)

    def as_json(self, since: float) -> dict[str, Any]:
        """The figures; `since` is when measuring began. All times are in seconds."""
        now = monotonic()
        while self.ended_at and self.ended_at[0] < now - RATE_SECONDS:
            self.ended_at.popleft()
        ordered = sorted(self.durations)
        return {
            "calls": self.calls,
            "errors": self.errors,
            "perSecond": round(len(self.ended_at) / max(1.0, min(RATE_SECONDS, now - since)), 2),
            "p50": _percentile(ordered, 0.5),
            "p95": _percentile(ordered, 0.95),
        }


class RecentCalls:
    """Listens to the calls of all servers of a process (`call_record.CallListener`)."""

    def __init__(self) -> None:
        self._servers: dict[Label, RecentFigures] = {}
        self._since = monotonic()
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_LAST_CALLS)

    def figures(self) -> dict[str, dict[str, Any]]:
        """The figures of each server that has been called, by `toolbox/server`."""
        return {"/".join(label): each.as_json(self._since) for label, each in self._servers.items()}

    def last_calls(self) -> list[dict[str, Any]]:
        """The latest calls, oldest first."""
        return list(self._last)

    def begun(self, call: CallRecord) -> None:
        """Only ends count."""

    def changed(self, call: CallRecord) -> None:
        """Only ends count."""

    def ended(self, call: CallRecord) -> None:
        # Requests to all servers name none.
        if not call.server or call.ended is None:
            return
        label = (call.toolbox, call.server)
        figures = self._servers.get(label)
        if figures is None:
            if len(self._servers) >= MOST_SERVERS:
                return
            figures = self._servers[label] = RecentFigures()
        figures.calls += 1
        figures.errors += call.end != "ok"
        figures.ended_at.append(call.ended)
        # A cancelled call was not answered, and a refused one was not the server's to answer.
        seconds = None if call.sent is None or call.end in ("cancelled", "refused") else call.ended - call.sent
        if seconds is not None:
            figures.durations.append(seconds)
        self._last.append(
            {
                "at": call.at + (call.ended - call.arrived),
                "toolbox": call.toolbox,
                "server": call.server,
                "item": (call.item or call.method)[:200],
                "seconds": None if seconds is None else round(seconds, 6),
                "end": _SHOWN_ENDS.get(call.end, call.end),
            }
        )


# As `top` shows them.
_SHOWN_ENDS: Final[dict[str, str]] = {"cancelled": "no answer", "tool_error": "error", "timeout": "error"}


def _percentile(ordered: list[float], part: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 6) if ordered else None
