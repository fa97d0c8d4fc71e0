"""`ask`: calls that pass only after the user has approved them.

An approval is for exactly one call (its server, its item, its parameters and `_meta`, byte by byte) of one principal:
once, for the rest of its session, or for a time. So is a denial. Both are kept in memory only, so that a restart
revokes them, unless other instances know of them (`shared_approvals`).
Owns what was approved and what waits; how a client is asked is up to the request (`steps.Ask`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from hashlib import sha256
from os import urandom
from typing import Any, Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from mcp_workbench.engine.protocol.sealed_state import RETRY_MEMBERS
from mcp_workbench.engine.steps import (
    APPROVED,
    LOCAL_PRINCIPAL,
    Ask,
    Denial,
    EventRecorder,
    GuardedRequest,
    Outcome,
    Pass,
    arguments_digest,
    origin_of,
)
from mcp_workbench.team.policy.approval_question import Duration, chosen, is_cut, question, shown
from mcp_workbench.team.policy.rules_in_force import COMPLETION, FORBIDDEN, TASK_METHODS, Policy, denied

# How long "for an hour" is. Long enough for a piece of work, short enough for the user to remember.
APPROVAL_LIFETIME: Final = 3600.0
# How long a call waits for `mcp-workbench team approve`, and how long after that it may be made.
WAITING_CALL_LIFETIME: Final = 600.0
# Calls that wait, in total and per principal: an agent that tries variations must not crowd out the calls of others.
MAX_WAITING_CALLS: Final = 200
MAX_WAITING_CALLS_PER_PRINCIPAL: Final = 20
# Approvals that are kept; beyond this, the oldest are dropped, and the user is asked again.
MAX_APPROVALS: Final = 10_000
# Retries of one call that are expected at once: a client may have made it several times concurrently.
MAX_APPROVED_RETRIES: Final = 20
# Calls whose last approved parameters are kept, to show what is different this time.
MAX_REMEMBERED_CALLS: Final = 1000
MAX_REMEMBERED_PARAMS_BYTES: Final = 16 * 1024
# Calls of which is kept who decided about them, for whoever decides second.
MAX_DECIDED: Final = 1000
# A waiting call up to this size is kept in full, for `mcp-workbench team approve --show`.
MAX_WAITING_CALL_BYTES: Final = 256 * 1024
_NO_STATE: Final = Raw(b"null")
# The part of `_meta` that belongs to the protocol and to tracing: it does not affect what a call does.
_PROTOCOL_PREFIX: Final = "io.modelcontextprotocol/"
_FOR_TRANSPORT: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
# Known clients (Claude Code, VS Code, Codex) number their calls and turns with these, so that no two calls are equal.
_CALL_NUMBERS: Final = frozenset(
    {"claudecode/toolUseId", "vscode.requestId", "callId", "itemId", "x-codex-turn-metadata"}
)


class GrantedApproval(Struct):
    expires: float
    # Valid in this session of the client only; None: in any.
    session: int | None = None
    is_once: bool = False


class WaitingCall(Struct, frozen=True):
    """A call that the user can decide about outside of its client."""

    id: str
    principal: str
    place: str
    arguments: str
    digest: str
    arguments_digest: str
    expires: float
    # What will be sent; None if it is too large to be kept.
    whole: bytes | None = None
    # Its parameters; None if they are too large to be compared with those of the next call.
    params: bytes | None = None
    # Who made it, for what, and why it waits.
    request: GuardedRequest | None = None
    rule: str = ""
    # When it began to wait: by the wall clock, and by the clock of `expires`.
    at: float = 0.0
    began: float = 0.0
    # Of clients that hold the call: done with the decision.
    holders: list[asyncio.Future[None]] = []


class DecidedCall(Struct, frozen=True):
    """What became of a call that waited."""

    is_denied: bool
    by: str

    def __str__(self) -> str:
        return f"{'denied' if self.is_denied else 'approved'} by {self.by or 'the user'}"


class _Interim(Struct):
    resultType: str = ""
    # Not optional: in a union, msgspec does not accept everything for `Raw` that it accepts for `Raw` alone.
    requestState: Raw = _NO_STATE


_decode_interim: Final = Decoder(_Interim).decode


class ApprovalsElsewhere(Protocol):
    """Other instances, which learn what happens here."""

    def on_waiting(self, waiting: WaitingCall) -> None: ...

    def on_waited(self, id: str) -> None: ...

    def on_granted(self, principal: str, digest: str, seconds: float) -> None: ...

    def on_denied(self, principal: str, digest: str, by: str) -> None: ...


class Approvals:
    """What was approved, and what waits for approval. Outlives the rules that required it."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        on_waiting: Callable[[], None] = lambda: None,
        in_force: Callable[[], Policy | None] = lambda: None,
        is_blind: Callable[[], bool] = lambda: False,
        elsewhere: ApprovalsElsewhere | None = None,
        ends_with_command: bool = False,
    ) -> None:
        """`on_waiting` is called when a call begins to wait: from then on the user may approve it. `in_force`: the
        current policy, as a call may be held for minutes, and the policy may have changed since. `is_blind`: nobody may
        approve now, because other instances cannot be asked. `elsewhere`: None if there are none. `ends_with_command`:
        a call that is denied now can never be made again here."""
        self.is_blind = is_blind
        self.ends_with_command = ends_with_command
        self._elsewhere = elsewhere
        self.now = now
        self._on_waiting = on_waiting
        self.in_force = in_force
        # By principal and digest.
        self._granted: OrderedDict[tuple[str, str], GrantedApproval] = OrderedDict()
        # By principal and digest: when they expire, and their `requestState`. These calls passed, but their server
        # asked for input; their retries are the same calls.
        self._retries: OrderedDict[tuple[str, str], list[tuple[float, str]]] = OrderedDict()
        self._waiting: OrderedDict[str, WaitingCall] = OrderedDict()
        # By principal and digest: until when, and by whom.
        self._denied: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()
        self._decided: OrderedDict[str, DecidedCall] = OrderedDict()
        # By principal and item: the parameters that were approved last.
        self._last: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def grant(self, principal: str, digest: str, grant: GrantedApproval) -> None:
        self._granted[principal, digest] = grant
        self._granted.move_to_end((principal, digest))
        if len(self._granted) > MAX_APPROVALS:
            self._granted.popitem(last=False)
        # One for a single call, or for a session, is of no use at another instance.
        if self._elsewhere is not None and not grant.is_once and grant.session is None:
            self._elsewhere.on_granted(principal, digest, grant.expires - self.now())

    def take_over(self, principal: str, digest: str, seconds: float, denied_by: str | None) -> None:
        """Another instance has approved or denied this call, for so long."""
        until = self.now() + seconds
        if denied_by is not None:
            self._denied[principal, digest] = until, denied_by
        else:
            self._granted[principal, digest] = GrantedApproval(until)
        for table in (self._denied, self._granted):
            if len(table) > MAX_APPROVALS:
                table.popitem(last=False)

    def lasting(self) -> list[tuple[str, str, float, str | None]]:
        """Approvals for a time and denials that still count: the principal, the digest, for how many seconds, and who
        has denied it."""
        now = self.now()
        granted = [
            (*key, grant.expires - now, None)
            for key, grant in self._granted.items()
            if not grant.is_once and grant.session is None and grant.expires > now
        ]
        return [*granted, *((*key, until - now, by) for key, (until, by) in self._denied.items() if until > now)]

    def grant_retry(self, principal: str, digest: str, state: str = "") -> None:
        """The server requires input before it does what was approved: expect the client to retry with it, and with the
        state that the server returned."""
        of_call = self._retries.setdefault((principal, digest), [])
        of_call.append((self.now() + WAITING_CALL_LIFETIME, state))
        del of_call[:-MAX_APPROVED_RETRIES]
        self._retries.move_to_end((principal, digest))
        if len(self._retries) > MAX_APPROVALS:
            self._retries.popitem(last=False)

    def take_retry(self, principal: str, digest: str, state: str | None = None) -> bool:
        """Whether a retry of this call is expected; if so, one fewer is afterwards. None as the state means that it was
        ours, opened before this point: its seal binds it to the call."""
        now = self.now()
        of_call = [each for each in self._retries.pop((principal, digest), ()) if each[0] > now]
        awaited = next((each for each in reversed(of_call) if state in (None, each[1])), None)
        if awaited is not None:
            of_call.remove(awaited)
        if of_call:
            self._retries[principal, digest] = of_call
        return awaited is not None

    def take(self, principal: str, session: int, digest: str) -> bool:
        """Whether exactly this call was approved. An approval for one call is used up by this."""
        grant = self._granted.get((principal, digest))
        if grant is None:
            return False
        if grant.expires <= self.now():
            del self._granted[principal, digest]
            return False
        if grant.session not in (None, session):
            return False
        if grant.is_once:
            del self._granted[principal, digest]
        return True

    def remember(self, principal: str, place: str, params: bytes) -> None:
        """Keep the approved parameters for the next question about the same item."""
        if len(params) <= MAX_REMEMBERED_PARAMS_BYTES:
            self._last[principal, place] = params
            self._last.move_to_end((principal, place))
            if len(self._last) > MAX_REMEMBERED_CALLS:
                self._last.popitem(last=False)

    def last(self, principal: str, place: str) -> bytes | None:
        return self._last.get((principal, place))

    def forget(self, principals: Collection[str]) -> None:
        """Drop everything of these, in place: whoever has the name next is somebody else."""
        by_principal: tuple[OrderedDict[tuple[str, str], Any], ...] = (
            self._granted,
            self._retries,
            self._last,
            self._denied,
        )
        for table in by_principal:
            for key in [key for key in table if key[0] in principals]:
                del table[key]
        for id in [id for id, waiting in self._waiting.items() if waiting.principal in principals]:
            self._end_waiting(id)

    # ── calls that the user can decide about outside of their client ──

    def wait(
        self,
        principal: str,
        place: str,
        params: bytes,
        digest: str,
        meta: bytes | None = None,
        *,
        request: GuardedRequest | None = None,
        rule: str = "",
    ) -> str | None:
        """The id by which this call can be approved; None if too many are waiting."""
        self._forget_expired()
        for waiting in self._waiting.values():
            if waiting.principal == principal and waiting.digest == digest:
                return waiting.id
        of_one = sum(waiting.principal == principal for waiting in self._waiting.values())
        if len(self._waiting) >= MAX_WAITING_CALLS or of_one >= MAX_WAITING_CALLS_PER_PRINCIPAL:
            return None
        id = urandom(5).hex()
        expires = self.now() + WAITING_CALL_LIFETIME
        described = shown(params) if meta is None else f"{shown(params)} with `_meta` {shown(meta)}"
        whole = params if meta is None else params + b" with `_meta` " + meta
        kept = whole if len(whole) <= MAX_WAITING_CALL_BYTES else None
        compared = params if len(params) <= MAX_REMEMBERED_PARAMS_BYTES else None
        self._waiting[id] = WaitingCall(
            id,
            principal,
            place,
            described,
            digest,
            arguments_digest(params),
            expires,
            kept,
            compared,
            request,
            rule,
            time.time(),
            expires - WAITING_CALL_LIFETIME,
            [],
        )
        self._on_waiting()
        if self._elsewhere is not None:
            self._elsewhere.on_waiting(self._waiting[id])
        return id

    def _end_waiting(self, id: str) -> WaitingCall | None:
        waiting = self._waiting.pop(id, None)
        if waiting is not None and self._elsewhere is not None:
            self._elsewhere.on_waited(id)
        return waiting

    async def hold(self, id: str) -> None:
        """Wait until the user has decided about this call outside of its client. The caller bounds it."""
        waiting = self._waiting[id]
        decided = asyncio.get_running_loop().create_future()
        waiting.holders.append(decided)
        try:
            await decided
        finally:
            waiting.holders.remove(decided)

    def approve(self, id: str, seconds: float | None = None, by: str = "") -> WaitingCall | None:
        """Record the user's approval: once within a while, or for a time. None if no such call waits."""
        waiting = self._decide(id, DecidedCall(is_denied=False, by=by))
        if waiting is not None:
            expires = self.now() + (WAITING_CALL_LIFETIME if seconds is None else seconds)
            self.grant(waiting.principal, waiting.digest, GrantedApproval(expires, is_once=seconds is None))
            if waiting.params is not None:
                self.remember(waiting.principal, waiting.place, waiting.params)
        return waiting

    def deny(self, id: str, by: str) -> WaitingCall | None:
        """Record that the user denies it: the same call is refused for a while. None if no such call waits."""
        waiting = self._decide(id, DecidedCall(is_denied=True, by=by))
        if waiting is not None:
            self._denied[waiting.principal, waiting.digest] = (self.now() + WAITING_CALL_LIFETIME, by)
            if len(self._denied) > MAX_APPROVALS:
                self._denied.popitem(last=False)
            if self._elsewhere is not None:
                self._elsewhere.on_denied(waiting.principal, waiting.digest, by)
        return waiting

    def _decide(self, id: str, decided: DecidedCall) -> WaitingCall | None:
        self._forget_expired()
        waiting = self._end_waiting(id)
        if waiting is not None:
            self._decided[id] = decided
            if len(self._decided) > MAX_DECIDED:
                self._decided.popitem(last=False)
            for holder in waiting.holders:
                # They continue in the loop's next iteration, when what follows from the decision is known here. One
                # whose call was cancelled in this iteration is still among them.
                if not holder.done():
                    holder.set_result(None)
        return waiting

    def decided(self, id: str) -> DecidedCall | None:
        """What was decided about a call that no longer waits."""
        return self._decided.get(id)

    def denier(self, principal: str, digest: str) -> str | None:
        """Who has denied this call a short while ago; None if nobody has."""
        until, by = self._denied.get((principal, digest), (0.0, ""))
        if until > self.now():
            return by or "the user"
        self._denied.pop((principal, digest), None)
        return None

    def look_at(self, id: str) -> WaitingCall | None:
        """The call that waits under this id, without changing it."""
        self._forget_expired()
        return self._waiting.get(id)

    def settle(self, id: str, principal: str, digest: str) -> None:
        """The question about this call has been answered: an approval given elsewhere meanwhile no longer counts."""
        waiting = self._waiting.get(id)
        if waiting is not None and not waiting.holders:
            self._end_waiting(id)
        grant = self._granted.get((principal, digest))
        if grant is not None and grant.is_once:
            del self._granted[principal, digest]

    def waiting(self) -> list[dict[str, object]]:
        """For `mcp-workbench status`."""
        self._forget_expired()
        now = self.now()
        return [
            {
                "id": each.id,
                "principal": each.principal or LOCAL_PRINCIPAL,
                "call": each.place,
                "arguments": each.arguments,
                "secondsLeft": round(each.expires - now),
            }
            for each in self._waiting.values()
        ]

    def waiting_calls(self) -> list[WaitingCall]:
        """Oldest first."""
        self._forget_expired()
        return list(self._waiting.values())

    def _forget_expired(self) -> None:
        now = self.now()
        for id in [id for id, waiting in self._waiting.items() if waiting.expires <= now]:
            self._end_waiting(id)


class ApprovalStep:
    """Holds calls that the policy requires to ask about until the user has answered (`Step`)."""

    def __init__(self, policy: Policy, approvals: Approvals, record: EventRecorder) -> None:
        self._policy = policy
        self._approvals = approvals
        self._record = record
        # Approved requests in progress, with the digest that their retries will have.
        self._passed: dict[int, str] = {}

    def check(self, request: GuardedRequest) -> Pass | Ask | Denial | None:
        if request.method.startswith(TASK_METHODS) or not request.toolbox:
            # A task was approved as the call that created it.
            return None
        decision = self._policy.decide(request)
        if decision.then != "ask":
            return None
        if request.method == COMPLETION:
            # Clients request completions with every keystroke: asking each time would be a nuisance.
            text = f"`{_place(request)}` needs the user's approval, so nothing is completed for it"
            return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)
        if self._approvals.is_blind():
            text = f"`{_place(request)}` needs the user's approval, and the cluster's state is away; try again later"
            return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)
        members = _members(request)
        digest = digest_of(request, members)
        is_retry = request.is_retry or not members.keys().isdisjoint(RETRY_MEMBERS)
        state = None
        if "requestState" in members or not request.is_retry:
            # Servers need not send one.
            state = _state_hash(members.get("requestState", _NO_STATE))
        if is_retry and self._approvals.take_retry(request.principal, _first_digest(request, members), state):
            return self._approved(request)
        if (refused := self._denial(request, digest, decision.rule)) is not None:
            return refused
        if self._approvals.take(request.principal, request.session, digest):
            return self._approved(request)
        self._record("question", **origin_of(request), rule=decision.rule, digest=arguments_digest(request.params))
        meta = _meta_to_judge(request)
        id: str | None = None
        if is_cut(request.params, meta):
            id = self._wait(request, digest, decision.rule)
        asked = question(
            _place(request),
            request.params,
            self._approvals.last(request.principal, _place(request)),
            has_session=request.session > 0,
            meta=meta,
            id=id,
        )

        def answered(answer: Raw | bytes | None) -> Pass | Denial:
            if id is not None:
                self._approvals.settle(id, request.principal, digest)
            # A denial elsewhere that came first counts, even if the answer arrives before the call has ended with it.
            refused = self._denial(request, digest, decision.rule)
            return refused or self._answered(request, digest, decision.rule, answer)

        return Ask(
            Raw(encode(asked)),
            answered,
            lambda: self._refer(request, digest, decision.rule),
            lambda: self._decided_elsewhere(request, digest, decision.rule),
        )

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        digest = self._passed.pop(id(request), None)
        interim = None if digest is None or outcome.kind != "result" else _interim(outcome)
        if digest is not None and interim is not None:
            self._approvals.grant_retry(request.principal, digest, _state_hash(interim.requestState))

    def _answered(self, request: GuardedRequest, digest: str, rule: str, answer: Raw | bytes | None) -> Pass | Denial:
        place = _place(request)
        duration = None if answer is None else chosen(answer, has_session=request.session > 0)
        judged = (self._approvals.in_force() or self._policy).decide(request)
        is_forbidden = judged.then in ("deny", "hide")
        rule = judged.rule if is_forbidden else rule
        decision = "denied" if duration is None or is_forbidden else "passed"
        # Whoever uses the client has answered.
        who, what = request.principal or LOCAL_PRINCIPAL, arguments_digest(request.params)
        origin = origin_of(request)
        self._record("approval", **origin, rule=rule, decision=decision, reason=duration, by=who, digest=what)
        if is_forbidden:
            return denied(request, judged)
        if duration is None:
            return Denial(FORBIDDEN, f"the user did not approve `{place}`", {"rule": rule}, rule=rule)
        if duration != "once":
            self._approvals.grant(request.principal, digest, self._lasting(duration, request.session))
        self._approvals.remember(request.principal, place, request.params)
        return self._approved(request)

    async def _decided_elsewhere(self, request: GuardedRequest, digest: str, rule: str) -> Pass | Denial | None:
        """The user's decision outside of the client, while it asks as well; None if there can be none."""
        while (id := self._wait(request, digest, rule)) is not None:
            try:
                await self._approvals.hold(id)
            except asyncio.CancelledError:
                self._approvals.settle(id, request.principal, digest)
                raise
            refused = self._denial(request, digest, rule)
            if refused is not None:
                return refused
            # Of equal calls that are held side by side, an approval for once is for the first.
            if self._approvals.take(request.principal, request.session, digest):
                judged = (self._approvals.in_force() or self._policy).decide(request)
                return denied(request, judged) if judged.then in ("deny", "hide") else self._approved(request)
        return None

    def _denial(self, request: GuardedRequest, digest: str, rule: str) -> Denial | None:
        who = self._approvals.denier(request.principal, digest)
        if who is None:
            return None
        text = f"`{_place(request)}` was denied by {who}: do not make this call again unless the user asks for it"
        return Denial(FORBIDDEN, text, {"rule": rule, "deniedBy": who}, rule=rule)

    def _wait(self, request: GuardedRequest, digest: str, rule: str) -> str | None:
        meta = _meta_to_judge(request)
        place = _place(request)
        return self._approvals.wait(request.principal, place, request.params, digest, meta, request=request, rule=rule)

    def _lasting(self, duration: Duration, session: int) -> GrantedApproval:
        if duration == "session":
            return GrantedApproval(float("inf"), session=session)
        return GrantedApproval(self._approvals.now() + APPROVAL_LIFETIME)

    def _approved(self, request: GuardedRequest) -> Pass:
        self._passed[id(request)] = _first_digest(request, _members(request))
        return Pass(APPROVED)

    def _refer(self, request: GuardedRequest, digest: str, rule: str) -> Denial:
        """Deny a call whose client cannot ask, and explain how the user can approve it."""
        place = _place(request)
        if self._approvals.ends_with_command:
            text = (
                f"`{place}` needs the user's approval, and nobody can be asked for it here: make the call at a "
                "terminal, or through a running workbench (`mcp-workbench up`)"
            )
            return Denial(FORBIDDEN, text, {"rule": rule}, rule=rule)
        waiting = self._wait(request, digest, rule)
        if waiting is None:
            text = f"`{place}` needs the user's approval, and too many calls are waiting for one"
            return Denial(FORBIDDEN, text, {"rule": rule}, rule=rule)
        text = (
            f"`{place}` needs the user's approval, and this client cannot ask for it: have the user run "
            f"`mcp-workbench team approve {waiting}` within {WAITING_CALL_LIFETIME / 60:.0f} minutes, then make the "
            "same call again"
        )
        return Denial(FORBIDDEN, text, {"rule": rule, "approval": waiting}, rule=rule, needs_approval=True)


def digest_of(request: GuardedRequest, members: dict[str, Raw] | None = None) -> str:
    """Identifies exactly this call."""
    found = _members(request) if members is None else members
    digest = sha256()
    for part in (request.method, request.toolbox, request.server, request.item):
        digest.update(encode(part))
    for name in sorted(found):
        digest.update(encode(name) + b":" + bytes(found[name]) + b"\n")
    digest.update(b"_meta:" + _bound_meta(request))
    return digest.hexdigest()


def _first_digest(request: GuardedRequest, members: dict[str, Raw]) -> str:
    """Identifies this call and all of its retries: without what the client adds to those."""
    return digest_of(request, {name: each for name, each in members.items() if name not in RETRY_MEMBERS})


def _members(request: GuardedRequest) -> dict[str, Raw]:
    try:
        return decode(request.params, type=dict[str, Raw])
    except (DecodeError, ValidationError, RecursionError):
        return {"": Raw(encode(request.params.hex()))}


def _meta_to_judge(request: GuardedRequest) -> bytes | None:
    """The `_meta` that a server may act upon: without what the protocol and tracing keep in it."""
    if request.meta is None:
        return None
    members = _named_once(bytes(request.meta))
    if members is None:
        return bytes(request.meta)
    kept = {
        name: each for name, each in members if not name.startswith(_PROTOCOL_PREFIX) and name not in _FOR_TRANSPORT
    }
    return encode(kept) if kept else None


def _bound_meta(request: GuardedRequest) -> bytes:
    """The part of it that must be the same in a call that was approved before."""
    meta = _meta_to_judge(request)
    members = None if meta is None else _named_once(meta)
    if members is None:
        return meta or b""
    bound = {name: each for name, each in sorted(members) if name not in _CALL_NUMBERS}
    return encode(bound) if bound else b""


def _named_once(written: bytes) -> list[tuple[str, Raw]] | None:
    """The members of an object; None for anything else, and if a name is repeated: parsers disagree about those."""
    try:
        members = decode(written, type=dict[str, Raw])
        names = [name for name, _ in json.loads(written, object_pairs_hook=list)]
    except (ValueError, TypeError, RecursionError):
        return None
    return list(members.items()) if len(members) == len(names) else None


def _place(request: GuardedRequest) -> str:
    return f"{request.toolbox}/{request.server}/{request.item}"[:500]


def _interim(outcome: Outcome) -> _Interim | None:
    """The server's request for input; None if it has done what was asked."""
    try:
        found = _decode_interim(b"".join(outcome.payload))
    except (DecodeError, ValidationError, RecursionError):
        return None
    return found if found.resultType == "input_required" else None


def _state_hash(state: Raw) -> str:
    """A hash, because states may be of any size, independent of how the JSON is written."""
    return sha256(encode(decode(state))).hexdigest()
