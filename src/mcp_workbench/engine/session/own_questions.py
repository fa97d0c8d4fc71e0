"""Our own questions to the user of a call that a step holds.

A legacy client is asked with `elicitation/create`. A modern client gets `input_required`, its call is parked, and it
retries with the answer. Every question ends, with an answer or when its time runs out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.engine.jsonrpc.messages import decode_object
from mcp_workbench.engine.jsonrpc.pending import Exchange
from mcp_workbench.engine.protocol.constants import ANSWERS_INPUT_REQUIRED
from mcp_workbench.engine.session.questions import why_not
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.session.client_call import ClientCall

_RESULT_MEMBER: Final = b'"result":'

_Answer = asyncio.Future[Raw | bytes | None]


class _OwnQuestion(Exchange):
    """A question to a legacy client."""

    answer: _Answer

    def on_result(self, result: Raw) -> None:
        _settle(self.answer, bytes(result))

    def on_error(self, error: Raw) -> None:
        _settle(self.answer, None)

    def on_failure(self, error: WorkbenchError) -> None:
        _settle(self.answer, None)


class _OwnAsker:
    """A question to a modern client (`parking.QuestionSource`)."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def answer(self, id: bytes, payload: bytes) -> None:
        _settle(self._answer, payload.removeprefix(_RESULT_MEMBER) if payload.startswith(_RESULT_MEMBER) else None)


class OwnQuestions:
    """The user of one call (`steps.UserAsker`)."""

    def __init__(self, call: ClientCall, held: ClientCall | None = None) -> None:
        """`held`: the call that a step holds, if it is made for this one."""
        self._call = call
        self._held = held or call

    def can_ask_user(self) -> bool:
        call = self._call
        if call.revision.asks_in_results and call.method not in ANSWERS_INPUT_REQUIRED:
            return False
        return why_not(decode_object(call.caller.capabilities), "elicitation/create", None) is None

    async def ask_user(self, params: Raw) -> Raw | bytes | None:
        self._held.note_question(True)
        try:
            return await _ask(self._call, params)
        finally:
            self._held.note_question(False)


async def _ask(call: ClientCall, params: Raw) -> Raw | bytes | None:
    """Return the client's answer; None if there is none."""
    answer: _Answer = asyncio.get_running_loop().create_future()
    if call.revision.asks_in_results:
        reason = call.session.parking.ask(call, _OwnAsker(answer), params)
        return None if reason is not None else await answer
    question = _OwnQuestion(answer=answer)
    questions = call.session.questions
    try:
        questions.ask(question, "elicitation/create", params, call.id)
        return await answer
    finally:
        questions.forget(question)


def _settle(answer: _Answer, value: bytes | None) -> None:
    if not answer.done():
        answer.set_result(value)
