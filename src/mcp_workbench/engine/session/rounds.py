"""The bridge from a modern server to a legacy client, which is asked in rounds.

A modern server answers `input_required`; a legacy client can be asked directly. So we ask it, and send the call to the
server again with the answers, until there is a result.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import decode_object, encode, read_error
from mcp_workbench.engine.jsonrpc.pending import Exchange
from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL, BadQuestion, members_of, mode_of, why_not
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.session.client_call import ClientCall

# A server that asks more often is not going to stop.
MAX_QUESTION_ROUNDS: Final = 16
UNNAMED_INPUT: Final = "the server requires input, but does not say which"
# A server that asks for nothing but a retry needs time. The pause doubles with each round, and all pauses together are
# shorter than the timeout of clients for a call.
FIRST_ROUND_INTERVAL = 0.05
MAX_ROUND_INTERVAL = 1.0


class _Request(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Struct):
    inputRequests: dict[str, _Request] = field(default_factory=dict)
    requestState: str | None = None


_decode: Final = Decoder(_InputRequired).decode


class _RoundQuestion(Exchange):
    """One of the server's questions."""

    round: Round
    key: str

    def on_result(self, result: Raw) -> None:
        self.round.answered(self.key, result)

    def on_error(self, error: Raw) -> None:
        self.round.refused(f"the client refused to answer the server's question: {read_error(error).message}")

    def on_failure(self, error: WorkbenchError) -> None:
        self.round.refused(error.message)


class Round:
    """One `input_required`, until it is answered."""

    def __init__(self, call: ClientCall) -> None:
        self._call = call
        self._wanted = _InputRequired()
        self._answers: dict[str, Raw] = {}
        self._questions: list[_RoundQuestion] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def begin(self, result: Raw) -> None:
        """Ask the client all of the server's questions concurrently."""
        try:
            self._wanted = _decode(result)
        except (DecodeError, ValidationError, RecursionError) as error:
            self.refused(f"the server's `input_required` cannot be used: {error}")
            return
        reason = self._why_not() or self._attribute()
        requests = self._wanted.inputRequests
        if reason is not None:
            self.refused(reason)
        elif not requests:
            pause = min(FIRST_ROUND_INTERVAL * 2 ** (self._call.rounds - 1), MAX_ROUND_INTERVAL)
            self._timer = asyncio.get_running_loop().call_later(pause, self._finish_if_complete)
        for key, request in requests.items():
            # Sending the previous question may have shown that the link to the client is broken.
            if not self._is_over:
                self._ask(key, request)

    def answered(self, key: str, result: Raw) -> None:
        """Store the client's answer to one of the questions."""
        self._call.note_question(False)
        # Copied, because a `Raw` is a view of the whole message, and would keep it in memory.
        self._answers[key] = Raw(bytes(result))
        self._finish_if_complete()

    def refused(self, reason: str) -> None:
        """End the call with this reason."""
        if not self._is_over:
            self.cancel()
            self._call.on_failure(DownstreamError(reason))

    def cancel(self) -> None:
        """Cancel the questions at the client."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for question in self._questions:
            self._call.session.questions.forget(question)

    def _why_not(self) -> str | None:
        """Why the questions cannot be asked. Checked for all of them before the user sees any."""
        requests = self._wanted.inputRequests
        if not requests and self._wanted.requestState is None:
            return UNNAMED_INPUT
        if len(requests) > MAX_QUESTIONS_PER_CALL:
            asked = len(requests)
            return f"the server asks {asked} questions at once; more than {MAX_QUESTIONS_PER_CALL} are not passed on"
        capabilities = decode_object(self._call.session.caller.capabilities)
        reasons = (why_not(capabilities, request.method, request.params) for request in requests.values())
        found = next((reason for reason in reasons if reason is not None), None)
        return None if found is None else f"the server's question cannot be asked: {found}"

    def _attribute(self) -> str | None:
        """Add the name of the server to each question. Returns why a question cannot be asked."""
        call, requests = self._call, self._wanted.inputRequests
        assert call.route.entry is not None
        attribution = call.session.attribution_in_results(call.route.entry)
        try:
            for request in requests.values():
                request.params = attribution.question(request.method, request.params) or request.params
        except BadQuestion as error:
            return f"the server's question cannot be asked: {error}"
        return None

    def _ask(self, key: str, request: _Request) -> None:
        question = _RoundQuestion(self, key)
        self._questions.append(question)
        params = _for_legacy_client(request)
        self._call.note_question(True)
        self._call.session.questions.ask(question, request.method, params, self._call.id)

    def _finish_if_complete(self) -> None:
        if self._is_over or len(self._answers) < len(self._wanted.inputRequests):
            return
        self._is_over = True
        members: dict[str, object] = {}
        if self._wanted.inputRequests:
            members["inputResponses"] = self._answers
        if self._wanted.requestState is not None:
            members["requestState"] = self._wanted.requestState
        self._call.next_round(members)


def _for_legacy_client(request: _Request) -> Raw:
    """Add the `elicitationId` that a page to visit has up to 2025-11-25, where the server may send it in a notification
    when the user is done. Modern servers do not, and so send no id."""
    if request.method != "elicitation/create":
        return request.params
    params = members_of(request.params)
    if mode_of(params) != "url" or "elicitationId" in params:
        return request.params
    return Raw(encode({**params, "elicitationId": os.urandom(12).hex()}))
