"""Steps around a request to a server: each lets it pass, answers it, refuses it or holds it, and learns how it ended.

Owns that steps are asked one by one, the bound on holding, and that each step that was asked learns of exactly one end.
Refuses to know what a step decides by, how the client is answered and how the server is reached.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, Part, read_error

log = logging.getLogger(__name__)

# A step that holds a request usually waits for a person, and people need minutes, not hours: as long as the question of
# a server may stay open. Whatever has not been decided by then is refused.
HELD_SECONDS: Final = 900.0
UNDECIDED: Final = f"no decision was made about this request within {HELD_SECONDS:g} s"
STEP_FAILED: Final = "a check of this request failed, so it was not sent; the log of the workbench says why"

# The largest answer that is searched whole for a failure of the tool itself; of larger ones, this much at each end.
MOST_SEARCHED: Final = 256 * 1024
_EDGE: Final = 4096
# Over stdio there is one user, whoever started us, whose principal is the empty string. Rules, reports and the audit
# call it this.
LOCAL: Final = "local"

EndKind = Literal["result", "error", "cancelled"]


class Subject(Struct, frozen=True, kw_only=True, gc=False):
    """Who wants to do what with which item of which server. A list asks about its items with the same value."""

    principal: str
    # As in revision 2025-11-25: a subscription is `resources/subscribe`, however the client asked for it.
    method: str
    # Empty where every server is concerned that this client uses: its log level, and what it notifies servers of.
    toolbox: str = ""
    server: str = ""
    # What the server itself calls it: a tool, a prompt, a URI, a task.
    item: str = ""


class GuardedRequest(Subject, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """A client's request or notification, before it is sent to a server."""

    # How the client introduced itself (`clientInfo`), as JSON.
    client: bytes
    # Which of the clients that keep a session; 0 without one.
    session: int
    # The params without `_meta`, as JSON without the closing brace.
    body: bytes
    meta: Raw | None = None
    # Where it came from: an address, `stdio`, `process 123`. Empty where that is unknown.
    peer: str = ""
    # The client comes back with a `requestState`, of its server or of ours. What is ours is not in the body.
    is_retry: bool = False
    # What is known of whoever makes it, as they proved it with this very request. A step says what that is.
    identity: object = None

    @property
    def params(self) -> bytes:
        """What the server will get, as JSON."""
        return self.body + b"}"


class Substitute(Struct, frozen=True):
    """Answer with this result, written as JSON, instead of asking the server."""

    result: bytes


class Denial(Struct, frozen=True):
    """Answer with this JSON-RPC error; an agent gets it as a result that it can read."""

    code: int
    message: str
    data: object = None
    # What decided so, for the audit: `policy[3]`, `lock`.
    rule: str = ""


class Pass(Struct, frozen=True):
    """Let the request pass, and tell the audit what decided so. None does the same where there is nothing to tell."""

    rule: str = ""
    # The request may take so many seconds; then it is stopped, and answered with this.
    within: float | None = None
    late: Denial | None = None


class Ask(Struct, frozen=True):
    """Hold the request and ask the user of the client first, by an elicitation of ours with these params."""

    params: Raw
    # Decides by what the client answered; by None where it did not answer.
    answered: Callable[[Raw | bytes | None], Denial | Pass]
    # Decides where the client cannot be asked.
    cannot_ask: Callable[[], Denial]


# None lets the request pass.
Verdict = Substitute | Denial | Pass | None
StepsDecision = Literal["passed", "answered", "denied", "undecided"]


class _ToolOutcome(Struct):
    isError: bool = False


_read_result: Final = Decoder(_ToolOutcome).decode
_find_failure: Final = re.compile(rb'"isError"\s*:\s*true').search


class Outcome(Struct, frozen=True, gc=False):
    """How a request ended. Times are those of `time.monotonic`, in seconds."""

    kind: EndKind
    # What the client got, in parts; nothing for a request that was cancelled or needs no answer.
    payload: tuple[Part, ...]
    arrived: float
    # None where a step answered or refused it, or it was cancelled before: no server has seen it.
    sent: float | None
    ended: float
    # What the steps decided, and the rules that they named, in their order. Undecided: it ended while it was held.
    decision: StepsDecision = "passed"
    rules: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        total = 0
        for part in self.payload:
            total += len(part)
        return total

    @property
    def code(self) -> int | None:
        """The code of a JSON-RPC error."""
        return read_error(b"".join(self.payload)).code if self.kind == "error" else None


def tool_failed(payload: Sequence[Part], size: int) -> bool:
    """Whether a result says that the tool itself failed. Of a large one only the ends are looked at: servers write it
    first or last, and no call is to wait for a search through megabytes."""
    if size > MOST_SEARCHED:
        return _find_failure(payload[0][:_EDGE]) is not None or _find_failure(payload[-1][-_EDGE:]) is not None
    whole = b"".join(payload)
    # Looked for first, because nearly none has it. `find`: `in` would try whether what is looked for is a number.
    if whole.find(b'"isError"') < 0:
        return False
    try:
        return _read_result(whole).isError
    except (DecodeError, ValidationError):
        return False


class UserAsker(Protocol):
    """Whose request it is, as far as a step may turn to it."""

    def can_ask_user(self) -> bool:
        """Whether the client can show its user a question of ours about this request."""

    def ask_user(self, params: Raw) -> Awaitable[Raw | bytes | None]:
        """Put an `elicitation/create` of ours to the client. Its result; None where it did not answer."""


class Step(Protocol):
    """One step. Both methods are called on the event loop: what takes long is held, or left to a thread."""

    def check(self, request: GuardedRequest) -> Verdict | Ask | Awaitable[Verdict]:
        """Decide. An awaitable or a question holds the request, up to `HELD_SECONDS`. Should this raise, the request is
        refused."""

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        """The request has ended. Called once for every request that `check` was asked about."""


class DefinitionStep(Step, Protocol):
    """A step that judges by what a server says of its items, where `judges_definitions` holds. What is only remembered
    of a server is not enough then: it is asked first, and the step once more."""

    judges_definitions: bool

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        """What refuses the request by what its server says now. `rules`: those by which it was let pass before."""


@runtime_checkable
class Observer(Step, Protocol):
    """A step that looks and never decides. It comes before all others, and learns also of what a face keeps from every
    server."""

    # Whether requests may have to wait for it. Otherwise it is not asked, and costs a call next to nothing.
    is_asked: bool

    def on_unchecked_end(self, passage: UncheckedPassage, kind: EndKind, payload: tuple[Part, ...]) -> None:
        """The same as `on_end`, for a request that nobody had to be asked about, and for as little as can be."""


@runtime_checkable
class IdentifyingStep(Protocol):
    """A step that knows more of callers than their names. What it knows may be another thing a moment later: one user
    may have several tokens. So it is kept for requests that have to wait."""

    def identify(self, principal: str) -> object:
        """What is known of whoever makes the request that has just come."""

    def recall(self, identity: object) -> None:
        """A request goes on that had to wait: from now on this is known of its principal, as when it came."""


@runtime_checkable
class HidingStep(Protocol):
    """A step that knows what is hidden from whom."""

    def hiding_rule(self, subject: Subject) -> str:
        """The rule that hides it, for the audit alone; empty where none does."""


# What happens beside requests, and is recorded too: somebody proved or failed to prove who they are (`authentication`),
# signed in to a server, was asked something, or approved a call; a definition or the configuration has changed.
EventKind = Literal["authentication", "sign_in", "question", "approval", "definition", "configuration"]


class EventRecorder(Protocol):
    """Writes an event to the audit, where there is one (`Gateway.record`): never waits, never raises.

    Fields have the names that the lines of calls have, as far as they fit: `principal`, `peer`, `client` (as the client
    introduced itself, JSON), `toolbox`, `server`, `item`, `decision` (`passed`, `denied` …), `rule`, `reason`. Secrets
    in them are replaced.
    """

    def __call__(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None: ...


def origin_of(request: GuardedRequest) -> dict[str, str | int]:
    """Who makes a request, from where, and what for, as an event about it says so (`EventRecorder`)."""
    return {
        "principal": request.principal or LOCAL,
        "peer": request.peer,
        "client": request.client.decode(errors="replace"),
        "session": request.session,
        "toolbox": request.toolbox,
        "server": request.server,
        "item": request.item,
    }


class Held:
    """A step holds the request: `Passage.decided` says what becomes of it."""


HELD: Final = Held()


class Passage(Struct, eq=False):
    """One request on its way through the steps and to its end. A `Struct` because there is one for each call, and it is
    made in C."""

    steps: tuple[Step, ...]
    request: GuardedRequest
    # They let everything pass at once: they are not asked, and learn of the end.
    observers: tuple[Step, ...] = ()
    # Not the event loop's clock: that of uvloop stands still between two looks at its descriptors.
    arrived: float = field(default_factory=monotonic)
    sent: float | None = None
    # How many steps were asked.
    asked: int = 0
    decision: StepsDecision = "undecided"
    rules: tuple[str, ...] = ()
    # What a step holds the request for, until somebody waits for it.
    held: Awaitable[Verdict] | Ask | None = None
    # What a step limits its time to, and what ends it then.
    limit: Pass | None = None
    timer: asyncio.TimerHandle | None = None
    is_over: bool = False

    @property
    def body(self) -> bytes:
        return self.request.body

    def check(self) -> Denial | Substitute | Held | None:
        """Ask the steps in order, up to the first that does not let it pass. None: it may be sent, and now is."""
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
        # A rule that lets somebody be asked has been noted when it did.
        if isinstance(verdict, Denial) and verdict.rule and verdict.rule not in self.rules:
            self.rules += (verdict.rule,)
        return verdict

    def check_again(self, steps: Iterable[DefinitionStep]) -> Denial | None:
        """Its server has listed again what it offers, or other steps are in force than those that let it pass: what
        refuses it now."""
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

    async def decided(self, asker: UserAsker | None = None) -> Denial | Substitute | None:
        """What becomes of a request that is held, by this step and those that follow."""
        while self.held is not None:
            held, self.held = self.held, None
            bound = asyncio.timeout(HELD_SECONDS)
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
        """It has ended; only the first end counts. The step that was asked last learns of it first."""
        if self.is_over:
            return
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        if asyncio.iscoroutine(self.held):
            # Cancelled before anybody came to wait for it.
            self.held.close()
        outcome = Outcome(kind, payload, self.arrived, self.sent, monotonic(), self.decision, self.rules)
        _report_end((*reversed(self.steps[: self.asked]), *self.observers), self.request, outcome)


class UncheckedPassage(Struct, eq=False, gc=False):
    """The same where nobody decides: it is sent once its server is known, and an observer learns of its end. There
    is one for each call wherever nothing but an audit is configured, so it does as little as can be."""

    observer: Observer
    # Whose and what, without body and `_meta`: the same object for calls that are alike.
    origin: GuardedRequest
    body: bytes
    meta: Raw | None
    arrived: float
    # None where it was sent as it arrived.
    sent: float | None = None
    is_over: bool = False

    def end(self, kind: EndKind, *payload: Part) -> None:
        """It has ended; only the first end counts."""
        if self.is_over:
            return
        self.is_over = True
        try:
            self.observer.on_unchecked_end(self, kind, payload)
        except Exception:
            log.exception("a step around requests failed; please report this")


def _report_end(steps: tuple[Step, ...], request: GuardedRequest, outcome: Outcome) -> None:
    for step in steps:
        try:
            step.on_end(request, outcome)
        except Exception:
            # The client gets its answer, and the other steps learn of it, all the same.
            log.exception("a step around requests failed; please report this")


async def _asked(question: Ask, asker: UserAsker | None) -> Denial | Pass:
    if asker is None or not asker.can_ask_user():
        return question.cannot_ask()
    return question.answered(await asker.ask_user(question.params))


def _failed() -> Denial:
    """Closed rather than open: what could not be checked is not sent."""
    log.exception("a step around requests failed; please report this")
    return Denial(INTERNAL_ERROR, STEP_FAILED)
