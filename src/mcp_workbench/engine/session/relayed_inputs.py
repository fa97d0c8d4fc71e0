"""What a modern server needs to know during a call, asked of its client while the call goes on.

A client's own call is answered with the server's question, or asked in rounds. Neither is possible for a call made for
another one, nor for a task that its client knows nothing of: there the client is asked as if a server with a handshake
had asked, and the call whose id it knows is parked if it is a modern client. Every question ends, with an answer or
when its time is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.downstream.sharing import EVERYTHING, withheld
from mcp_workbench.engine.jsonrpc.messages import encode, read_error
from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.session.client_call import ClientCall

_RESULT_MEMBER: Final = b'"result":'
_ERROR_MEMBER: Final = b'"error":'
_CALL_ENDED: Final = Raw(b'{"reason":"the call has ended"}')


class _AskedInput(Struct):
    method: str
    params: Raw = Raw(b"{}")


class InputNeeded(Struct):
    """An `input_required` result, or a task in this state."""

    inputRequests: dict[str, _AskedInput] = field(default_factory=dict)
    requestState: str | None = None


_decode: Final = Decoder(InputNeeded).decode


def read_input_needed(result: Raw) -> InputNeeded:
    """Raises `DownstreamError`."""
    try:
        return _decode(result)
    except (DecodeError, ValidationError, RecursionError) as error:
        raise DownstreamError(f"the server's question cannot be used: {error}") from None


class _Asker:
    """The server, as far as the client's answers go to it (`parking.QuestionSource`, and what questions need of a
    `Traffic`)."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.answers: dict[bytes, asyncio.Future[Raw]] = {}

    def answer(self, id: bytes, payload: bytes) -> None:
        waiting = self.answers[id]
        if waiting.done():
            return
        if payload.startswith(_RESULT_MEMBER):
            waiting.set_result(Raw(payload.removeprefix(_RESULT_MEMBER)))
        else:
            why = read_error(Raw(payload.removeprefix(_ERROR_MEMBER))).message
            waiting.set_exception(DownstreamError(f"the server's question was not answered: {why}"))

    def notify(self, method: str, params: bytes | None = None) -> None:
        """Progress of the client on a question is of no use to the server."""


async def answers_to(call: ClientCall, asked: ClientCall, needed: InputNeeded) -> dict[str, Raw]:
    """The answers of the client to what the server of `call` needs, asked within `asked`. Raises `DownstreamError`."""
    entry = call.route.entry
    assert entry is not None
    requests = needed.inputRequests
    if withheld(entry.config) is EVERYTHING:
        raise DownstreamError("its configuration says that this server may not ask")
    if len(requests) > MAX_QUESTIONS_PER_CALL:
        raise DownstreamError(
            f"the server asks {len(requests)} questions at once; more than {MAX_QUESTIONS_PER_CALL} are not passed on"
        )
    asker = _Asker(entry.label)
    loop = asyncio.get_running_loop()
    traffic = cast("Traffic", asker)
    asker.answers = {encode(key): loop.create_future() for key in requests}
    call.note_question(True)
    try:
        for key, request in requests.items():
            if not asked.relay_request(traffic, encode(key), request.method, request.params):
                raise DownstreamError(f"the server asks for `{request.method[:100]}`, which this client cannot answer")
        # Not `gather`, which when cancelled would make it seem that nothing is left to be withdrawn.
        if asker.answers:
            await asyncio.wait(asker.answers.values(), return_when=asyncio.FIRST_EXCEPTION)
        found = [waiting.result() for waiting in asker.answers.values() if waiting.done()]
    finally:
        call.note_question(False)
        for id, waiting in asker.answers.items():
            if not waiting.done():
                asked.relay_cancel(traffic, id, _CALL_ENDED)
            # An exception that nobody looks at would be logged.
            elif not waiting.cancelled():
                waiting.exception()
            waiting.cancel()
    return dict(zip(requests, found, strict=True))


def retry_members(needed: InputNeeded, answers: dict[str, Raw]) -> dict[str, Any]:
    """What is added to a request that is sent again with the answers."""
    members: dict[str, Any] = {"inputResponses": answers} if needed.inputRequests else {}
    return members if needed.requestState is None else {**members, "requestState": needed.requestState}
