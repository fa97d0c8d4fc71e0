"""The bridge from a modern server to a legacy client: asked in rounds.

A modern server answers `input_required`; a legacy client can be asked directly. So we ask it, and send the server's
call again with what it said, as the server wants it, until there is a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc.messages import decode_object, encode, read_error
from mcp_workbench.jsonrpc.pending import Exchange
from mcp_workbench.session.questions import can_answer

if TYPE_CHECKING:
    from mcp_workbench.session.call import ClientCall

# A server that keeps asking is not going to stop by itself.
MOST_ROUNDS: Final = 16


class _Request(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Struct):
    inputRequests: dict[str, _Request] = field(default_factory=dict)
    requestState: str | None = None


_decode: Final = Decoder(_InputRequired).decode


class _RoundQuestion(Exchange):
    """One of the things that the server wants to know."""

    __slots__ = ("key", "round")

    def __init__(self, round: Round, key: str) -> None:
        super().__init__()
        self.round = round
        self.key = key

    def on_result(self, result: Raw) -> None:
        self.round.answered(self.key, result)

    def on_error(self, error: Raw) -> None:
        self.round.refused(read_error(error).message)

    def on_failure(self, error: WorkbenchError) -> None:
        self.round.refused(error.message)


class Round:
    """One `input_required`, until it has its answers."""

    def __init__(self, call: ClientCall, result: Raw) -> None:
        self._call = call
        self._answers: dict[str, Raw] = {}
        self._questions: list[_RoundQuestion] = []
        self._is_over = False
        try:
            self._wanted = _decode(result)
        except (DecodeError, ValidationError) as error:
            self._wanted = _InputRequired()
            self.refused(f"the server's `input_required` cannot be used: {error}")

    def begin(self) -> None:
        """Ask the client everything, side by side."""
        session = self._call.session
        capabilities = decode_object(session.capabilities)
        for key, request in self._wanted.inputRequests.items():
            if self._is_over:
                return
            if not can_answer(capabilities, request.method):
                self.refused(f"the server asks for `{request.method}`, which the client does not support")
                return
            question = _RoundQuestion(self, key)
            self._questions.append(question)
            session.questions.ask(question, request.method, request.params, self._call.id)
        self._finish_if_complete()

    def answered(self, key: str, result: Raw) -> None:
        """The client answered one of them."""
        self._answers[key] = Raw(bytes(result))
        self._finish_if_complete()

    def refused(self, reason: str) -> None:
        """It cannot go on."""
        if not self._is_over:
            self.cancel()
            self._call.on_failure(DownstreamError(reason))

    def cancel(self) -> None:
        """Nobody waits for the answers any more."""
        self._is_over = True
        for question in self._questions:
            self._call.session.questions.forget(question)

    def _finish_if_complete(self) -> None:
        if self._is_over or len(self._answers) < len(self._wanted.inputRequests):
            return
        self._is_over = True
        members: dict[str, object] = {}
        if self._wanted.inputRequests:
            members["inputResponses"] = self._answers
        if self._wanted.requestState is not None:
            members["requestState"] = self._wanted.requestState
        self._call.next_round(encode(members)[1:-1])
