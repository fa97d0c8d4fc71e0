"""Steps around a request to a server: each passes, answers, refuses or holds it, and learns how it ended.

Owns that steps are called one by one, the bound on holding, and that each step called learns of exactly one end. Knows
nothing about what a step decides by, how the client is answered and how the server is reached.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from time import monotonic
from typing import Any, Final, Literal, Protocol, runtime_checkable

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Body, Part, read_error

log = logging.getLogger(__name__)

# A step that holds a request usually waits for a person, who needs minutes, not hours: the same as for a server's
# question. What has not been decided by then is refused.
STEP_HOLD_TIMEOUT: Final = 900.0
UNDECIDED: Final = f"no decision was made about this request within {STEP_HOLD_TIMEOUT:g} s"
STEP_FAILED: Final = "a check of this request failed, so it was not sent; the log of the workbench says why"

# Recorded instead of a rule for a request that the user has approved.
APPROVED: Final = "approved"

# The largest answer that is searched completely for a failure of the tool itself; of larger ones, only the ends.
MAX_SEARCHED_ANSWER_BYTES: Final = 8 * 1024
_EDGE: Final = 4096
# Over stdio there is one user, the one who started us, whose principal is the empty string. Rules, reports and the
# audit use this name.
LOCAL_PRINCIPAL: Final = "local"

EndKind = Literal["result", "error", "cancelled"]
# What lies behind an answer that a face shows as a result: the server's JSON-RPC error, its silence, or its absence.
Failure = Literal["", "error", "timeout"]


class Subject(Struct, frozen=True, kw_only=True, gc=False):
    """Who wants to do what with which item of which server. Lists use the same value for their items."""

    principal: str
    # As in revision 2025-11-25: a subscription is `resources/subscribe`, however the client made it.
    method: str
    # Empty if all servers that this client uses are concerned: its log level, and its notifications.
    toolbox: str = ""
    server: str = ""
    # The server's own name for it: a tool, a prompt, a URI, a task.
    item: str = ""


class GuardedRequest(Subject, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """A client's request or notification, before it is sent to a server."""

    # The client's `clientInfo`, as JSON.
    client: bytes
    # The number of the client's session; 0 without one.
    session: int
    # The params without `_meta`, as JSON without the closing brace.
    body: Body
    meta: Raw | None = None
    # Where it came from: an address, `stdio`, `process 123`. Empty if unknown.
    peer: str = ""
    # The client retries with a `requestState`, from its server or from us. Ours is not in the body.
    is_retry: bool = False
    # The identity of the caller, as proved with this very request. The type is up to a step.
    identity: object = None
    # The id of the program that makes this call.
    program: str = ""

    @property
    def params(self) -> bytes:
        """What the server will get, as JSON."""
        return self.body + b"}"


class Substitute(Struct, frozen=True):
    """Answer with this result, as JSON, instead of asking the server."""

    result: bytes


class Denial(Struct, frozen=True):
    """Answer with this JSON-RPC error; an agent gets it as a readable result."""

    code: int
    message: str
    data: object = None
    # What decided, for the audit: `policy[3]`, `lock`.
    rule: str = ""
    # The client must not learn that what it asked for exists.
    hides: bool = False
    # It waits for a person, who is asked elsewhere: once it is approved, the client makes it again.
    needs_approval: bool = False


class Pass(Struct, frozen=True):
    """Let the request pass, and record what decided. None does the same if there is nothing to record."""

    rule: str = ""
    # The time limit of the request; beyond it, the request is stopped and answered with `late`.
    within: float | None = None
    late: Denial | None = None


class Ask(Struct, frozen=True):
    """Hold the request and ask the client's user first, with an elicitation with these params."""

    params: Raw
    # Decides by the client's answer; by None if it did not answer.
    answered: Callable[[Raw | bytes | None], Denial | Pass]
    # Decides if the client cannot be asked.
    cannot_ask: Callable[[], Denial]
    # The user's decision outside of the client, if it comes first; it ends with None if there can be none.
    elsewhere: Callable[[], Coroutine[Any, Any, Denial | Pass | None]] | None = None


# None lets the request pass.
Verdict = Substitute | Denial | Pass | None
# What happens in a round of a call: its server needs input of the client, and gets it.
RoundEvent = Literal["input_required", "input_received"]
StepsDecision = Literal["passed", "answered", "denied", "undecided"]


class _ToolOutcome(Struct):
    isError: bool = False


_read_result: Final = Decoder(_ToolOutcome).decode
find_failure: Final = re.compile(rb'"isError"\s*:\s*true').search


class Outcome(Struct, frozen=True, gc=False):
    """How a request ended. Times are those of `time.monotonic`, in seconds."""

    kind: EndKind
    # What the client got, in parts; empty for a request that was cancelled or needs no answer.
    payload: tuple[Part, ...]
    arrived: float
    # None if a step answered or refused it, or it was cancelled before: no server has seen it.
    sent: float | None
    ended: float
    # What the steps decided, and the rules that they named, in order. Undecided: it ended while it was held.
    decision: StepsDecision = "passed"
    rules: tuple[str, ...] = ()
    # Of the request (`call_id`).
    id: int = 0
    # Of the payload, in bytes, and whether it is a result which says that the tool failed.
    size: int = 0
    is_tool_error: bool = False

    @property
    def code(self) -> int | None:
        """The code of a JSON-RPC error."""
        return read_error(b"".join(self.payload)).code if self.kind == "error" else None


def _edge(payload: Sequence[Part], *, is_last: bool = False) -> bytes:
    """The first bytes, or the last ones: of several parts, those at the ends may be a few bytes of ours."""
    edge = b""
    for part in reversed(payload) if is_last else payload:
        left = _EDGE - len(edge)
        if not left:
            break
        edge = bytes(part[-left:]) + edge if is_last else edge + bytes(part[:left])
    return edge


def tool_failed(payload: Sequence[Part], size: int) -> bool:
    """Whether a result reports that the tool itself failed. For a large one only the ends are searched: servers write
    it first or last, and no call should wait for a search through megabytes."""
    if size > MAX_SEARCHED_ANSWER_BYTES:
        return find_failure(_edge(payload)) is not None or find_failure(_edge(payload, is_last=True)) is not None
    whole = b"".join(payload)
    # Searched first, because hardly any result has it. `find`, because `in` would first try to convert to a number.
    if whole.find(b'"isError"') < 0:
        return False
    try:
        return _read_result(whole).isError
    except (DecodeError, ValidationError):
        return False


class UserAsker(Protocol):
    """The part of a request's client that a step may use."""

    def can_ask_user(self) -> bool:
        """Whether the client can show its user a question about this request."""

    def ask_user(self, params: Raw) -> Awaitable[Raw | bytes | None]:
        """Send an `elicitation/create` to the client. Returns its result; None if it did not answer."""


class Step(Protocol):
    """One step. Both methods are called on the event loop: slow work must be awaited, or left to a thread."""

    def check(self, request: GuardedRequest) -> Verdict | Ask | Awaitable[Verdict]:
        """Decide. An awaitable or a question holds the request, up to `STEP_HOLD_TIMEOUT`. If this raises, the request
        is refused."""

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        """The request has ended. Called once for every request that was passed to `check`."""


class DefinitionStep(Step, Protocol):
    """A step that judges by a server's definitions if `judges_definitions` is set. Cached definitions are not enough
    then: the server is listed first, and the step is called again."""

    judges_definitions: bool

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        """Judge the request by its server's current definitions. `rules`: those by which it passed before."""


@runtime_checkable
class ResultStep(Protocol):
    """A step that also judges what a server with resources has answered."""

    # Those whose results it judges.
    judged_methods: frozenset[str]

    def judge_result(self, request: GuardedRequest, result: Raw) -> Denial | None:
        """Why the client must not get this result. Called in a thread if the result is large."""


@runtime_checkable
class Observer(Step, Protocol):
    """A step that observes and never decides. It comes before all others, and also learns of requests that a face keeps
    from every server."""

    # Whether requests may have to wait for it. If not, `check` is not called, and it costs a call next to nothing.
    is_asked: bool

    def on_unchecked_end(
        self,
        passage: UncheckedPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        size: int,
        ended: float,
    ) -> None:
        """Like `on_end`, for a request that no step had to check, with as little overhead as possible. `size`: of the
        payload, in bytes. `tool_error`: the result says that the tool failed."""


class Tracker(Protocol):
    """Follows every request from its beginning to its end, and never decides."""

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to know of every request when it begins."""

    @property
    def has_collectors(self) -> bool:
        """Whether somebody takes requests that have ended."""

    def begin(self, passage: AnyPassage) -> None:
        """A request begins."""

    def note_running(self, passage: AnyPassage) -> None:
        """A request that was only counted until now goes on with this passage."""

    def counts_result(self, call: CountedCall, payload: tuple[Part, ...]) -> bool:
        """Count a request without a passage that has ended with a result. If False, nothing was counted, and a passage
        has to be ended for it."""

    def changed(self, passage: AnyPassage) -> None:
        """It is held, or sent after it had to wait."""

    def note_round(self, passage: AnyPassage, event: RoundEvent) -> None:
        """Its client is asked something for its server, or has answered."""

    def forget(self, passage: AnyPassage) -> None:
        """Another passage takes the place of this one, which will not end."""

    def on_passage_end(self, passage: Passage, outcome: Outcome) -> None:
        """It has ended. Called once; also for requests that a face refused, which never began."""

    def on_unchecked_end(
        self,
        passage: UncheckedPassage,
        kind: EndKind | Literal["tool_error"],
        payload: tuple[Part, ...],
        size: int,
        ended: float,
    ) -> None:
        """As for an `Observer`."""

    def on_counted_end(self, passage: CountedPassage, kind: EndKind, payload: tuple[Part, ...]) -> None:
        """The same for a request that nobody else observes."""


class Trace(Tracker, Protocol):
    """Tracks one traced request, and tells another tracker everything that it is told."""

    # `_meta` for the server, which names our request as the parent of what the server does.
    meta: Raw


class Tracer(Protocol):
    """Decides which requests are traced."""

    # The part of the requests that is traced, of those that belong to no trace yet.
    ratio: float

    @property
    def draw(self) -> Callable[[], float]:
        """Draws a number from 0 to 1: below the ratio, such a request is traced."""

    def begin_trace(self, call: Any, tracker: Tracker, drawn: float) -> Trace | None:
        """The trace of a request that has just arrived (a `RoutedCall` of the router, which is above us); None if it is
        not traced."""


@runtime_checkable
class IdentifyingStep(Protocol):
    """A step that knows more about callers than their names. This may change at any moment: one user may have several
    tokens. So it is kept with requests that have to wait."""

    def identify(self, principal: str) -> object:
        """The identity of the caller of a request that has just arrived."""

    def recall(self, identity: object) -> None:
        """Restore the identity of a request that had to wait, as the current one of its principal."""


@runtime_checkable
class CountingStep(Protocol):
    """A step that counts requests which we answer ourselves, such as lists and searches, too."""

    def count(self, request: GuardedRequest, size: int) -> Denial | None:
        """Count a request of this many bytes that reaches no server, unless a limit is reached."""


@runtime_checkable
class HidingStep(Protocol):
    """A step that knows what is hidden from which principal."""

    def hiding_rule(self, subject: Subject) -> str:
        """The rule that hides it, for the audit alone; empty if none does."""


# Events other than requests that are recorded: a caller succeeded or failed to authenticate (`authentication`), signed
# in to a server, was asked something, or approved a call; a definition or the configuration has changed; a program; a
# server sent a secret of another one.
EventKind = Literal[
    "authentication", "sign_in", "question", "approval", "definition", "configuration", "egress", "program", "secret"
]


class EventRecorder(Protocol):
    """Writes an event to the audit, if there is one (`Gateway.record`): never waits, never raises.

    Fields are named as in the lines of calls, where they apply: `principal`, `peer`, `client` (its `clientInfo`, JSON),
    `toolbox`, `server`, `item`, `decision` (`passed`, `denied` …), `rule`, `reason`. Secrets in them are redacted.
    """

    def __call__(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None: ...


def origin_of(request: GuardedRequest) -> dict[str, str | int]:
    """Who makes a request, from where, and for what, as fields of an event (`EventRecorder`)."""
    return {
        "principal": request.principal or LOCAL_PRINCIPAL,
        "peer": request.peer,
        "client": request.client.decode(errors="replace"),
        "session": request.session,
        "toolbox": request.toolbox,
        "server": request.server,
        "item": request.item,
    }


class _Arguments(Struct):
    # Not optional: in a union, msgspec does not accept everything for `Raw` that it accepts for `Raw` alone.
    arguments: Raw = Raw(b"{}")


_read_arguments: Final = Decoder(_Arguments).decode


def arguments_digest(params: bytes) -> str:
    """The SHA-256 of the arguments as they were sent: connects an approval with the call that it was for."""
    from hashlib import sha256

    try:
        return sha256(_read_arguments(params).arguments).hexdigest()
    except (DecodeError, ValidationError, RecursionError):
        return sha256(params).hexdigest()


class Held:
    """A step holds the request: await `Passage.decided`."""


HELD: Final = Held()


class Passage(Struct, eq=False):
    """One request on its way through the steps and to its end. A `Struct`, because there is one for each call and
    structs are created in C."""

    steps: tuple[Step, ...]
    request: GuardedRequest
    # These pass everything at once: they are not called before, and learn of the end.
    observers: tuple[Step, ...] = ()
    # Not the event loop's clock: uvloop's is only updated once per iteration.
    arrived: float = field(default_factory=monotonic)
    sent: float | None = None
    # How many steps were called.
    asked: int = 0
    decision: StepsDecision = "undecided"
    rules: tuple[str, ...] = ()
    # What a step holds the request for, until it is awaited.
    held: Awaitable[Verdict] | Ask | None = None
    # The time limit set by a step, and the timer that enforces it.
    limit: Pass | None = None
    timer: asyncio.TimerHandle | None = None
    is_over: bool = False
    tracker: Tracker | None = None
    # It has passed the steps and waits for its server; and when it was sent, if it had to wait.
    is_waiting: bool = False
    reached: float | None = None
    failure: Failure = ""
    # The code of the server's JSON-RPC error, if that is the failure.
    failure_code: int | None = None
    # 0 until somebody asks for it (`call_id`).
    id: int = 0
    # It was denied only until a person has approved it (`Denial.needs_approval`).
    needs_approval: bool = False

    @property
    def body(self) -> Body:
        return self.request.body

    @property
    def origin(self) -> GuardedRequest:
        return self.request

    def check(self) -> Denial | Substitute | Held | None:
        """Call the steps in order, up to the first that does not pass it. None: it may be sent, and is sent now."""
        while self.asked < len(self.steps):
            step = self.steps[self.asked]
            self.asked += 1
            try:
                verdict = step.check(self.request)
            except Exception:
                return self._refused(_failed())
            if verdict is None:
                continue
            if isinstance(verdict, Pass):
                self._note(verdict)
            elif isinstance(verdict, Substitute | Denial):
                return self._refused(verdict)
            else:
                self.held = verdict
                return HELD
        self.decision = "passed"
        self.sent = monotonic()
        return None

    def _note(self, verdict: Pass) -> None:
        if verdict.rule:
            self.rules += (verdict.rule,)
        if verdict.within is not None:
            self.limit = verdict

    def _refused(self, verdict: Substitute | Denial) -> Substitute | Denial:
        self.decision = "denied" if isinstance(verdict, Denial) else "answered"
        self.needs_approval = isinstance(verdict, Denial) and verdict.needs_approval
        # A rule that requires asking the user was noted when it passed.
        if isinstance(verdict, Denial) and verdict.rule and verdict.rule not in self.rules:
            self.rules += (verdict.rule,)
        return verdict

    def check_again(self, steps: Iterable[DefinitionStep]) -> Denial | None:
        """Judge the request again, because its server was listed again or the steps have changed. Returns what refuses
        it now."""
        for step in steps:
            try:
                denial = step.judge_again(self.request, self.rules)
            except Exception:
                denial = _failed()
            if denial is not None:
                self.sent = None
                self._refused(denial)
                return denial
        return None

    def withhold(self, denial: Denial) -> None:
        """Record that its result is kept from the client."""
        self._refused(denial)

    async def decided(self, asker: UserAsker | None = None) -> Denial | Substitute | None:
        """The decision about a held request, by this step and those that follow."""
        while self.held is not None:
            held, self.held = self.held, None
            bound = asyncio.timeout(STEP_HOLD_TIMEOUT)
            try:
                async with bound:
                    verdict = await (_asked(held, asker) if isinstance(held, Ask) else held)
            except Exception:
                return self._refused(Denial(INTERNAL_ERROR, UNDECIDED) if bound.expired() else _failed())
            if isinstance(verdict, Pass):
                self._note(verdict)
            elif verdict is not None:
                return self._refused(verdict)
            following = self.check()
            if not isinstance(following, Held):
                return following
        return None

    def end(self, kind: EndKind, *payload: Part) -> None:
        self.end_with(kind, payload)

    def end_with(self, kind: EndKind, payload: tuple[Part, ...], is_success: bool = False) -> None:
        """Record its end; only the first counts. The step that was called last learns of it first. `is_success`: it is
        known that the result does not say that the tool failed."""
        if self.is_over:
            return
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        if self.held is not None and asyncio.iscoroutine(self.held):
            # Cancelled before it was awaited.
            self.held.close()
        # As `call_id` does.
        self.id = self.id or new_call_id()
        size = sum(map(len, payload))
        outcome = Outcome(
            kind,
            payload,
            self.arrived,
            self.sent,
            monotonic(),
            self.decision,
            self.rules,
            self.id,
            size,
            kind == "result" and not is_success and tool_failed(payload, size),
        )
        for step in (*self.steps[: self.asked][::-1], *self.observers):
            try:
                step.on_end(self.request, outcome)
            except Exception:
                # The client still gets its answer, and the other steps still learn of it.
                log.exception("a step around requests failed; please report this")
        if self.tracker is not None:
            try:
                self.tracker.on_passage_end(self, outcome)
            except Exception:
                log.exception("counting a request failed; please report this")


class UncheckedPassage(Struct, eq=False, gc=False):
    """The same if no step decides: it is sent once its server is known, and those who observe learn of its end. There
    is one for each call if calls are only counted or audited, so it does as little as possible."""

    observer: Observer | None
    tracker: Tracker | None
    # Who and what, without body and `_meta`: the same object for similar calls.
    origin: GuardedRequest
    body: Body
    meta: Raw | None
    arrived: float
    # None if it was sent as it arrived.
    sent: float | None = None
    is_over: bool = False
    # As in `Passage`.
    is_waiting: bool = False
    reached: float | None = None
    failure: Failure = ""
    # The code of the server's JSON-RPC error, if that is the failure.
    failure_code: int | None = None
    # 0 until somebody asks for it (`call_id`).
    id: int = 0

    def end(self, kind: EndKind, *payload: Part) -> None:
        self.end_with(kind, payload)

    def end_with(self, kind: EndKind, payload: tuple[Part, ...], is_success: bool = False) -> None:
        """As that of a `Passage`."""
        if self.is_over:
            return
        self.is_over = True
        try:
            size = sum(map(len, payload))
            end = "tool_error" if kind == "result" and not is_success and tool_failed(payload, size) else kind
            ended = monotonic()
            if self.tracker is not None:
                self.tracker.on_unchecked_end(self, end, payload, size, ended)
            if self.observer is not None:
                self.observer.on_unchecked_end(self, end, payload, size, ended)
        except Exception:
            log.exception("a step around requests failed; please report this")


class CountedSession(Protocol):
    """The client of a request."""

    @property
    def peer(self) -> str:
        """Its address."""


class CountedCaller(Protocol):
    """Whom a request is from: the principal, and the number of the session."""

    @property
    def principal(self) -> str: ...

    @property
    def client(self) -> int: ...


class CountedServer(Protocol):
    """The server that a request is for."""

    @property
    def toolbox(self) -> str: ...

    @property
    def name(self) -> str: ...


class CountedTarget(Protocol):
    """What a request is for, and its params."""

    @property
    def entry(self) -> CountedServer: ...

    @property
    def item(self) -> str: ...

    @property
    def method(self) -> bytes:
        """Encoded as JSON."""

    @property
    def body(self) -> Body: ...


class CountedRoute(Protocol):
    """Where a request goes, and when it arrived."""

    @property
    def decision(self) -> CountedTarget | None: ...

    @property
    def arrived(self) -> float | None: ...


class CountedCall(Protocol):
    """A request that is only counted."""

    @property
    def route(self) -> CountedRoute: ...

    @property
    def method(self) -> str: ...

    @property
    def is_success(self) -> bool:
        """Whether it is known that its result does not say that the tool failed."""

    @property
    def client_info(self) -> bytes:
        """The `clientInfo` as JSON."""

    @property
    def session(self) -> CountedSession: ...

    @property
    def caller(self) -> CountedCaller: ...


class CountedPassage(Struct, eq=False, gc=False):
    """The same if requests are only counted, and this one waits, fails, is cancelled or watched: nothing is described
    before somebody looks."""

    tracker: Tracker
    entry: CountedServer
    method: str
    item: str
    body: Body
    caller: CountedCaller
    client_info: bytes
    peer: str
    meta: Raw | None
    arrived: float
    # As in `UncheckedPassage`.
    sent: float | None = None
    is_over: bool = False
    is_waiting: bool = False
    reached: float | None = None
    failure: Failure = ""
    failure_code: int | None = None
    id: int = 0
    # Whether it is known that its result does not say that the tool failed.
    is_success: bool = False

    @property
    def origin(self) -> GuardedRequest:
        return GuardedRequest(
            principal=self.caller.principal,
            client=self.client_info,
            session=max(self.caller.client, 0),
            method=self.method,
            toolbox=self.entry.toolbox,
            server=self.entry.name,
            item=self.item,
            body=b"",
            peer=self.peer,
        )

    def end(self, kind: EndKind, *payload: Part) -> None:
        self.end_with(kind, payload)

    def end_with(self, kind: EndKind, payload: tuple[Part, ...], is_success: bool = False) -> None:
        """As that of a `Passage`."""
        if not self.is_over:
            self.is_over, self.is_success = True, is_success
            try:
                self.tracker.on_counted_end(self, kind, payload)
            except Exception:
                log.exception("counting a request failed; please report this")


AnyPassage = Passage | UncheckedPassage | CountedPassage

# They count up from a random number of 48 bits, so that two processes with one audit hardly ever have the same ones,
# and JavaScript can represent them.
new_call_id: Final = count(int.from_bytes(os.urandom(6), "big") + 1).__next__


def call_id(passage: AnyPassage) -> int:
    """The number that a request has in the audit, in its trace, on the page and in logs; given to it with the first of
    these."""
    if not passage.id:
        passage.id = new_call_id()
    return passage.id


async def _asked(question: Ask, asker: UserAsker | None) -> Denial | Pass:
    if asker is None or not asker.can_ask_user():
        return question.cannot_ask()
    if question.elsewhere is None:
        return question.answered(await asker.ask_user(question.params))
    asked = asyncio.ensure_future(asker.ask_user(question.params))
    decided = asyncio.ensure_future(question.elsewhere())
    try:
        await asyncio.wait((asked, decided), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done() and (verdict := decided.result()) is not None:
            return verdict
        return question.answered(await asked)
    finally:
        # The client is told that its answer is no longer needed.
        for each in (asked, decided):
            each.cancel()
        await asyncio.gather(asked, decided, return_exceptions=True)


def _failed() -> Denial:
    """Fail closed: what could not be checked is not sent."""
    log.exception("a step around requests failed; please report this")
    return Denial(INTERNAL_ERROR, STEP_FAILED)
