"""The bridge from a legacy server to a modern client: calls that wait for the client to come back.

A legacy server asks in the middle of a call; a modern client is never asked, it is answered `input_required` and
retries with what was wanted. In between the call is *parked*: it goes on at the server, and whatever becomes of it is
kept for the client's return. Every parked call ends: the client returns, or its time is over.

Owns what is parked. Refuses to know how a call is answered (`ClientCall`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, decode_object, encode
from mcp_workbench.protocol.sealing import BadState, Sealed, Sealer

if TYPE_CHECKING:
    from mcp_workbench.session.call import ClientCall

# How long a client may take to come back. The form it shows to its user is open that long.
PARKED_SECONDS: Final = 600.0
# Calls of one principal that may be parked at once.
MOST_PARKED: Final = 100
MOST_QUESTIONS: Final = 20


class Parked:
    """One call whose client is away."""

    def __init__(self, key: str, call: ClientCall, digest: str) -> None:
        self.key = key
        self.call = call
        self.digest = digest
        self.round = 0
        # Questions of the server that are not answered yet: by their key, who asked, under which id, and what.
        self.questions: dict[str, tuple[Traffic, bytes, Raw]] = {}
        # What became of the call meanwhile.
        self.outcome: tuple[bytes, bytes] | None = None
        self.is_away = False
        self.timer: asyncio.TimerHandle | None = None
        self._asked = 0

    def add(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> None:
        """The server asks something."""
        self._asked += 1
        request = {"method": method, **({} if params is None else {"params": params})}
        self.questions[f"question-{self._asked}"] = (traffic, id, Raw(encode(request)))


class Parking:
    """All parked calls of this process."""

    def __init__(self) -> None:
        self._sealer = Sealer()
        self._parked: dict[str, Parked] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    def question(self, call: ClientCall, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """A server asks the client of this call. False when the question cannot be taken."""
        parked = call.parked
        if parked is None:
            if self._counts[call.view.principal] >= MOST_PARKED:
                return False
            parked = Parked(secrets.token_urlsafe(16), call, call.digest())
            self._parked[parked.key] = call.parked = parked
            self._counts[call.view.principal] += 1
        if len(parked.questions) >= MOST_QUESTIONS:
            return False
        parked.add(traffic, id, method, params)
        if not parked.is_away:
            self._send_away(parked)
        return True

    def withdraw(self, call: ClientCall, traffic: Traffic, id: bytes) -> None:
        """The server gave a question up."""
        if call.parked is not None:
            questions = call.parked.questions
            for key in [key for key, asked in questions.items() if asked[:2] == (traffic, id)]:
                del questions[key]

    def come_back(self, call: ClientCall, state: str, responses: Raw | None) -> None:
        """A client retries with a state of ours. Raises `BadState`."""
        now = asyncio.get_running_loop().time()
        sealed = self._sealer.open(state, principal=call.view.principal, digest=call.digest(), now=now)
        if not sealed.key:
            # Nothing was parked: the call is simply made again.
            call.start_over()
            return
        parked = self._parked.get(sealed.key)
        if parked is None or sealed.round != parked.round or not parked.is_away:
            raise BadState("`requestState` has been used already, or its call is over")
        given = _read_responses(responses)
        parked.is_away = False
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None
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
            # Something is still unanswered, or was asked while the client was away.
            self._send_away(parked)

    def state_without_parking(self, call: ClientCall) -> str:
        """A state for a client that has to do something and then make the call again."""
        return self._sealer.seal(self._sealed(call, "", 0, call.digest()))

    def leave(self, parked: Parked) -> None:
        """The call is no longer parked."""
        if self._parked.pop(parked.key, None) is not None:
            self._counts[parked.call.view.principal] -= 1
            if not self._counts[parked.call.view.principal]:
                del self._counts[parked.call.view.principal]
        parked.call.parked = None
        if parked.timer is not None:
            parked.timer.cancel()

    def close(self) -> None:
        """Shutting down: nobody comes back."""
        for parked in list(self._parked.values()):
            self.leave(parked)

    def _send_away(self, parked: Parked) -> None:
        parked.round += 1
        parked.is_away = True
        state = self._sealer.seal(self._sealed(parked.call, parked.key, parked.round, parked.digest))
        asked = {key: request for key, (_, _, request) in parked.questions.items()}
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(PARKED_SECONDS, self._give_up, parked)
        parked.call.send_away(input_required(asked, state))

    def _give_up(self, parked: Parked) -> None:
        """The client did not come back: the server's questions are declined, and the call is given up."""
        self.leave(parked)
        for traffic, id, request in parked.questions.values():
            traffic.answer(id, declined(request))
        if parked.outcome is None:
            parked.call.cancel({"reason": Raw(b'"the client did not come back"')})

    def _sealed(self, call: ClientCall, key: str, round: int, digest: str) -> Sealed:
        expires = asyncio.get_running_loop().time() + PARKED_SECONDS
        return Sealed(key, round, call.view.principal, digest, expires)


def input_required(requests: dict[str, Raw], state: str) -> bytes:
    """The interim result that asks a modern client for something."""
    return encode({"resultType": "input_required", "inputRequests": requests, "requestState": state})


def declined(request: Raw) -> bytes:
    """The answer to a server whose question nobody will answer."""
    if b'"elicitation/create"' in bytes(request):
        return b'"result":{"action":"cancel"}'
    return b'"error":' + encode({"code": INTERNAL_ERROR, "message": "the client did not answer"})


def _read_responses(responses: Raw | None) -> dict[str, Raw]:
    try:
        return {} if responses is None else decode_object(responses)
    except (DecodeError, ValidationError):
        raise BadState("`inputResponses` must be an object") from None
