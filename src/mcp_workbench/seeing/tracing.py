"""Traces of calls: which are traced, what their servers are told, and what is noted of them when they end.

Runs on the event loop with every traced call, so it only collects values; a thread makes spans of them (`spans`,
`span_sender`). What a call did is what counting knows of it, so nothing is measured here.
"""

from __future__ import annotations

import time
from time import monotonic
from typing import Final, Literal

from msgspec import Raw, Struct

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
    new_call_id,
    tool_failed,
)
from mcp_workbench.seeing.span_sender import SpanSender
from mcp_workbench.seeing.spans import MAX_REMEMBERED, WELL, CallOutcome, CallSubject, TracedCall
from mcp_workbench.seeing.trace_context import (
    SAMPLED_FLAG,
    Sampler,
    TraceContext,
    draw,
    new_trace_id,
    parse_traceparent,
    read_context,
    two_span_ids,
    with_traceparent,
)

# Of one call; a server may ask its client often. OpenTelemetry's default for the events of a span.
MAX_EVENTS: Final = 128


# How long the beginning of the monotonic clock is taken for known; somebody may set the other one, or suspend us.
CLOCK_INTERVAL: Final = 1.0


class CallTracer:
    """Decides which calls are traced (`traced_steps.Tracer`)."""

    draw = staticmethod(draw)

    def __init__(self, sampler: Sampler, sender: SpanSender) -> None:
        self._sampler = sampler
        self.ratio = sampler.ratio
        self.sender = sender
        # The last `_meta` without a trace: clients send the same with every call.
        self._without_trace = b""
        # As `TracedCall.epoch`.
        self._epoch = 0
        self._epoch_until = 0.0
        self._subjects: dict[tuple[str, str, str, str, str, str, str | None, str | None], CallSubject] = {}

    def begin_trace(self, call: RoutedCall, tracker: Tracker, drawn: float) -> CallTrace | None:
        meta = None if call.meta is None else bytes(call.meta)
        parent = None
        if meta is not None and meta != self._without_trace:
            parent = read_context(meta)
            if parent is None and len(meta) <= MAX_CACHED_PIECE_BYTES:
                self._without_trace = meta
        if parent is None:
            if drawn >= self.ratio:
                return None
            trace = new_trace_id(drawn)
        elif self._sampler.keeps(parent):
            trace = b"%032x" % parent.trace_id
        else:
            return None
        header = call.route.trace_parent
        linked = parse_traceparent(header) if header else None
        # Often a library has put the same into both.
        if linked is not None and parent is not None and linked[:2] == parent[:2]:
            linked = None
        ids = two_span_ids()
        flags = SAMPLED_FLAG if parent is None else parent.flags | SAMPLED_FLAG
        ours = Raw(with_traceparent(meta, trace, ids[16:], flags, has_parent=parent is not None))
        return CallTrace(self, tracker, call, trace, ids[:16], ids[16:], flags, parent, linked, ours)

    def epoch(self, now: float) -> int:
        if now >= self._epoch_until:
            self._epoch = time.time_ns() - int(now * 1e9)
            self._epoch_until = now + CLOCK_INTERVAL
        return self._epoch

    def subject(self, call: RoutedCall, method: str, item: str, toolbox: str, server: str, peer: str) -> CallSubject:
        route = call.route
        revision = None if route.traffic is None else route.traffic.revision
        entry = route.entry
        key = (
            method,
            item,
            toolbox,
            server,
            peer,
            call.revision.name,
            None if revision is None else revision.name,
            None if entry is None else entry.config.url,
        )
        found = self._subjects.get(key)
        if found is None:
            if len(self._subjects) >= MAX_REMEMBERED:
                self._subjects.clear()
            found = self._subjects[key] = CallSubject(*key)
        return found


class CallTrace(Struct, eq=False):
    """One traced call (`traced_steps.Trace`). Everything that it is told goes to the figures as well."""

    _tracer: CallTracer
    _figures: Tracker
    # Until it ends: the call refers to its trace.
    _call: RoutedCall | None
    _trace_id: bytes
    _span_id: bytes
    _client_span_id: bytes
    _flags: int
    _parent: TraceContext | None
    # Of the HTTP request that it came in, which may be a proxy's, or of many calls.
    _linked: TraceContext | None
    meta: Raw
    _events: tuple[tuple[float, str], ...] = ()

    # ── what the router tells (`steps.Tracker`) ──

    @property
    def is_watched(self) -> bool:
        return True

    @property
    def has_collectors(self) -> bool:
        return False

    def begin(self, passage: AnyPassage) -> None:
        self._figures.begin(passage)

    def note_running(self, passage: AnyPassage) -> None:
        self._figures.note_running(passage)

    def counts_result(self, call: CountedCall, payload: tuple[Part, ...]) -> bool:
        figures, traced = self._figures, self._call
        # Whoever collects calls gives them their number.
        if traced is None or figures.has_collectors or not figures.counts_result(call, payload):
            return False
        route = traced.route
        target, arrived = route.decision, route.arrived
        assert target is not None and arrived is not None
        self._call, tracer, entry, ended = None, self._tracer, target.entry, monotonic()
        tracer.sender.put(
            TracedCall(
                self._trace_id,
                self._span_id,
                self._client_span_id,
                self._flags,
                self._parent,
                new_call_id(),
                tracer.subject(traced, call.method, target.item, entry.toolbox, entry.name, traced.session.peer),
                bytes(traced.id),
                route.wire_id,
                tracer.epoch(ended),
                arrived,
                arrived,
                ended,
                linked=self._linked,
            )
        )
        return True

    def changed(self, passage: AnyPassage) -> None:
        self._note(state_of(passage))
        self._figures.changed(passage)

    def note_round(self, passage: AnyPassage, event: RoundEvent) -> None:
        self._note(event)
        self._figures.note_round(passage, event)

    def _note(self, event: str) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events += ((monotonic(), event),)

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
        ended = monotonic()
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
        origin, tracer, outcome = passage.origin, self._tracer, _outcome(kind, payload, is_denied=is_denied)
        # In the order of its fields: names would take as long as the rest.
        tracer.sender.put(
            TracedCall(
                self._trace_id,
                self._span_id,
                self._client_span_id,
                self._flags,
                self._parent,
                call_id(passage),
                tracer.subject(call, origin.method, origin.item, origin.toolbox, origin.server, origin.peer),
                bytes(call.id),
                call.route.wire_id,
                tracer.epoch(ended),
                passage.arrived,
                sent_at(passage),
                ended,
                outcome,
                _server_outcome(passage, outcome),
                rule,
                self._events,
                self._linked,
            )
        )


def _outcome(kind: str, payload: tuple[Part, ...], *, is_denied: bool) -> CallOutcome:
    """What the client got."""
    if kind == "error":
        code = read_error(b"".join(payload)).code
        return CallOutcome(str(code), code)
    if is_denied:
        # An agent is told in a result.
        return CallOutcome("refused")
    return WELL if kind == "result" else CallOutcome(kind)


def _server_outcome(passage: AnyPassage, outcome: CallOutcome) -> CallOutcome:
    """What the server answered, which an agent may be shown as a result."""
    if passage.failure_code is not None:
        return CallOutcome(str(passage.failure_code), passage.failure_code)
    if passage.failure:
        # It did not answer at all: OpenTelemetry's word for everything without one of its own.
        return CallOutcome("timeout" if passage.failure == "timeout" else "_OTHER")
    return outcome
