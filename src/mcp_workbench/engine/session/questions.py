"""Requests of servers to a client (*questions*), and the answers to them.

Within the legacy era a server's request is passed on unchanged, except for its id and its progress token: those are
ours, because two servers may use the same. Every question ends: with the client's answer, because the answer is no
longer needed, or because its time runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    READING_ERRORS,
    decode_object,
    decode_string,
)
from mcp_workbench.engine.jsonrpc.pending import DEADLINE_CHECK_INTERVAL, Exchange, PendingRequests
from mcp_workbench.engine.protocol.constants import PROGRESS_TOKEN
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic

# The capability that a client must have declared, by method.
NEEDED_CAPABILITY: Final = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
# The maximum number of open questions of one call. People answer them one by one.
MAX_QUESTIONS_PER_CALL: Final = 20
TOO_LATE: Final = "the client did not answer in time"


_new_id = count(1).__next__


def number_questions_elsewhere() -> None:
    """Start the ids of questions at a random number, in a process that takes over clients: they may still answer
    questions of the previous process, which must not be mistaken for answers to ours."""
    from os import urandom

    global _new_id
    # Random, because two processes started within one tick of a clock would get the same numbers. Below 2^48, so that
    # all following numbers are exact in JavaScript.
    _new_id = count(int.from_bytes(urandom(6))).__next__


class BadQuestion(Exception):
    """A server's question cannot be passed on; the message says why."""


def unreadable() -> BadQuestion:
    """The error for a question that cannot be checked, and so is not passed on."""
    return BadQuestion("its question cannot be read")


class Question(Exchange):
    """A server's request to the client."""

    traffic: Traffic
    id: bytes
    progress_token: Raw | None = None

    def on_result(self, result: Raw) -> None:
        self.traffic.answer(self.id, b'"result":' + bytes(result))

    def on_error(self, error: Raw) -> None:
        self.traffic.answer(self.id, b'"error":' + bytes(error))

    def on_failure(self, error: WorkbenchError) -> None:
        body = messages.encode({"code": INTERNAL_ERROR, "message": error.message})
        self.traffic.answer(self.id, b'"error":' + body)


class Questions:
    def __init__(self, send: Callable[[bytes, bytes | None], None]) -> None:
        # Imported with the first question, to keep it out of start-up.
        from mcp_workbench.engine.downstream.server_questions import QUESTION_TIMEOUT

        self._send = send
        self._pending = PendingRequests(_new_id)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        # How long the client may take to answer.
        self.seconds = QUESTION_TIMEOUT

    def __len__(self) -> int:
        return len(self._pending)

    def relay(
        self,
        traffic: Traffic,
        id: bytes,
        method: str,
        params: Raw | None,
        about: bytes | None,
        attribute: Callable[[str, Raw | None], Raw | None],
    ) -> None:
        """Pass a server's question on. `attribute` adds the name of the server; if it cannot check the question, the
        server gets an error."""
        try:
            params = attribute(method, params)
        except BadQuestion as error:
            refusal = {"code": INVALID_PARAMS, "message": str(error)}
            traffic.answer(id, b'"error":' + messages.encode(refusal))
            return
        self.ask(Question(traffic, id), method, params, about)

    def ask(self, question: Exchange, method: str, params: Raw | None, about: bytes | None) -> None:
        """Send a question. `about` is the id of the client's call that it belongs to."""
        # No deadlines here, because each question has its own timer: there are few, and people take minutes to answer.
        id = self._pending.add(question, 0.0, 0.0, 0.0)
        self._timers[id] = asyncio.get_running_loop().call_later(self.seconds, self._read_first, question)
        if isinstance(question, Question) and params is not None:
            params = _with_own_token(question, id, params)
        self._send(messages.request(id, method, params), about)

    def take(self, id: Raw | bytes) -> Exchange | None:
        """Remove and return the question that an answer belongs to."""
        question = self._pending.take(id)
        if question is not None:
            self._timers.pop(question.wire_id).cancel()
        return question

    def cancelled_by_server(self, traffic: Traffic, id: bytes, params: Raw, about: bytes | None) -> None:
        """Cancel a question at the client, because the server did."""
        for question in self._pending.values():
            if isinstance(question, Question) and question.traffic is traffic and question.id == id:
                self._remove(question)
                fields = {**decode_object(params), "requestId": question.wire_id}
                self._send(messages.notification("notifications/cancelled", messages.encode(fields)), about)
                return

    def forget(self, question: Exchange, reason: str = "no longer needed") -> None:
        """Cancel a question at the client, because its answer is no longer needed."""
        if self._remove(question):
            params = messages.encode({"requestId": question.wire_id, "reason": reason})
            # Not on the stream of a call: the call that it belonged to may have ended.
            self._send(messages.notification("notifications/cancelled", params), None)

    def on_progress(self, params: Raw) -> None:
        """Pass the client's progress on a question on, with the server's own token."""
        try:
            fields = decode_object(params)
            # The client's token is the id of the question.
            question = self._pending.find(int(bytes(fields[PROGRESS_TOKEN])))
        except (*READING_ERRORS, KeyError):
            return
        if isinstance(question, Question) and question.progress_token is not None:
            fields[PROGRESS_TOKEN] = question.progress_token
            question.traffic.notify("notifications/progress", messages.encode(fields))

    def end(self, error: WorkbenchError) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for question in self._pending.drain():
            question.on_failure(error)

    def _read_first(self, question: Exchange) -> None:
        """Wait a little longer after the timeout: if this process was suspended, an answer may have arrived unread."""
        loop = asyncio.get_running_loop()
        self._timers[question.wire_id] = loop.call_later(DEADLINE_CHECK_INTERVAL, self._too_late, question)

    def _too_late(self, question: Exchange) -> None:
        self.forget(question, TOO_LATE)
        question.on_failure(DownstreamError(TOO_LATE))

    def _remove(self, question: Exchange) -> bool:
        if not self._pending.remove(question):
            return False
        self._timers.pop(question.wire_id).cancel()
        return True


def can_answer(capabilities: dict[str, Raw], method: str) -> bool:
    """Whether a client with these capabilities accepts requests with this method. Unknown methods pass within an
    era."""
    needed = NEEDED_CAPABILITY.get(method)
    return needed is None or needed in capabilities


def may_be_asked(capabilities: dict[str, Raw], method: str, params: Raw | None) -> bool:
    """Whether a client of the server's era may be sent this request. It never gets what it declared no capability
    for."""
    return method not in NEEDED_CAPABILITY or why_not(capabilities, method, params) is None


def why_not(capabilities: dict[str, Raw], method: str, params: Raw | None) -> str | None:
    """Why a client of the other era may not be asked this; None if it may.

    Stricter than `may_be_asked`: a question that crosses eras is one that we ask.
    """
    needed = NEEDED_CAPABILITY.get(method)
    if needed is None:
        return f"`{method[:100]}` is not a request that clients can be asked to answer"
    if needed not in capabilities:
        return f"the client does not support `{method}`"
    declared = members_of(capabilities[needed])
    asked = members_of(params)
    # A client that declares no mode supports forms, which are older than modes.
    if needed == "elicitation" and mode_of(asked) not in (declared if "url" in declared else {"form"}):
        return f"the client does not support elicitation in mode `{mode_of(asked)}`"
    if needed == "sampling" and "tools" in asked and "tools" not in declared:
        return "the client does not support tools in sampling"
    return None


def mode_of(elicitation: dict[str, Raw]) -> str:
    """`form` for a form to fill in, `url` for a page to visit."""
    try:
        return "url" if decode_string(elicitation.get("mode", b"null")) == "url" else "form"
    except READING_ERRORS:
        return "form"


def members_of(value: Raw | None) -> dict[str, Raw]:
    """The members of an object; empty for anything else."""
    try:
        return {} if value is None else decode_object(value)
    except READING_ERRORS:
        return {}


def _with_own_token(question: Question, id: int, params: Raw) -> Raw:
    try:
        fields = decode_object(params)
        meta = decode_object(fields["_meta"])
        question.progress_token = Raw(bytes(meta[PROGRESS_TOKEN]))
    except (*READING_ERRORS, KeyError):
        return params
    meta[PROGRESS_TOKEN] = Raw(b"%d" % id)
    fields["_meta"] = Raw(messages.encode(meta))
    return Raw(messages.encode(fields))
