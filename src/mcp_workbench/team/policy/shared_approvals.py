"""Approvals across instances: calls that wait on another one can be seen and decided here, and what was decided for a
time counts on all.

A decision travels to the instance where the call waits, which records it and replies; nobody else may decide. Approvals
for a single call or a session stay there. Owns what waits elsewhere; what waits here is `approval`'s.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode

from mcp_workbench.engine.lasting_state import APPROVAL, WAITING, LastingState
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.team.policy.approval import MAX_DECIDED, WAITING_CALL_LIFETIME, Approvals, WaitingCall
from mcp_workbench.team.policy.approval_socket import ApprovalReply, ApprovalRequest

# For the reply of the instance where a call waits. Whoever asks waits for two seconds (`approval_socket`).
DECISION_TIMEOUT: Final = 1.5
UNANSWERED: Final = (
    "the instance where this call waits does not answer: it has ended, or the cluster's state is away; have the client "
    "make the call again"
)
_GRANTED: Final = "approval"
_DECIDE: Final = "decide"
_DECIDED: Final = "decided"


class CallElsewhere(Struct, rename="camel"):
    """A call that waits at another instance, as people have to see it."""

    id: str
    instance: str
    host: str
    principal: str
    place: str
    toolbox: str
    server: str
    item: str
    client: bytes
    arguments: str
    rule: str
    # By the wall clock: since when and until when it waits.
    at: float
    until: float
    # None if it is too large to be left for others.
    whole: bytes | None = None


class _LeftApproval(Struct, rename="camel"):
    # By the wall clock.
    until: float
    # Of a denial: who has denied it.
    denied_by: str | None = None


class _ToldApproval(_LeftApproval):
    principal: str = ""
    # Whom that name stood for: a key may have been revoked and created again since.
    holder: str = ""
    digest: str = ""


class _ToldDecision(Struct, rename="camel"):
    wanted: ApprovalRequest
    by: str
    peer: str
    # Tells it from other decisions about the same call.
    key: str


class _ToldReply(Struct):
    id: str
    reply: ApprovalReply
    key: str
    # What was decided about the call, and by whom, for all others who want to decide.
    outcome: str


_decode_call: Final = Decoder(CallElsewhere).decode
_decode_left: Final = Decoder(_LeftApproval).decode
_decode_told: Final = Decoder(_ToldApproval).decode
_decode_decision: Final = Decoder(_ToldDecision).decode
_decode_reply: Final = Decoder(_ToldReply).decode


class SharedApprovals:
    """For one `Approvals` (`ApprovalsElsewhere`)."""

    def __init__(
        self,
        state: LastingState,
        decide: Callable[[ApprovalRequest, str, str], ApprovalReply],
        on_waiting: Callable[[], None],
        host: str | None = None,
    ) -> None:
        """`decide` decides about calls that wait here, `on_waiting` is called while some wait elsewhere."""
        self._state = state
        self._decide = decide
        self._on_waiting = on_waiting
        self._host = host or socket.gethostname()
        self.approvals: Approvals | None = None
        # What waits here, as it was left; and what waits elsewhere. By id.
        self._left: dict[str, bytes] = {}
        self._elsewhere: dict[str, CallElsewhere] = {}
        # What became of calls elsewhere; and who waits for a reply, by the key of their decision.
        self._decided: OrderedDict[str, str] = OrderedDict()
        self._replies: dict[str, asyncio.Future[ApprovalReply]] = {}

    def serve(self, approvals: Approvals) -> None:
        """Share these from now on."""
        self.approvals = approvals
        self._state.follow(WAITING, self._on_calls)
        self._state.on_told(_GRANTED, self._on_told_approval)
        self._state.on_told(_DECIDE, self._on_told_decision)
        self._state.on_told(_DECIDED, self._on_told_reply)
        self._state.on_emptied(self._leave_again)

    # ── what happens here (`ApprovalsElsewhere`) ──

    def on_waiting(self, waiting: WaitingCall) -> None:
        request = waiting.request
        left = CallElsewhere(
            waiting.id,
            self._state.instance,
            self._host,
            waiting.principal,
            waiting.place,
            "" if request is None else request.toolbox,
            "" if request is None else request.server,
            waiting.place if request is None else request.item,
            b"" if request is None else request.client,
            waiting.arguments,
            waiting.rule,
            waiting.at,
            waiting.at + WAITING_CALL_LIFETIME,
            waiting.whole,
        )
        written = encode(left)
        if len(written) > WAITING.max_bytes:
            left.whole = None
            written = encode(left)
        self._left[waiting.id] = written
        self._state.keep(WAITING, "", waiting.id, written)

    def on_waited(self, id: str) -> None:
        if self._left.pop(id, None) is not None:
            self._state.drop(WAITING, "", id)

    def on_granted(self, principal: str, digest: str, seconds: float) -> None:
        self._leave(principal, digest, _LeftApproval(time.time() + seconds))

    def on_denied(self, principal: str, digest: str, by: str) -> None:
        self._leave(principal, digest, _LeftApproval(time.time() + WAITING_CALL_LIFETIME, by))

    def _leave(self, principal: str, digest: str, left: _LeftApproval, *, is_new: bool = True) -> None:
        self._state.keep(APPROVAL, principal, digest, encode(left))
        if is_new:
            # For other instances that serve the same user now. One that they move to reads what was left.
            told = _ToldApproval(left.until, left.denied_by, principal, self._state.holder_of(principal), digest)
            self._state.tell(_GRANTED, encode(told))

    def _leave_again(self) -> None:
        assert self.approvals is not None
        for principal, digest, seconds, denied_by in self.approvals.lasting():
            self._leave(principal, digest, _LeftApproval(time.time() + seconds, denied_by), is_new=False)

    # ── what happened elsewhere ──

    def arrive(self, principal: str, left: dict[str, bytes]) -> None:
        """A user comes from another instance, which has left these approvals, by digest."""
        for digest, value in left.items():
            try:
                self._take_over(principal, digest, _decode_left(value))
            except MsgspecError:
                continue

    def _on_told_approval(self, body: bytes) -> None:
        try:
            told = _decode_told(body)
        except MsgspecError:
            return
        if told.holder == self._state.holder_of(told.principal):
            self._take_over(told.principal, told.digest, told)

    def _take_over(self, principal: str, digest: str, left: _LeftApproval) -> None:
        seconds = min(left.until - time.time(), APPROVAL.lifetime)
        if self.approvals is not None and seconds > 0:
            self.approvals.take_over(principal, digest, seconds, left.denied_by)

    def _on_calls(self, values: dict[str, bytes]) -> None:
        self._elsewhere.clear()
        for id, value in values.items():
            try:
                call = _decode_call(value)
            except MsgspecError:
                continue
            if call.instance != self._state.instance and call.id == id:
                self._elsewhere[id] = call
        for id in self._left.keys() - values.keys():
            self._state.keep(WAITING, "", id, self._left[id])
        if self._elsewhere:
            self._on_waiting()

    def calls(self) -> list[CallElsewhere]:
        """What waits at other instances, oldest first."""
        now = time.time()
        return sorted((each for each in self._elsewhere.values() if each.until > now), key=lambda each: each.at)

    def described(self) -> Iterable[dict[str, object]]:
        """For `mcp-workbench status`, like `Approvals.waiting`."""
        now = time.time()
        for each in self.calls():
            yield {
                "id": each.id,
                "principal": each.principal or LOCAL_PRINCIPAL,
                "call": each.place,
                "arguments": each.arguments,
                "secondsLeft": round(each.until - now),
                "instance": each.host,
            }

    # ── deciding about calls elsewhere ──

    async def decide(self, wanted: ApprovalRequest, by: str, peer: str) -> ApprovalReply:
        """Show, approve or deny a call that waits at another instance."""
        id = wanted.id
        call = self._elsewhere.get(id)
        if call is None or call.until <= time.time():
            return ApprovalReply(decided=self._decided.get(id))
        if wanted.only_shows:
            whole = call.arguments if call.whole is None else call.whole.decode(errors="backslashreplace")
            return ApprovalReply(f"{one_line(f'{call.place} for {call.principal or LOCAL_PRINCIPAL}')}\n{whole}")
        key = secrets.token_hex(8)
        reply: asyncio.Future[ApprovalReply] = asyncio.get_running_loop().create_future()
        self._replies[key] = reply
        self._state.tell(_DECIDE, encode(_ToldDecision(wanted, f"{by} at {self._host}", peer, key)))
        try:
            async with asyncio.timeout(DECISION_TIMEOUT):
                return await reply
        except TimeoutError:
            return ApprovalReply(problem=UNANSWERED)
        finally:
            del self._replies[key]

    def _on_told_decision(self, body: bytes) -> None:
        try:
            told = _decode_decision(body)
        except MsgspecError:
            return
        if told.wanted.only_shows:
            return
        reply = self._decide(told.wanted, told.by, told.peer)
        if reply.found is not None or reply.decided is not None:
            outcome = reply.decided or f"{'denied' if told.wanted.denies else 'approved'} by {told.by}"
            self._state.tell(_DECIDED, encode(_ToldReply(told.wanted.id, reply, told.key, outcome)))

    def _on_told_reply(self, body: bytes) -> None:
        try:
            told = _decode_reply(body)
        except MsgspecError:
            return
        self._elsewhere.pop(told.id, None)
        waiter = self._replies.get(told.key)
        if waiter is not None and not waiter.done():
            waiter.set_result(told.reply)
        self._decided[told.id] = told.outcome
        if len(self._decided) > MAX_DECIDED:
            self._decided.popitem(last=False)
