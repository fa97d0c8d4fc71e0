"""How long calls take and how they end, while somebody looks (`mcp-workbench top`).

Measuring costs nothing on the path of a call while nobody does: a traffic that is watched has two of its methods
replaced by ones that also look at the clock, and gets its own back afterwards. Owns the figures, all of them bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

# The clock of the event loop counts in whole milliseconds under uvloop.
from time import perf_counter
from typing import Any, Final

from msgspec import UNSET, Raw

from mcp_workbench.downstream.clients import ForwardedCall
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.jsonrpc.messages import Envelope
from mcp_workbench.protocol.revisions import Revision

# Percentiles are of this many calls of a server at most: the most recent, which is what one wants to see.
MOST_DURATIONS: Final = 512
# Calls under way that are timed; of more than that, the others are only counted.
MOST_TIMED: Final = 10_000
MOST_LAST_CALLS: Final = 50
# Rates are of the last seconds.
RATE_SECONDS: Final = 10.0
# Where an error of a tool is looked for in its result: at either end, which is where servers write it.
_EDGE: Final = 4096
_IS_ERROR: Final = b'"isError":true'

Label = tuple[str, str]


class ServerFigures:
    """Of one server, whatever number of processes it has."""

    __slots__ = ("calls", "durations", "ended_at", "errors")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.durations: deque[float] = deque(maxlen=MOST_DURATIONS)
        self.ended_at: deque[float] = deque(maxlen=MOST_TIMED)

    def as_json(self, since: float) -> dict[str, Any]:
        """For whoever looks, and has looked since then. Seconds."""
        now = perf_counter()
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
    """Of all connections of a process."""

    def __init__(self) -> None:
        self._servers: dict[Label, ServerFigures] = {}
        self._since = perf_counter()
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_LAST_CALLS)
        self._watched: dict[Traffic, dict[bytes, tuple[str, float]]] = {}

    def watch(self, connections: Iterable[Connection]) -> None:
        """From now on, these; those that are gone no more. Called again and again while somebody looks."""
        if not self._watched:
            self._since = perf_counter()
        current = {connection.traffic: (connection.entry.toolbox, connection.config.name) for connection in connections}
        for traffic, label in current.items():
            if traffic not in self._watched:
                self._begin(traffic, label)
            elif not len(traffic.pending):
                self._give_up(traffic, label)
        for traffic in self._watched.keys() - current.keys():
            self._end(traffic)

    def end(self) -> None:
        """Nobody looks any more."""
        for traffic in list(self._watched):
            self._end(traffic)

    def figures(self) -> dict[str, dict[str, Any]]:
        """Of each server that was called since, by `toolbox/server`."""
        return {"/".join(label): each.as_json(self._since) for label, each in self._servers.items()}

    def last_calls(self) -> list[dict[str, Any]]:
        """The last ones, oldest first."""
        return list(self._last)

    def _begin(self, traffic: Traffic, label: Label) -> None:
        begun: dict[bytes, tuple[str, float]] = {}
        self._watched[traffic] = begun
        forward, on_answer = traffic.forward, traffic.on_answer

        def timed_forward(
            call: ForwardedCall,
            method: bytes,
            item: str,
            body: bytes,
            meta: Raw | None,
            client: Revision,
            timeout: float,
        ) -> int:
            at = perf_counter()
            id = forward(call, method, item, body, meta, client, timeout)
            if id and len(begun) < MOST_TIMED:
                begun[b"%d" % id] = (item or method.decode().strip('"'), at)
            return id

        def timed_answer(line: bytes, message: Envelope) -> None:
            known = begun.pop(bytes(message.id), None) if message.id is not UNSET else None
            if known is not None:
                failed = message.error is not UNSET or _IS_ERROR in line[:_EDGE] or _IS_ERROR in line[-_EDGE:]
                self._note(label, known[0], known[1], perf_counter(), "error" if failed else "ok")
            on_answer(line, message)

        traffic.forward = timed_forward  # type: ignore[method-assign]
        traffic.on_answer = timed_answer  # type: ignore[method-assign]

    def _end(self, traffic: Traffic) -> None:
        del self._watched[traffic]
        # The class's own come to light again.
        del traffic.forward, traffic.on_answer

    def _give_up(self, traffic: Traffic, label: Label) -> None:
        """Nothing is under way: what has no answer yet was cancelled, timed out, or died with its server."""
        begun = self._watched[traffic]
        for item, at in begun.values():
            self._note(label, item, at, perf_counter(), "no answer")
        begun.clear()

    def _note(self, label: Label, item: str, began: float, now: float, end: str) -> None:
        figures = self._servers.setdefault(label, ServerFigures())
        figures.calls += 1
        figures.ended_at.append(now)
        if end == "no answer":
            figures.errors += 1
        else:
            figures.errors += end == "error"
            figures.durations.append(now - began)
        seconds = None if end == "no answer" else round(now - began, 6)
        toolbox, server = label
        self._last.append(
            {
                "at": time.time(),
                "toolbox": toolbox,
                "server": server,
                "item": item[:200],
                "seconds": seconds,
                "end": end,
            }
        )


def _percentile(ordered: list[float], part: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 6) if ordered else None
