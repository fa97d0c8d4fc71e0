"""The steps of a workbench that sends traces: decides for each call whether it is traced, before it begins.

Loaded only with traces. A traced call has a tracker of its own, which passes everything on to the figures; all others
are counted as they would be without traces. Knows nothing of what a trace is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.decisions import Answer, Forward, Reject
from mcp_workbench.engine.jsonrpc.messages import Body
from mcp_workbench.engine.router.routed_call import RoutedCall, StartFor
from mcp_workbench.engine.router.step_runner import StepRunner
from mcp_workbench.engine.steps import Denial, Passage, Step, Tracer, Tracker


class TracedStepRunner(StepRunner):
    """Sends every request through the steps, and follows some of them."""

    def __init__(
        self,
        steps: tuple[Step, ...],
        tracker: Tracker,
        start_for: StartFor,
        in_background: Callable[[Awaitable[None]], None],
        stop: Callable[[RoutedCall, Denial], None],
        act: Callable[[RoutedCall, Forward], None],
        tracer: Tracer,
    ) -> None:
        super().__init__(steps, tracker, start_for, in_background, stop, act)
        self._figures = tracker
        self.plain_tracker = None
        self._tracer = tracer
        self._ratio, self._draw = tracer.ratio, tracer.draw
        self._plainly = super().lets_pass

    def lets_pass(self, call: RoutedCall, decision: Forward) -> bool:
        figures, route = self._sole_tracker, call.route
        if figures is not None and route.arrived is None and not (route.passage or figures.is_watched):
            # Nearly all: only counted, when it ends, as the router does without traces.
            drawn = self._draw()
            # Without `_meta`, it belongs to no trace yet.
            if drawn < self._ratio or call.meta is not None:
                trace = self._tracer.begin_trace(call, figures, drawn)
                if trace is not None:
                    figures, call.meta = trace, trace.meta
            route.tracker, route.arrived = figures, monotonic()
            return True
        if self._is_unchecked and route.passage is None and route.tracker is None:
            trace = self._tracer.begin_trace(call, self._figures, self._draw())
            if trace is None:
                return self._plainly(call, decision)
            is_passed: bool = self._tracked_by(trace, self._plainly, call, decision)
        else:
            # Begins to follow it in `passes`, if it has not begun.
            is_passed = self._plainly(call, decision)
        passage = route.passage
        if is_passed and passage is not None and passage.tracker is not self._figures:
            own: Any = passage.tracker
            call.meta = own.meta
        return is_passed

    def passes(
        self,
        call: RoutedCall,
        method: str,
        entry: ServerEntry | None,
        item: str,
        body: Body,
        send: Callable[[], None],
    ) -> bool:
        return bool(self._followed(call, super().passes, method, entry, item, body, send))

    def refuses_to_answer(self, call: RoutedCall) -> bool:
        return bool(self._counting) and bool(self._followed(call, super().refuses_to_answer))

    def notes(self, call: RoutedCall, decision: Answer | Reject) -> bool:
        return bool(self._followed(call, super().notes, decision))

    def unsent(self, call: RoutedCall) -> Passage | None:
        passage: Passage | None = self._followed(call, super().unsent)
        return passage

    def _followed(self, call: RoutedCall, act: Callable[..., Any], *arguments: Any) -> Any:
        """Have everything that begins during `act` tracked by the call's own tracker."""
        former = call.route.passage
        if former is not None and former.tracker is not None:
            # Decided before.
            tracker = former.tracker
        else:
            tracker = self._tracer.begin_trace(call, self._figures, self._draw()) or self._figures
        return self._tracked_by(tracker, act, call, *arguments)

    def _tracked_by(self, tracker: Tracker, act: Callable[..., Any], *arguments: Any) -> Any:
        # Restored as it was, because ending one call may begin another.
        before = self._tracker, self._sole_tracker
        self._tracker = tracker
        if self._sole_tracker is not None:
            self._sole_tracker = tracker
        try:
            return act(*arguments)
        finally:
            self._tracker, self._sole_tracker = before
