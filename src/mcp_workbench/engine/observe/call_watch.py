"""How long calls take and how they end, for `top`.

A step around requests that only observes, and exists only while `top` runs. Owns the figures, all of them bounded.
"""

from __future__ import annotations

import time
from collections import deque
from time import monotonic
from typing import Any, Final

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.steps import EndKind, GuardedRequest, Outcome, UncheckedPassage, tool_failed

# Percentiles are computed from this many of the latest calls of a server.
MOST_DURATIONS: Final = 512
# Rates are computed from this many calls; with more calls in `RATE_SECONDS`, the rate is too low.
MOST_RATED: Final = 10_000
MOST_LAST_CALLS: Final = 50
# The period of rates.
RATE_SECONDS: Final = 10.0

Label = tuple[str, str]


class ServerFigures:
    """The figures of one server, including all of its processes."""

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


class CallWatch:
    """The figures of all servers of a process (`steps.Observer`)."""

    is_asked = False

    def __init__(self) -> None:
        self._servers: dict[Label, ServerFigures] = {}
        self._since = monotonic()
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_LAST_CALLS)

    def begin(self) -> None:
        """Begin to measure."""
        self._since = monotonic()

    def figures(self) -> dict[str, dict[str, Any]]:
        """The figures of each server that has been called, by `toolbox/server`."""
        return {"/".join(label): each.as_json(self._since) for label, each in self._servers.items()}

    def last_calls(self) -> list[dict[str, Any]]:
        """The latest calls, oldest first."""
        return list(self._last)

    def check(self, request: GuardedRequest) -> None:
        """Lets every request pass."""

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        # Requests to all servers name none, and denied requests were never sent.
        if request.server and outcome.sent is not None:
            self._note(request, outcome, outcome.ended - outcome.sent)

    def on_unchecked_end(self, passage: UncheckedPassage, kind: EndKind, payload: tuple[Part, ...]) -> None:
        sent = passage.arrived if passage.sent is None else passage.sent
        self.on_end(passage.origin, Outcome(kind, payload, passage.arrived, sent, monotonic()))

    def _note(self, request: GuardedRequest, outcome: Outcome, seconds: float) -> None:
        figures = self._servers.setdefault((request.toolbox, request.server), ServerFigures())
        end = _end_of(outcome)
        figures.calls += 1
        figures.errors += end != "ok"
        figures.ended_at.append(outcome.ended)
        if end != "no answer":
            figures.durations.append(seconds)
        self._last.append(
            {
                "at": time.time(),
                "toolbox": request.toolbox,
                "server": request.server,
                "item": (request.item or request.method)[:200],
                "seconds": None if end == "no answer" else round(seconds, 6),
                "end": end,
            }
        )


def _end_of(outcome: Outcome) -> str:
    if outcome.kind == "cancelled":
        return "no answer"
    return "error" if outcome.kind == "error" or tool_failed(outcome.payload, outcome.size) else "ok"


def _percentile(ordered: list[float], part: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 6) if ordered else None
