"""A call that is made for another one: a member of a list of calls, or a call of a program.

It passes everything that a client's own call does, is recorded as one, and answers nobody: its end is a value. What its
server asks or reports meanwhile belongs to the client's own call, whose id the client knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Raw

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.wording import error_result
from mcp_workbench.engine.jsonrpc.messages import Part, decode_object, encode, read_error
from mcp_workbench.engine.protocol.results import ASKING, result_type
from mcp_workbench.engine.router.routed_call import Route, passage_of
from mcp_workbench.engine.session.client_call import ClientCall
from mcp_workbench.errors import DownstreamError, SignInNeeded

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.session.own_questions import OwnQuestions

Ended = tuple[Literal["result", "error"], bytes]


class ClientInnerCall(ClientCall, kw_only=True):
    """Made for `outer` (`InnerCall`)."""

    outer: ClientCall
    ended: asyncio.Future[Ended]
    restarted: ServerEntry | None = None
    # Called when its user begins to be asked something, and when all of that has an answer.
    on_asked: Callable[[bool], None] | None = None
    open_questions: int = 0

    # ── answers of the server ──

    def on_result(self, result: Raw) -> None:
        traffic, entry = self.route.traffic, self.route.entry
        kind = result_type(result) if traffic is not None and traffic.takes_retries else None
        if kind == ASKING and not self.revision.asks_in_results:
            self._ask_in_rounds(result)
            return
        if kind == ASKING:
            self.session.router.start_for(self, self._ask_and_retry(result))
            return
        if kind == "task" and self.route.decision is not None and entry is not None:
            router = self.session.router
            router.run_task(self, self.route.decision, router.connections.for_use(entry, self), result)
            return
        if traffic is not None and entry is not None:
            if entry.has_resources:
                self.view.face.links.note(self.view.principal, entry, result)
            if traffic.clients.untold and traffic.clients.take_loss(self.client):
                self.restarted = entry
        self.emit("result", bytes(result))

    async def _ask_and_retry(self, result: Raw) -> None:
        """Ask the client within its own call, and send this one again with the answers."""
        from mcp_workbench.engine.session.relayed_inputs import answers_to, read_input_needed, retry_members
        from mcp_workbench.engine.session.rounds import (
            FIRST_ROUND_INTERVAL,
            MAX_QUESTION_ROUNDS,
            MAX_ROUND_INTERVAL,
            UNNAMED_INPUT,
        )

        self.rounds += 1
        try:
            if self.rounds > MAX_QUESTION_ROUNDS:
                raise DownstreamError(f"the server asked {MAX_QUESTION_ROUNDS} times and still has no result")
            needed = read_input_needed(result)
            if not needed.inputRequests and needed.requestState is None:
                # Sent again, it would be the same call once more.
                raise DownstreamError(UNNAMED_INPUT)
            if not needed.inputRequests:
                await asyncio.sleep(min(FIRST_ROUND_INTERVAL * 2 ** (self.rounds - 1), MAX_ROUND_INTERVAL))
            answers = await answers_to(self, self.outer, needed)
        except DownstreamError as error:
            self.session.router.work_done(self)
            self.on_failure(error)
            return
        self.session.router.work_done(self)
        self.next_round(retry_members(needed, answers))

    def on_error(self, error: Raw) -> None:
        if self._can_mend_headers(error):
            super().on_error(error)
            return
        # A client can do nothing about a code that it would have handled for a call of its own.
        read = read_error(error)
        if self._becomes_task(read):
            return
        self._note_failure("error", read.code)
        self.finish_result(error_result(f"[{self.where}] {read.message}", read))

    def finish_result(self, result: bytes | Raw, server_info: bytes | Raw | None = None) -> None:
        self.emit("result", bytes(result))

    def _asks_to_sign_in(self, error: SignInNeeded) -> bool:
        # A modern client is asked in the result of its own call, which goes on.
        return not self.revision.asks_in_results and super()._asks_to_sign_in(error)

    def emit(self, kind: Literal["result", "error"], *parts: Part) -> None:
        passage = passage_of(self)
        if passage is not None:
            passage.end_with(kind, parts)
        if not self.ended.done():
            self.ended.set_result((kind, b"".join(parts)))

    # ── what concerns the client's own call ──

    def on_progress(self, params: Raw) -> None:
        message = decode_object(params).get("message")
        self.outer.progress_within(message)

    @property
    def is_inner(self) -> bool:
        return True

    @property
    def _asked(self) -> ClientCall:
        return self.outer

    @property
    def was_sent(self) -> bool:
        return self.route.is_task or self.route.wire_id > 0

    def report(self, done: int, total: int, message: str = "") -> None:
        self.outer.progress_within(Raw(encode(message)) if message else None)

    def keep_waiting(self) -> None:
        """The client is kept waiting for its own call."""

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        return self.outer.relay_request(traffic, id, method, params)

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        self.outer.relay_cancel(traffic, id, params)

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        if not method.startswith("notifications/tasks"):
            self.outer.relay_notification(traffic, method, params)

    def user(self) -> OwnQuestions:
        from mcp_workbench.engine.session.own_questions import OwnQuestions

        return OwnQuestions(self.outer, self)

    def note_question(self, is_open: bool) -> None:
        self.open_questions += 1 if is_open else -1
        if self.on_asked is not None and self.open_questions == is_open:
            self.on_asked(is_open)


def inner_call(outer: ClientCall, params: dict[str, Raw]) -> ClientInnerCall:
    return ClientInnerCall(
        outer.session,
        outer.client,
        outer.id,
        outer.method,
        outer.view,
        outer.caller,
        outer.revision,
        Route(outer.caller, identity=outer.route.identity, trace_parent=outer.route.trace_parent),
        outer.meta,
        outer.progress_token,
        outer.log_level,
        params,
        outer.client_info,
        outer=outer,
        ended=asyncio.get_running_loop().create_future(),
    )
