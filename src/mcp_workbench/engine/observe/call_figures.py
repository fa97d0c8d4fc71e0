"""Counts every call from its beginning to its end: the one source of figures for `top`, the page, metrics and traces.

Owns the counters, all of them bounded, and which calls are running. With no listener nothing is made for a call, which
is counted when it ends, because each call waits for that: who makes it, and which are running, is found out when
somebody looks.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, Literal, NamedTuple

from mcp_workbench.engine.jsonrpc.messages import Part, encode, read_error
from mcp_workbench.engine.observe.call_record import CallEnd, CallListener, CallRecord, client_name, tool_error_text
from mcp_workbench.engine.observe.day_ring import BUCKET_SECONDS, Bucket, DayRing, OutlineStep
from mcp_workbench.engine.observe.ended_calls import EndedCall, EndedCalls
from mcp_workbench.engine.steps import (
    MAX_SEARCHED_ANSWER_BYTES,
    AnyPassage,
    CountedCall,
    CountedPassage,
    CountedServer,
    EndKind,
    GuardedRequest,
    Outcome,
    Passage,
    RoundEvent,
    UncheckedPassage,
    call_id,
    find_failure,
    tool_failed,
)

log = logging.getLogger(__name__)

# Upper bounds in seconds: those of OpenTelemetry's conventions for MCP, preceded by three for calls that take less
# than 10 ms, as most do here. One more bucket is for everything above.
BUCKET_BOUNDS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0
)  # fmt: skip
# Rows of figures, one for each toolbox, server, method and item that was called. The names come from clients.
MAX_ROWS: Final = 2000
# Of these, those of one server: a server with thousands of tools leaves room for others.
MAX_ITEMS: Final = 500
# Remembered descriptions of calls, each with its row. The router remembers as many.
MAX_ORIGINS: Final = 1024
# Calls that a row has not counted yet: 35 KB at most, and none once a bucket of the day is over.
MAX_FRESH: Final = 250
# Of the reason why a call failed: a line of a wide terminal.
MAX_REASON: Final = 300
# Everything beyond these bounds is counted together under this name, as OpenTelemetry does.
OTHER: Final = "_OTHER"
# Methods that name something of which a server has a limited number. URIs and tasks are unlimited.
_NAMING_METHODS: Final = frozenset({"tools/call", "prompts/get"})
# The methods that a server may be sent. Clients may send others, whose names are unlimited.
SERVER_METHODS: Final = frozenset({
    "completion/complete", "logging/setLevel", "notifications/cancelled", "notifications/progress",
    "notifications/roots/list_changed", "ping", "prompts/get", "prompts/list", "resources/directory/read",
    "resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe",
    "server/discover", "skills/get", "skills/list", "subscriptions/listen", "tasks/cancel", "tasks/get", "tasks/list",
    "tasks/result", "tasks/update", "tools/call", "tools/list",
})  # fmt: skip

# How calls end that have not failed, and those that no server is sent, whose durations tell nothing of it.
_NO_ERRORS: Final = ("ok", "needs_approval")
_NEVER_SENT: Final = ("refused", "needs_approval")

Label = tuple[str, str]


class Histogram:
    """Durations: how many in each bucket, their sum and the longest, in seconds."""

    __slots__ = ("counts", "longest", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKET_BOUNDS) + 1)
        self.seconds = 0.0
        self.longest = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        self.seconds += seconds
        if seconds > self.longest:
            self.longest = seconds

    def observe_all(self, durations: list[float]) -> None:
        """The same for many at a time, the shortest first, which takes a fraction of finding the bucket of each."""
        if not durations:
            return
        below = 0
        for index, bound in enumerate(BUCKET_BOUNDS):
            within = bisect_right(durations, bound, below)
            self.counts[index] += within - below
            below = within
        self.counts[-1] += len(durations) - below
        self.seconds += sum(durations)
        self.longest = max(self.longest, durations[-1])

    def add(self, other: Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def quantile(self, part: float) -> float | None:
        """The duration that this part of the calls did not exceed, interpolated within a bucket as Prometheus does, but
        never beyond the longest; None without calls."""
        total = self.total
        if total <= 1:
            return round(self.longest, 6) if total else None
        wanted, below, lower = part * total, 0, 0.0
        for number, bound in zip(self.counts, (*BUCKET_BOUNDS, self.longest), strict=True):
            if number and below + number >= wanted:
                upper = min(bound, self.longest)
                return round(lower + (upper - lower) * (wanted - below) / number, 6)
            below += number
            lower = bound
        return round(self.longest, 6)


class EndFigures:
    """Calls of one row that ended in one way."""

    __slots__ = ("at_once", "from_sending", "waited")

    def __init__(self) -> None:
        # Those that were sent as they arrived, so that both durations are the same: nearly all. The others: from their
        # arrival, and from being sent, if they were.
        self.at_once = Histogram()
        self.waited = Histogram()
        self.from_sending = Histogram()

    @property
    def calls(self) -> int:
        return self.at_once.total + self.waited.total

    def from_arrival(self) -> Histogram:
        """Durations from the arrival of a call to its end."""
        return _sum((self.at_once, self.waited))

    def at_server(self) -> Histogram:
        """Durations from sending a call to its end, of the calls that were sent."""
        return _sum((self.at_once, self.from_sending))


class ItemFigures:
    """The figures of one item, or of all calls of one method that name none."""

    __slots__ = ("_bytes_in", "_bytes_out", "_ends", "fresh", "item", "method", "noted", "server", "toolbox")

    def __init__(self, toolbox: str, server: str, method: str, item: str) -> None:
        self.toolbox = toolbox
        self.server = server
        self.method = method
        self.item = item
        self._bytes_in = 0
        self._bytes_out = 0
        self._ends: dict[CallEnd, EndFigures] = {"ok": EndFigures()}
        # Of calls that ended well and were sent as they arrived, as nearly all: for each its duration, its bytes to the
        # server without the closing brace, and those to the client. A call only adds them here; they are counted with
        # many others (`settle`).
        self.fresh: list[tuple[float, int, int]] = []
        # By end, what the ring of the day has of them.
        self.noted: dict[CallEnd, list[int]] = {}

    def settle(self) -> None:
        """Count what was only added until now."""
        if self.fresh:
            durations, sent, received = zip(*self.fresh, strict=True)
            self.fresh.clear()
            self._ends["ok"].at_once.observe_all(sorted(durations))
            self._bytes_in += sum(sent) + len(sent)
            self._bytes_out += sum(received)

    @property
    def ends(self) -> dict[CallEnd, EndFigures]:
        """By how calls ended; those that ended in no such way have no entry."""
        self.settle()
        return self._ends

    @property
    def bytes_in(self) -> int:
        """Arguments to the server."""
        self.settle()
        return self._bytes_in

    @property
    def bytes_out(self) -> int:
        """What the client got."""
        self.settle()
        return self._bytes_out

    def count(self, end: CallEnd, passage: AnyPassage, size: int, ended: float) -> None:
        """Count one call. `size`: of what the client got."""
        self._bytes_in += len(passage.body) + 1
        self._bytes_out += size
        figures = self._ends.get(end)
        if figures is None:
            figures = self._ends[end] = EndFigures()
        sent = sent_at(passage)
        if sent == passage.arrived:
            figures.at_once.observe(ended - sent)
            return
        figures.waited.observe(ended - passage.arrived)
        if sent is not None:
            figures.from_sending.observe(ended - sent)

    @property
    def calls(self) -> int:
        """All calls that have ended, in whichever way."""
        return sum(each.calls for each in self.ends.values())

    @property
    def errors(self) -> int:
        return sum(each.calls for end, each in self.ends.items() if end not in _NO_ERRORS)


class DayBucket(NamedTuple):
    """What a server did during ten seconds; during a minute, if the day had more than fits."""

    # When it began, by the wall clock.
    at: float
    calls: int
    # Those that failed.
    errors: int
    # As `Histogram.counts`, without refused calls.
    counts: list[int]
    # Of its processes, in bytes; None if nobody measured it then.
    memory: int | None
    # Tokens that the toolbox, which is then named without a server, has saved.
    saved: int


class ServerTotals:
    """The figures of one server, including all of its processes and users."""

    def __init__(self) -> None:
        self.calls = 0
        # Those that failed; of these, those that a step or a face refused.
        self.errors = 0
        self.refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        # From the arrival of a call to its end, without those that were refused.
        self.durations = Histogram()
        # Calls that are with the server, and those that wait for it or are held.
        self.running = 0
        self.waiting = 0


class Totals(NamedTuple):
    """All figures since counting began."""

    # When that was, by the wall clock.
    since: float
    rows: list[ItemFigures]
    running: list[AnyPassage]

    def by_server(self) -> dict[Label, ServerTotals]:
        """By toolbox and server, for those that were called. The names of refused calls are those that clients used."""
        found: dict[Label, ServerTotals] = {}
        for row in self.rows:
            server = found.setdefault((row.toolbox, row.server), ServerTotals())
            server.bytes_in += row.bytes_in
            server.bytes_out += row.bytes_out
            for end, figures in row.ends.items():
                calls = figures.calls
                server.calls += calls
                server.errors += calls if end not in _NO_ERRORS else 0
                server.refused += calls if end == "refused" else 0
                if end not in _NEVER_SENT:
                    server.durations.add(figures.at_once)
                    server.durations.add(figures.waited)
        for passage in self.running:
            server = found.setdefault((passage.origin.toolbox, passage.origin.server), ServerTotals())
            if state_of(passage) == "sent":
                server.running += 1
            else:
                server.waiting += 1
        return found


class CallFigures:
    """The figures of all calls of a process (`steps.Tracker`)."""

    def __init__(self, find_running: Callable[[], None] = lambda: None) -> None:
        """`find_running`: calls `note_running` with each call that is running and only counted until now."""
        self.since = time.time()
        self._find_running = find_running
        self._rows: dict[tuple[str, str, str, str], ItemFigures] = {}
        self._items: dict[Label, int] = {}
        self._row_of: dict[GuardedRequest, ItemFigures] = {}
        # The same for calls that nobody describes, by the method as it is written to the server, which is one object
        # for all calls of tools, by server and by item: three look-ups take less than to make a key of the three.
        self._row_at: dict[bytes, dict[CountedServer, dict[str, ItemFigures]]] = {}
        # How many these are: clients make up methods and addresses.
        self._found_rows = 0
        self._running: set[AnyPassage] = set()
        # Whether somebody listens.
        self.is_watched = False
        self._listeners: tuple[CallListener, ...] = ()
        # Those who look at calls that have ended some time later.
        self._collectors: tuple[EndedCalls, ...] = ()
        self.has_collectors = False
        self._records: dict[AnyPassage, CallRecord] = {}
        self._saved: dict[str, int] = {}
        # Events that are no calls, by kind, decision and place, and denied requests by what denied them.
        self.events: Counter[tuple[str, str, Label]] = Counter()
        # How long sessions lasted, by server (none: those of clients) and revision.
        self.sessions: dict[tuple[Label, str], Histogram] = {}
        self.denied: Counter[str] = Counter()
        self._day = DayRing()
        # The bucket that calls are in now, and when it is over, by `time.monotonic`.
        self._bucket = _bucket_now()
        self._turn_at = monotonic() + BUCKET_SECONDS
        # Until then nothing is to be done for a call that ends but counting it: 0 while somebody wants to be told.
        self._quiet_until = self._turn_at

    # ── what is read ──

    def totals(self) -> Totals:
        self._find_running()
        return Totals(self.since, list(self._rows.values()), list(self._running))

    def day(self, toolbox: str, server: str = "") -> list[DayBucket]:
        """The last day of a server, oldest first, without the buckets in which nothing happened: the first one tells
        since when there are figures, unless counting began later (`since`). Without a server: the tokens that the
        toolbox has saved."""
        self._turn(monotonic())
        return [
            DayBucket(
                at=float(bucket.number * BUCKET_SECONDS),
                calls=bucket.calls if server else 0,
                errors=bucket.errors,
                counts=_spread(bucket.counts),
                memory=bucket.memory * 1024 or None,
                saved=0 if server else bucket.calls,
            )
            for bucket in self._day.read((toolbox, server))
        ]

    def day_durations(self, toolbox: str, server: str) -> Histogram:
        """How long the calls of the last day took. The longest is as far as the buckets tell, their sum is not told."""
        found = Histogram()
        for bucket in self.day(toolbox, server):
            found.counts = [mine + theirs for mine, theirs in zip(found.counts, bucket.counts, strict=True)]
        totals = self.totals().by_server().get((toolbox, server))
        longest = 0.0 if totals is None else totals.durations.longest
        last = max((index for index, number in enumerate(found.counts) if number), default=0)
        found.longest = min((*BUCKET_BOUNDS, longest)[last], longest)
        return found

    def outlines(self) -> dict[Label, list[OutlineStep]]:
        """The last day of everything that was called, in quarters of an hour, without the last seconds: cheap enough
        for whoever looks every second."""
        now = monotonic()
        if now >= self._turn_at:
            self._turn(now)
        return {label: self._day.outline(label) for label in self._day.labels() if label[1]}

    def note_memory(self, toolbox: str, server: str, size: int) -> None:
        """What the processes of a server take, as somebody has just measured it."""
        self._turn(monotonic())
        self._day.add((toolbox, server), Bucket(self._bucket, memory=size // 1024))

    def note_saved(self, toolbox: str, tokens: int) -> None:
        """A client was shown less than everything that a toolbox has, by so many tokens."""
        self._saved[toolbox] = self._saved.get(toolbox, 0) + tokens
        self._turn(monotonic())
        self._day.add((toolbox, ""), Bucket(self._bucket, calls=tokens))

    def note_event(self, kind: str, decision: str, place: Label = ("", "")) -> None:
        """Something else was decided than a call (`steps.EventKind`); about a configured server, if `place` has one."""
        if (kind, decision, place) not in self.events and len(self.events) >= MAX_ROWS:
            place = (OTHER, OTHER)
        self.events[kind, decision, place] += 1

    def note_session(self, place: Label, version: str, seconds: float) -> None:
        """A session with this server has ended, or with a client if there is none."""
        if (place, version) not in self.sessions and len(self.sessions) >= MAX_ROWS:
            place = (OTHER, OTHER)
        self.sessions.setdefault((place, version), Histogram()).observe(seconds)

    @property
    def saved(self) -> dict[str, int]:
        """The tokens that each toolbox has saved."""
        return dict(self._saved)

    def running(self) -> list[CallRecord]:
        """The calls that have not ended, oldest first, as they are now."""
        self._find_running()
        # Not kept: as long as there are records, no call is counted the short way.
        found = (self._records.get(each) or _new_record(each) for each in self._running)
        return sorted(found, key=lambda call: call.arrived)

    def running_passages(self) -> list[AnyPassage]:
        self._find_running()
        return list(self._running)

    def subscribe(self, listener: CallListener) -> Callable[[], None]:
        """Tell the listener of every call from now on, until the function that this returns is called."""
        self._listeners += (listener,)
        self.is_watched = True
        self._quiet_until = 0.0

        def unsubscribe() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            if not self._listeners:
                self.is_watched = False
                self._be_quiet()

        return unsubscribe

    def collect(self, collector: EndedCalls) -> Callable[[], None]:
        """Add every call that ends from now on, until the function that this returns is called. Which calls are running
        is found out when somebody looks (`running_passages`), so a call costs little more than counting it."""
        self._collectors += (collector,)
        self.has_collectors = True

        def stop() -> None:
            self._collectors = tuple(each for each in self._collectors if each is not collector)
            self.has_collectors = bool(self._collectors)

        return stop

    # ── what the router tells (`steps.Tracker`) ──

    def begin(self, passage: AnyPassage) -> None:
        self._running.add(passage)
        if self._listeners:
            self._tell("begun", self._record_of(passage))

    def note_running(self, passage: AnyPassage) -> None:
        self._running.add(passage)

    def changed(self, passage: AnyPassage) -> None:
        if passage in self._records or (self._listeners and passage in self._running):
            record = self._record_of(passage)
            record.state = state_of(passage)
            record.sent = sent_at(passage)
            self._tell("changed", record)

    def note_round(self, passage: AnyPassage, event: RoundEvent) -> None:
        """Rounds are not counted."""

    def forget(self, passage: AnyPassage) -> None:
        self._running.discard(passage)
        self._records.pop(passage, None)
        self._be_quiet()

    def on_unchecked_end(
        self,
        passage: UncheckedPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        size: int,
        ended: float,
    ) -> None:
        """Inlined as far as it helps: every answer waits for it."""
        self._running.discard(passage)
        if ended >= self._turn_at:
            self._turn(ended)
        origin = passage.origin
        row = self._row_of.get(origin) or self._find_row(origin)
        if kind == "result" and passage.sent is None and passage.reached is None and not passage.failure:
            fresh = row.fresh
            fresh.append((ended - passage.arrived, len(passage.body), size))
            if len(fresh) >= MAX_FRESH:
                row.settle()
            if not self._listeners and not self._records and not self._collectors:
                return
            end: CallEnd = "ok"
        else:
            end = passage.failure or _END_OF[kind]
            row.count(end, passage, size, ended)
        self._finish(passage, kind, end, payload, size, ended)

    def counts_result(self, call: CountedCall, payload: tuple[Part, ...]) -> bool:
        """Nearly every call of those who only count ends here, so everything is inlined. It is counted the long way
        unless it is an ordinary result of what was called before, and nobody listens."""
        route, ended, passage = call.route, monotonic(), None
        target, arrived = route.decision, route.arrived
        if target is None or arrived is None or ended >= self._quiet_until:
            return False
        try:
            row = self._row_at[target.method][target.entry][target.item]
        except KeyError:
            return False
        # What comes before the last part is ours.
        first, last = payload[0], payload[-1]
        size = len(last)
        if not call.is_success and (size > MAX_SEARCHED_ANSWER_BYTES or find_failure(last) is not None):
            return False
        if first is not last:
            size += len(first)
        fresh = row.fresh
        fresh.append((ended - arrived, len(target.body), size))
        if len(fresh) >= MAX_FRESH:
            row.settle()
        for each in self._collectors:
            if each.has_enough:
                each.miss(call.caller.principal)
                continue
            # Neither the call nor its session, which have what nobody will look at.
            passage = passage or CountedPassage(
                self,
                target.entry,
                call.method,
                target.item,
                target.body,
                call.caller,
                call.client_info,
                call.session.peer,
                None,
                arrived,
            )
            each.add((passage, "result", "ok", payload, size, ended))
        return True

    def on_counted_end(self, passage: CountedPassage, kind: EndKind, payload: tuple[Part, ...]) -> None:
        self._running.discard(passage)
        ended = monotonic()
        if ended >= self._turn_at:
            self._turn(ended)
        rows = self._row_at.setdefault(encode(passage.method), {}).setdefault(passage.entry, {})
        row = rows.get(passage.item)
        if row is None:
            row = rows[passage.item] = self._find_row(passage.origin)
            self._found_rows += 1
            if self._found_rows >= MAX_ORIGINS:
                self._forget_found_rows()
        size = sum(map(len, payload))
        is_tool_error = kind == "result" and not passage.is_success and tool_failed(payload, size)
        end: CallEnd = passage.failure or ("tool_error" if is_tool_error else _END_OF[kind])
        row.count(end, passage, size, ended)
        self._finish(passage, kind, end, payload, size, ended)

    def on_passage_end(self, passage: Passage, outcome: Outcome) -> None:
        self._running.discard(passage)
        if outcome.ended >= self._turn_at:
            self._turn(outcome.ended)
        request, size = passage.request, outcome.size
        row = self._find_row(request)
        end = _end_of(passage, outcome)
        if end == "refused":
            # A rule is `policy[3]` or `lock`.
            self.denied[(outcome.rules[-1] if outcome.rules else "").partition("[")[0]] += 1
        row.count(end, passage, size, outcome.ended)
        self._finish(passage, outcome.kind, end, outcome.payload, size, outcome.ended)

    def _finish(
        self, passage: AnyPassage, kind: str, end: CallEnd, payload: tuple[Part, ...], size: int, ended: float
    ) -> None:
        for each in self._collectors:
            # One that has a number was shown while it was running.
            if each.has_enough and end == "ok" and not passage.id:
                each.miss(passage.origin.principal)
            else:
                each.add((passage, kind, end, payload, size, ended))
        if not self._listeners and passage not in self._records:
            return
        record = self._record_of(passage)
        del self._records[passage]
        self._be_quiet()
        _note_end(record, (passage, kind, end, payload, size, ended))
        self._tell("ended", record)

    # ── the day ──

    def _turn(self, now: float) -> None:
        """Note what was counted since the last turn. Done with the first call after a bucket is over, and before
        somebody reads, so that calls pay for one comparison alone."""
        changed: dict[Label, list[int]] = {}
        for row in self._rows.values():
            for end, figures in row.ends.items():
                counts = figures.from_arrival().counts
                before = row.noted.get(end, _NO_COUNTS)
                if counts != before:
                    row.noted[end] = counts
                    _add_changes(
                        changed.setdefault((row.toolbox, row.server), [0] * (2 + len(counts))), end, counts, before
                    )
        for label, (calls, errors, *counts) in changed.items():
            sparse = tuple((index, number) for index, number in enumerate(counts) if number)
            self._day.add(label, Bucket(self._bucket, calls, errors, sparse))
        if now >= self._turn_at:
            # So that it keeps no server that is gone.
            self._forget_found_rows()
            self._turn_at = now + BUCKET_SECONDS
            self._bucket = max(self._bucket, _bucket_now())
            self._be_quiet()

    def _be_quiet(self) -> None:
        if not self._listeners and not self._records:
            self._quiet_until = self._turn_at

    # ── rows ──

    def _find_row(self, origin: GuardedRequest) -> ItemFigures:
        """The row of a call, which is remembered for calls that share a description."""
        method = origin.method if origin.method in SERVER_METHODS else OTHER
        item = origin.item if method in _NAMING_METHODS else ""
        row = self._rows.get((origin.toolbox, origin.server, method, item)) or self._new_row(origin, method, item)
        # Those of calls that a step decides about have a body, and are no one else's.
        if not origin.body:
            if len(self._row_of) >= MAX_ORIGINS:
                self._row_of.clear()
            self._row_of[origin] = row
        return row

    def _forget_found_rows(self) -> None:
        self._row_at.clear()
        self._found_rows = 0

    def _new_row(self, origin: GuardedRequest, method: str, item: str) -> ItemFigures:
        key = (origin.toolbox, origin.server, method, item)
        label = key[:2]
        # The last rows are kept for the names that everything else is counted under.
        if item and (self._items.get(label, 0) >= MAX_ITEMS or len(self._rows) >= MAX_ROWS * 3 // 4):
            key = (*label, method, OTHER)
        if key not in self._rows and len(self._rows) >= MAX_ROWS:
            if (OTHER, OTHER, OTHER, "") not in self._rows:
                log.warning("calls of more than %d items and servers are counted together", MAX_ROWS)
            key = (OTHER, OTHER, OTHER, "")
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = ItemFigures(*key)
            self._items[label] = self._items.get(label, 0) + bool(item)
        return row

    # ── records ──

    def _record_of(self, passage: AnyPassage) -> CallRecord:
        record = self._records.get(passage)
        if record is None:
            record = self._records[passage] = _new_record(passage)
            self._quiet_until = 0.0
        return record

    def _tell(self, what: Literal["begun", "changed", "ended"], record: CallRecord) -> None:
        for listener in self._listeners:
            try:
                getattr(listener, what)(record)
            except Exception:
                # The call goes on, and the other listeners learn of it.
                log.exception("a listener to calls failed; please report this")


_END_OF: Final[dict[str, CallEnd]] = {
    "result": "ok",
    "tool_error": "tool_error",
    "error": "error",
    "cancelled": "cancelled",
}


def _end_of(passage: Passage, outcome: Outcome) -> CallEnd:
    if outcome.decision == "denied":
        return "needs_approval" if passage.needs_approval else "refused"
    return passage.failure or ("tool_error" if outcome.is_tool_error else _END_OF[outcome.kind])


def reason_of(call: EndedCall) -> str:
    """Why a call failed; empty if it has not."""
    _, kind, end, payload, _, _ = call
    if kind == "error":
        return read_error(b"".join(payload)).message[:MAX_REASON]
    # Agents are told most failures in results.
    return "" if end == "ok" else tool_error_text(b"".join(payload))[:MAX_REASON]


def _new_record(passage: AnyPassage) -> CallRecord:
    origin = passage.origin
    meta = origin.meta if isinstance(passage, Passage) else passage.meta
    return CallRecord(
        id=call_id(passage),
        at=time.time() - (monotonic() - passage.arrived),
        arrived=passage.arrived,
        sent=sent_at(passage),
        principal=origin.principal,
        client=client_name(origin.client),
        session=origin.session,
        peer=origin.peer,
        toolbox=origin.toolbox,
        server=origin.server,
        method=origin.method,
        item=origin.item,
        state=state_of(passage),
        bytes_in=len(passage.body) + 1,
        meta=None if meta is None else bytes(meta),
    )


def _note_end(record: CallRecord, call: EndedCall) -> None:
    passage, kind, end, payload, size, ended = call
    record.state, record.end, record.ended = "ended", end, ended
    record.sent = sent_at(passage)
    record.bytes_out = size
    record.error_code = passage.failure_code
    if kind == "error":
        code = read_error(b"".join(payload)).code
        record.error_code = code if passage.failure_code is None else passage.failure_code
    record.reason = reason_of(call)
    if isinstance(passage, Passage):
        record.rule = ", ".join(rule for rule in passage.rules if rule)


def state_of(passage: AnyPassage) -> Literal["waiting", "held", "sent"]:
    if isinstance(passage, Passage) and passage.decision == "undecided":
        return "held"
    return "waiting" if passage.is_waiting else "sent"


def sent_at(passage: AnyPassage) -> float | None:
    """When it was sent to its server, if it was."""
    if passage.is_waiting:
        return None
    if passage.reached is not None:
        return passage.reached
    if not isinstance(passage, Passage) and passage.sent is None:
        return passage.arrived
    return passage.sent


_NO_COUNTS: Final = [0] * (len(BUCKET_BOUNDS) + 1)


def _bucket_now() -> int:
    return int(time.time()) // BUCKET_SECONDS


def _add_changes(changes: list[int], end: CallEnd, counts: list[int], before: list[int]) -> None:
    """Add to calls, errors and each bucket of the histogram what has come since."""
    for index, (now, then) in enumerate(zip(counts, before, strict=True)):
        number = now - then
        changes[0] += number
        changes[1] += number if end not in _NO_ERRORS else 0
        changes[2 + index] += number if end not in _NEVER_SENT else 0


def _spread(sparse: tuple[tuple[int, int], ...]) -> list[int]:
    counts = list(_NO_COUNTS)
    for index, number in sparse:
        counts[index] = number
    return counts


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for each in histograms:
        total.add(each)
    return total
