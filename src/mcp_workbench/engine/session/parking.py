"""The bridge from a legacy server to a modern client: calls that wait for the client to retry.

A legacy server asks in the middle of a call. A modern client cannot be sent requests: it gets `input_required` as the
result and retries with the answers. In between the call is *parked*: it continues at the server, and its outcome is
kept for the retry. Every parked call ends, because the client returns or because its time runs out.

Owns the parked calls. Does not know how a call is answered (`ClientCall`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import decode

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, decode_object, encode
from mcp_workbench.engine.protocol.results import ASKING
from mcp_workbench.engine.protocol.sealed_state import BadState, Sealed, Sealer
from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL, BadQuestion, why_not
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.session.client_call import ClientCall
    from mcp_workbench.engine.steps import Denial

# How long a client may take to retry, and so how long its user has for the form.
PARKED_CALL_LIFETIME: Final = 600.0
# The maximum number of parked calls of one principal.
MAX_PARKED_CALLS: Final = 100
# The maximum memory of all of them: questions of servers, answers sent in advance, and results that wait.
MAX_PARKED_BYTES: Final = 128 * 1024 * 1024
# The maximum number of unused states of one principal for calls that are made again. Each can be used once; beyond the
# limit, the oldest become invalid.
MAX_UNUSED_STATES: Final = 1000
# The prefix of the key of such a state, for which nothing is parked.
_NOT_PARKED: Final = "-"
# Questions that a server asks concurrently are sent to the client together: after a pause, or at the latest after this
# long. The delay is negligible compared with the time that a person or a model takes to answer.
GATHER_PAUSE: Final = 0.05
GATHER_AT_LATEST: Final = 0.25
# The member of a question's `_meta` in which a legacy server may choose the key of the question in `inputRequests`.
# Modern servers choose their keys; with this, a server written for both eras can use the same keys behind us.
INPUT_KEY: Final = "mcp-workbench/inputKey"
MAX_INPUT_KEY_LENGTH: Final = 100
USED_ALREADY: Final = "`requestState` has already been used, or its call has ended"


class QuestionSource(Protocol):
    """The sender of a question: the traffic with a server, or ourselves."""

    def answer(self, id: bytes, payload: bytes) -> None:
        """Deliver the client's answer to a question, as the members of a response."""


class Parked:
    """One call whose client is away."""

    def __init__(self, key: str, call: ClientCall, digest: str) -> None:
        self.key = key
        self.call = call
        self.digest = digest
        self.round = 0
        # The server's unanswered questions by key: the sender, its id of the question, and the request.
        self.questions: dict[str, tuple[QuestionSource, bytes, Raw]] = {}
        # The outcome of the call, if it finished meanwhile.
        self.outcome: tuple[Literal["result", "error"], bytes] | None = None
        # The size of what is kept for it and was sent by the client or the server.
        self.held_bytes = 0
        self.is_away = False
        self.timer: asyncio.TimerHandle | None = None
        # Runs while further questions may follow the first.
        self.gathering: asyncio.TimerHandle | None = None
        self.gather_latest = 0.0
        self._asked = 0

    def add(self, asker: QuestionSource, id: bytes, method: str, params: Raw | None) -> None:
        self._asked += 1
        request = {"method": method, **({} if params is None else {"params": params})}
        # A server may have chosen a key like ours.
        while f"question-{self._asked}" in self.questions:
            self._asked += 1
        key = _input_key(params)
        if key is None or key in self.questions:
            key = f"question-{self._asked}"
        self.questions[key] = (asker, id, Raw(encode(request)))

    def stop_timers(self) -> None:
        for timer in (self.timer, self.gathering):
            if timer is not None:
                timer.cancel()
        self.timer = self.gathering = None


class Parking:
    """All parked calls of this process."""

    def __init__(self) -> None:
        self.seconds = PARKED_CALL_LIFETIME
        self._parked: dict[str, Parked] = {}
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        # The keys of unused states, by principal.
        self._unused: dict[str, dict[str, None]] = {}

    @cached_property
    def _sealer(self) -> Sealer:
        # Made with the first question, to keep it out of start-up.
        return Sealer()

    def __len__(self) -> int:
        return len(self._parked)

    def question(self, call: ClientCall, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> None:
        """Ask the client of this call what a server wants to know."""
        reason = why_not(decode_object(call.caller.capabilities), method, params)
        if reason is None:
            try:
                params = call.session.attribution(traffic.label).question(method, params)
            except BadQuestion as error:
                reason = str(error)
        if reason is not None:
            traffic.answer(id, _error(INVALID_PARAMS, reason))
            return
        answer = _given_already(call, params)
        if answer is not None:
            traffic.answer(id, b'"result":' + answer)
            return
        reason = self._add(call, traffic, id, method, params)
        if reason is not None:
            traffic.answer(id, _error(INTERNAL_ERROR, reason))

    def ask(self, call: ClientCall, asker: QuestionSource, params: Raw) -> str | None:
        """Ask our own question about a call that has not been sent to a server. Returns why it cannot be asked."""
        return self._add(call, asker, b"0", "elicitation/create", params, was_sent=False)

    def _add(
        self,
        call: ClientCall,
        asker: QuestionSource,
        id: bytes,
        method: str,
        params: Raw | None,
        *,
        was_sent: bool = True,
    ) -> str | None:
        """Add a question to the client of this call, and park the call. Returns why that is not possible."""
        parked = call.parked
        if parked is None and self._counts[call.view.principal] >= MAX_PARKED_CALLS:
            return f"{MAX_PARKED_CALLS} calls of this client are already waiting for its answers"
        if parked is not None and len(parked.questions) >= MAX_QUESTIONS_PER_CALL:
            return f"{MAX_QUESTIONS_PER_CALL} questions of this call are already waiting for an answer"
        if not self._has_room(call, 0 if params is None else len(bytes(params))):
            return f"calls of this client that wait for its answers hold {MAX_PARKED_BYTES} bytes already"
        if parked is None:
            parked = Parked(os.urandom(16).hex(), call, call.digest())
            self._parked[parked.key] = call.parked = parked
            self._counts[call.view.principal] += 1
            # A call that has not been sent yet keeps its params.
            self._hold(parked, call.slim() if was_sent else sum(len(bytes(each)) for each in call.params.values()))
        self._hold(parked, 0 if params is None else len(bytes(params)))
        parked.add(asker, id, method, params)
        if not parked.is_away:
            self._gather(parked)
        return None

    def keep(self, parked: Parked, kind: Literal["result", "error"], payload: bytes) -> None:
        """Keep the response to the call until the client returns."""
        if self._has_room(parked.call, len(payload)):
            self._hold(parked, len(payload))
        else:
            size = len(payload)
            lost = DownstreamError(
                f"the result of {size} bytes arrived while the client was away, and was too large to keep"
            )
            kind, payload = "error", encode({"code": INTERNAL_ERROR, "message": lost.message})
        parked.outcome = (kind, payload)

    def _has_room(self, call: ClientCall, size: int) -> bool:
        return self._bytes[call.view.principal] + size <= MAX_PARKED_BYTES

    def _hold(self, parked: Parked, size: int) -> None:
        parked.held_bytes += size
        self._bytes[parked.call.view.principal] += size

    def withdraw(self, call: ClientCall, traffic: Traffic, id: bytes) -> None:
        """Remove a question that the server cancelled."""
        if call.parked is not None:
            questions = call.parked.questions
            for key in [key for key, asked in questions.items() if asked[:2] == (traffic, id)]:
                del questions[key]

    def takes_back(self, call: ClientCall, params: dict[str, Raw]) -> bool:
        """Whether a request with a `requestState` is a retry of a call that we answered with a question. We cannot open
        the states of modern servers, including other workbenches: they are passed through."""
        try:
            state = decode(params["requestState"], type=str)
        except (DecodeError, ValidationError):
            call.finish_error(INVALID_PARAMS, "`requestState` must be a string")
            return True
        if not self._sealer.gave_out(state):
            return False
        try:
            self._come_back(call, state, params.get("inputResponses"))
        except BadState as error:
            call.finish_error(INVALID_PARAMS, str(error))
        return True

    def _come_back(self, call: ClientCall, state: str, responses: Raw | None) -> None:
        sealed = self._sealer.open(state, principal=call.view.principal, digest=call.digest(), now=time.time())
        given = _read_responses(responses)
        # Every state can be used once: with a second use, the call would be made twice.
        if sealed.key.startswith(_NOT_PARKED):
            # The call is made again, unless the user declined.
            self._use_up(sealed)
            if any(_is_refusal(response) for response in given.values()):
                call.on_failure(DownstreamError("the server requires a page to be visited first, which was declined"))
            else:
                call.start_over()
            return
        parked = self._parked.get(sealed.key)
        # Only the newest state of a call is valid: with an older one, answers would go to questions already answered.
        if parked is None or sealed.round != parked.round or not parked.is_away:
            raise BadState(USED_ALREADY)
        denial = _refused(parked.call)
        if denial is not None:
            # It was allowed when it was sent and no longer is, so its client learns nothing about the outcome.
            self._expire(parked)
            call.refuse(denial)
            return
        parked.is_away = False
        parked.stop_timers()
        parked.call.continue_as(call)
        for key, response in given.items():
            asked = parked.questions.pop(key, None)
            if asked is not None:
                traffic, id, _ = asked
                traffic.answer(id, b'"result":' + bytes(response))
        if parked.outcome is not None:
            kind, payload = parked.outcome
            self.leave(parked)
            parked.call.emit(kind, payload)
        elif parked.questions:
            # Some questions are unanswered, or were asked while the client was away.
            self._send_away(parked)

    def state_without_parking(self, call: ClientCall) -> str:
        """Return a state for a client that has to do something and then make the call again."""
        key = _NOT_PARKED + os.urandom(16).hex()
        unused = self._unused.setdefault(call.view.principal, {})
        unused[key] = None
        if len(unused) > MAX_UNUSED_STATES:
            del unused[next(iter(unused))]
        return self._sealer.seal(self._sealed(call, key, 0, call.digest()))

    def _use_up(self, sealed: Sealed) -> None:
        unused = self._unused.get(sealed.principal, {})
        if sealed.key not in unused:
            raise BadState(USED_ALREADY)
        del unused[sealed.key]
        if not unused:
            del self._unused[sealed.principal]

    def leave(self, parked: Parked) -> None:
        """Stop parking a call."""
        if self._parked.pop(parked.key, None) is not None:
            principal = parked.call.view.principal
            self._counts[principal] -= 1
            self._bytes[principal] -= parked.held_bytes
            if not self._counts[principal]:
                del self._counts[principal], self._bytes[principal]
        parked.call.parked = None
        parked.stop_timers()
        questions, parked.questions = parked.questions, {}
        for traffic, id, request in questions.values():
            # The server is waiting, and JSON-RPC requires a response to every request.
            traffic.answer(id, _declined(request))

    def close(self, principals: Collection[str] | None = None) -> None:
        """End parked calls to which no client can return: those of these principals, or all at shutdown."""
        for parked in list(self._parked.values()):
            if principals is None or parked.call.view.principal in principals:
                self._expire(parked)

    def _gather(self, parked: Parked) -> None:
        """Answer the client with the questions once the server has asked all of its concurrent ones."""
        loop = asyncio.get_running_loop()
        if parked.gathering is None:
            parked.gather_latest = loop.time() + GATHER_AT_LATEST
        else:
            parked.gathering.cancel()
        pause = max(0.0, min(GATHER_PAUSE, parked.gather_latest - loop.time()))
        parked.gathering = loop.call_later(pause, self._gathered, parked)

    def _gathered(self, parked: Parked) -> None:
        parked.gathering = None
        # The server may have cancelled its question meanwhile.
        if parked.questions:
            self._send_away(parked)

    def _send_away(self, parked: Parked) -> None:
        parked.round += 1
        parked.is_away = True
        state = self._sealer.seal(self._sealed(parked.call, parked.key, parked.round, parked.digest))
        asked = {key: request for key, (_, _, request) in parked.questions.items()}
        loop = asyncio.get_running_loop()
        # Not every client returns: a user may close the form or stop the agent.
        parked.timer = loop.call_later(self.seconds, self._expire, parked)
        parked.call.send_away(input_required(asked, state, parked.call.made_by()))

    def _expire(self, parked: Parked) -> None:
        """Decline the server's questions and cancel the call, because the client did not return."""
        self.leave(parked)
        if parked.outcome is None:
            parked.call.cancel({"reason": Raw(b'"the client did not come back"')})

    def _sealed(self, call: ClientCall, key: str, round: int, digest: str) -> Sealed:
        # Wall-clock time, which goes on while the machine sleeps; the user's answer may be hours away.
        return Sealed(key, round, call.view.principal, digest, time.time() + self.seconds)


def _refused(call: ClientCall) -> Denial | None:
    """Why a client may not resume a call that is parked for it."""
    entry, decision = call.route.entry, call.route.decision
    if entry is None or decision is None:
        return None
    from mcp_workbench.engine.steps import GuardedRequest

    # With its arguments, which the steps keep: new rules may depend on them. For a call that began without steps they
    # are gone, and then such a rule is undecidable.
    passage = call.route.passage
    request = GuardedRequest(
        principal=call.view.principal,
        method=call.method,
        toolbox=entry.toolbox,
        server=entry.name,
        item=decision.item,
        client=b"{}",
        session=0,
        body=decision.body if passage is None else passage.body,
    )
    return call.view.gate.refuses(request)


def input_required(requests: dict[str, Raw], state: str, made_by: bytes) -> bytes:
    """The interim result that asks a modern client questions. `made_by` is its `_meta`."""
    return encode({"resultType": ASKING, "inputRequests": requests, "requestState": state, "_meta": Raw(made_by)})


def _input_key(params: Raw | None) -> str | None:
    """The key that a server chose for its question, if it did."""
    if params is None or INPUT_KEY.encode() not in bytes(params):
        return None
    try:
        key = decode(decode_object(decode_object(params)["_meta"])[INPUT_KEY], type=str)
    except (DecodeError, ValidationError, KeyError):
        return None
    return key[:MAX_INPUT_KEY_LENGTH] or None


def _given_already(call: ClientCall, params: Raw | None) -> bytes | None:
    """The answer that a client sent with its first request, to a question whose key it knew in advance."""
    key = _input_key(params)
    if key is None or "inputResponses" not in call.params:
        return None
    try:
        given = decode_object(call.params["inputResponses"])
    except (DecodeError, ValidationError):
        return None
    answer = bytes(given.pop(key, b""))
    if not answer.startswith(b"{"):
        return None
    # Removed, because a server that asks again did not accept it; then the client is asked.
    call.params["inputResponses"] = Raw(encode(given))
    return answer


def _declined(request: Raw) -> bytes:
    """The response to a question that will not be answered."""
    if bytes(decode_object(request)["method"]) == b'"elicitation/create"':
        return b'"result":{"action":"cancel"}'
    return _error(INTERNAL_ERROR, "the client did not answer")


def _error(code: int, message: str) -> bytes:
    return b'"error":' + encode({"code": code, "message": message})


def _read_responses(responses: Raw | None) -> dict[str, Raw]:
    try:
        given = {} if responses is None else decode_object(responses)
    except (DecodeError, ValidationError):
        raise BadState("`inputResponses` must be an object") from None
    for key, response in given.items():
        if not bytes(response).startswith(b"{"):
            raise BadState(f"`inputResponses` must contain objects; `{key[:100]}` is not one")
    return given


def _is_refusal(response: Raw) -> bool:
    return bytes(decode_object(response).get("action", b'"accept"')) != b'"accept"'
