"""Traces of calls: which are traced, what their servers are told, and what is noted of them when they end.

Runs on the event loop with every traced call, so it only collects values; a thread makes spans of them (`spans`,
`span_sender`). What a call did is what counting knows of it, so nothing is measured here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Raw

from mcp_workbench.engine.jsonrpc.messages import MAX_CACHED_PIECE_BYTES, Part, read_error
from mcp_workbench.engine.observe.call_figures import sent_at, state_of
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.engine.steps import (
    AnyPassage,
    CountedCall,
    CountedPassage,
    EndKind,
    Outcome,
    Passage,
    RoundEvent,
    Tracker,
    UncheckedPassage,
    call_id,
    tool_failed,
)
from mcp_workbench.seeing.span_sender import SpanSender
from mcp_workbench.seeing.spans import CallOutcome, TracedCall
from mcp_workbench.seeing.trace_context import (
    SAMPLED_FLAG,
    Sampler,
    TraceContext,
    new_span_id,
    parse_traceparent,
    read_context,
    with_traceparent,
)

# Of one call; a server may ask its client often. OpenTelemetry's default for the events of a span.
MAX_EVENTS: Final = 128


class CallTracer:
    """Decides which calls are traced (`traced_steps.Tracer`)."""

    def __init__(self, sampler: Sampler, sender: SpanSender) -> None:
        self._sampler = sampler
        self.sender = sender
        # The last `_meta` without a trace: clients send the same with every call.
        self._without_trace = b""

    def begin_trace(self, call: RoutedCall, tracker: Tracker) -> CallTrace | None:
        meta = None if call.meta is None else bytes(call.meta)
        parent = None
        if meta is not None and meta != self._without_trace:
            parent = read_context(meta)
            if parent is None and len(meta) <= MAX_CACHED_PIECE_BYTES:
                self._without_trace = meta
        if parent is None:
            trace_id = self._sampler.begin()
        else:
            trace_id = parent.trace_id if self._sampler.keeps(parent) else None
        if trace_id is None:
            return None
        header = call.route.trace_parent
        linked = parse_traceparent(header) if header else None
        # Often a library has put the same into both.
        if linked is not None and parent is not None and linked[:2] == parent[:2]:
            linked = None
        return CallTrace(self.sender, tracker, call, trace_id, parent, meta, linked)


class CallTrace:
    """One traced call (`traced_steps.Trace`). Everything that it is told goes to the figures as well."""

    __slots__ = (
        "_at",
        "_call",
        "_client_span_id",
        "_events",
        "_figures",
        "_flags",
        "_linked",
        "_monotonic",
        "_parent",
        "_sender",
        "_span_id",
        "_trace_id",
        "begin",
        "meta",
    )

    def __init__(
        self,
        sender: SpanSender,
        figures: Tracker,
        call: RoutedCall,
        trace_id: int,
        parent: TraceContext | None,
        meta: bytes | None,
        linked: TraceContext | None,
    ) -> None:
        """`linked`: of the HTTP request that it came in, which may be a proxy's, or of many calls."""
        self._sender = sender
        self._linked = linked
        self._figures = figures
        self.begin: Callable[[AnyPassage], None] = figures.begin
        # Until it ends: the call refers to its trace.
        self._call: RoutedCall | None = call
        self._trace_id = trace_id
        self._parent = parent
        self._flags = SAMPLED_FLAG if parent is None else parent.flags | SAMPLED_FLAG
        self._span_id = new_span_id()
        self._client_span_id = new_span_id()
        self._events: list[tuple[int, str]] = []
        self._at = time.time_ns()
        self._monotonic = time.monotonic()
        self.meta = Raw(
            with_traceparent(meta, trace_id, self._client_span_id, self._flags, has_parent=parent is not None)
        )

    # ── what the router tells (`steps.Tracker`) ──

    is_watched = True

    def note_running(self, passage: AnyPassage) -> None:
        self._figures.note_running(passage)

    def counts_result(self, call: CountedCall, payload: tuple[Part, ...]) -> bool:
        return False

    def changed(self, passage: AnyPassage) -> None:
        self._note(state_of(passage))
        self._figures.changed(passage)

    def note_round(self, passage: AnyPassage, event: RoundEvent) -> None:
        self._note(event)
        self._figures.note_round(passage, event)

    def _note(self, event: str) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append((self._wall(time.monotonic()), event))

    def forget(self, passage: AnyPassage) -> None:
        # Another passage of the same call takes its place, with this trace.
        self._figures.forget(passage)

    def on_passage_end(self, passage: Passage, outcome: Outcome) -> None:
        self._figures.on_passage_end(passage, outcome)
        kind = "tool_error" if outcome.is_tool_error else outcome.kind
        rule = ", ".join(filter(None, passage.rules))
        self._end(passage, kind, outcome.payload, outcome.ended, rule, is_denied=outcome.decision == "denied")

    def on_unchecked_end(
        self,
        passage: UncheckedPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        size: int,
        ended: float,
    ) -> None:
        self._figures.on_unchecked_end(passage, kind, payload, size, ended)
        self._end(passage, kind, payload, ended)

    def on_counted_end(self, passage: CountedPassage, kind: EndKind, payload: tuple[Part, ...]) -> None:
        ended = time.monotonic()
        self._figures.on_counted_end(passage, kind, payload)
        is_failed = kind == "result" and not passage.is_success and tool_failed(payload, sum(map(len, payload)))
        self._end(passage, "tool_error" if is_failed else kind, payload, ended)

    # ── the end ──

    def _end(
        self,
        passage: AnyPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        ended: float,
        rule: str = "",
        *,
        is_denied: bool = False,
    ) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        origin, route, sent, parent = passage.origin, call.route, sent_at(passage), self._parent
        revision = None if route.traffic is None else route.traffic.revision
        outcome = _outcome(kind, payload, is_denied=is_denied)
        # In the order of its fields: names would take as long as the rest.
        self._sender.put(
            TracedCall(
                self._trace_id,
                None if parent is None else parent.span_id,
                "" if parent is None else parent.state,
                self._flags,
                self._span_id,
                self._client_span_id,
                call_id(passage),
                origin.method,
                origin.toolbox,
                origin.server,
                origin.item,
                rule,
                origin.peer,
                bytes(call.id),
                call.revision.name,
                None if revision is None else revision.name,
                None if route.entry is None else route.entry.config.url,
                route.wire_id,
                self._wall(passage.arrived),
                None if sent is None else self._wall(sent),
                self._wall(ended),
                outcome,
                _server_outcome(passage, outcome),
                tuple(self._events),
                self._linked,
            )
        )

    def _wall(self, moment: float) -> int:
        return self._at + int((moment - self._monotonic) * 1e9)


def _outcome(kind: str, payload: tuple[Part, ...], *, is_denied: bool) -> CallOutcome:
    """What the client got."""
    if kind == "error":
        code = read_error(b"".join(payload)).code
        return CallOutcome(str(code), code)
    if is_denied:
        # An agent is told in a result.
        return CallOutcome("refused")
    return CallOutcome("" if kind == "result" else kind)


def _server_outcome(passage: AnyPassage, outcome: CallOutcome) -> CallOutcome:
    """What the server answered, which an agent may be shown as a result."""
    if passage.failure_code is not None:
        return CallOutcome(str(passage.failure_code), passage.failure_code)
    if passage.failure:
        # It did not answer at all: OpenTelemetry's word for everything without one of its own.
        return CallOutcome("timeout" if passage.failure == "timeout" else "_OTHER")
    return outcome
