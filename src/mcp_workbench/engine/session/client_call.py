"""A client's request in flight, from its arrival to its only response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.downstream.clients import ClientPeer
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import error_result, failure_text, with_notice, with_restart
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, REFUSED_FORMAT, ErrorObject, Part, read_error
from mcp_workbench.engine.protocol.constants import (
    ANSWERS_INPUT_REQUIRED,
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    PROGRESS_TOKEN,
    STATELESS_CODES,
    URL_ELICITATION_REQUIRED,
)
from mcp_workbench.engine.protocol.logging_levels import is_severe as is_severe
from mcp_workbench.engine.protocol.results import (
    ASKING,
    IS_ERROR_KEY,
    error_for_client,
    is_ordinary,
    legacy_result,
    may_be_failure,
    meta_of,
    modern_parts,
    result_type,
    type_and_spelling,
)
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.engine.protocol.sealed_state import RETRY_MEMBERS, digest_of
from mcp_workbench.engine.router.routed_call import Route, note_round, passage_of
from mcp_workbench.engine.session.parking import Parked
from mcp_workbench.engine.session.questions import (
    NEEDED_CAPABILITY,
    BadQuestion,
    can_answer,
)
from mcp_workbench.engine.transport.link import SESSION_LOST
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW
from mcp_workbench.errors import DownstreamError, DownstreamTimeout, SignInNeeded, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.session.inner_call import ClientInnerCall
    from mcp_workbench.engine.session.own_questions import OwnQuestions
    from mcp_workbench.engine.session.rounds import Round
    from mcp_workbench.engine.session.session import Session
    from mcp_workbench.engine.steps import Denial, Failure

log = logging.getLogger(__name__)
# Codes that a client handles itself: URL elicitation required, header mismatch, missing client capability, unsupported
# protocol version. A model could do nothing with them.
CODES_FOR_CLIENTS: Final = STATELESS_CODES | {URL_ELICITATION_REQUIRED}
# The types of results that are not final.
UNFINISHED_TYPES: Final = frozenset({ASKING, "task"})
# What a server names that can only make a call as a task.
TASKS_EXTENSION_BYTES: Final = b"io.modelcontextprotocol/tasks"
# Larger results are searched in a thread.
LARGE_RESULT: Final = 4 << 20
# Requests whose response may hold the result of a call that became a task.
ENDS_TASK: Final = frozenset({"tasks/result", "tasks/get"})
# Useless to clients that are asked in results: the result of their retry tells them the same.
NOT_FOR_RETRYING_CLIENTS: Final = frozenset({"notifications/elicitation/complete"})

_decode_progress: Final = Decoder(float).decode
# Progress has to increase with each notification (*Progress*), and the server's next value should still be higher.
_PROGRESS_STEP: Final = 1e-6


def progress_in(fields: dict[str, Raw]) -> float:
    """The `progress` in a progress notification; 0 if it is missing or invalid."""
    try:
        return _decode_progress(fields["progress"])
    except (KeyError, DecodeError, ValidationError):
        return 0.0


class ClientCall(Struct, eq=False):
    """One request of one client, and how it is answered (`RoutedCall`).

    The router decides where it goes (`route`), and `downstream` exchanges the messages with the server. A `Struct`,
    because each call needs one and those are made in C.
    """

    session: Session
    # The session as servers see it: a client that they may ask.
    client: ClientPeer
    id: bytes
    method: str
    view: View
    caller: Caller
    # The revision that the client speaks.
    revision: Revision
    route: Route
    meta: Raw | None
    progress_token: Raw | None
    log_level: str | None
    # As the client sent them, without `_meta`. A retry must repeat them.
    params: dict[str, Raw]
    # The `clientInfo` of this request, or of the handshake.
    client_info: bytes
    # Whether it has a `requestState` that is not ours but was issued by a modern server.
    is_retry: bool = False
    # The two directions of the bridge: waiting for a modern client to retry, and asking a legacy client.
    parked: Parked | None = None
    round: Round | None = None
    rounds: int = 0
    was_resent: bool = False
    was_asked_to_sign_in: bool = False
    # The progress last sent to the client.
    progress: float = 0.0
    # Whether its result was searched, and does not say that the tool failed.
    is_success: bool = False

    @property
    def introduction(self) -> tuple[bytes, str]:
        """The `clientInfo`, and the address of the client."""
        return self.client_info, self.session.peer

    @property
    def where(self) -> str:
        """`toolbox/server/tool`, or the part of it that is known."""
        if self.route.entry is None:
            return self.method
        item = self.route.item if self.route.decision is None else self.route.decision.item
        return f"{self.route.entry.toolbox}/{self.route.entry.name}/{item}".rstrip("/")

    # ── answers from the server ──

    def on_result(self, result: Raw) -> None:
        if not self.revision.asks_in_results:
            traffic = self.route.traffic
            # A legacy client would mistake `input_required` for the result of its call, so it is asked with requests.
            if traffic is not None and traffic.takes_retries and result_type(result) == ASKING:
                self._ask_in_rounds(result)
                return
        self.session.router.take_result(self, result)

    def pass_on(self, result: Raw, *, is_whole: bool = True) -> None:
        """Answer the client with the server's result, as rewritten by the face. `is_whole`: it was not shortened."""
        route, changed, revision = self.route, self.view.changed, self.revision
        decision, traffic = route.decision, route.traffic
        if traffic is not None and self.method == "tools/call" and len(result) < JOIN_BELOW and not changed:
            # Nearly all: copied once and searched for everything that would need a closer look.
            written = bytes(result)
            if traffic.clients.untold:
                pass
            elif revision.has_result_types:
                if traffic.result_head and is_ordinary(written):
                    self.is_success = True
                    self.emit("result", traffic.result_head, written[1:])
                    return
            elif not (traffic.takes_retries or "task" in self.params or written.partition(IS_ERROR_KEY)[1]):
                self.is_success = True
                self.emit("result", written)
                return
        # The method is looked at here: nearly no call is about a task.
        if decision is not None and (decision.shows_errors or (self.method in ENDS_TASK and self._ends_task)):
            if len(result) > LARGE_RESULT:
                self.session.router.start_for(self, self._pass_on_large(result, is_whole=is_whole, is_examined=False))
                return
            if may_be_failure(result):
                result = self._with_context(result, is_whole=is_whole)
            else:
                self.is_success = True
        if changed or (traffic is not None and traffic.clients.untold):
            if len(result) > LARGE_RESULT:
                self.session.router.start_for(self, self._pass_on_large(result, is_whole=is_whole, is_examined=True))
                return
            for add in self._notes(result_type(result)):
                result = add(result)
        self.finish_result(result, self._server_info() if revision.has_result_types else None)

    async def _pass_on_large(self, result: Raw, *, is_whole: bool, is_examined: bool) -> None:
        """Like `pass_on`, but searched and rewritten in a thread. `is_examined`: no error in it has to be named."""
        is_failure = False if is_examined else await asyncio.to_thread(may_be_failure, result)
        if is_failure:
            result = await asyncio.to_thread(self._with_context, result, is_whole=is_whole)
        for add in self._notes(await asyncio.to_thread(result_type, result)):
            result = await asyncio.to_thread(add, result)
        self.session.router.work_done(self)
        self.finish_result(result, self._server_info() if self.revision.has_result_types else None)

    def _notes(self, kind: str | None) -> list[Callable[[Raw], Raw]]:
        """What adds to this result what its client has to be told, once: toolboxes that have changed, and that a server
        it had open has lost its state. The latter in every face, because the agent cannot know otherwise."""
        decision, changed, traffic, entry = self.route.decision, self.view.changed, self.route.traffic, self.route.entry
        notes: list[Callable[[Raw], Raw]] = []
        # A question is for the client, which does not show it to the agent.
        if kind == ASKING:
            return notes
        if changed and decision is not None and decision.shows_errors:
            notes.append(partial(with_notice, changed=dict(changed)))
            changed.clear()
        if self.method != "tools/call" or traffic is None or entry is None:
            return notes
        if traffic.clients.untold and traffic.clients.take_loss(self.client):
            notes.append(partial(with_restart, entry=entry))
        return notes

    def _with_context(self, result: Raw, *, is_whole: bool) -> Raw:
        # Imported with the first tool that fails, to keep it out of start-up.
        from mcp_workbench.engine.face.error_context import with_context, with_context_in_task

        if self.method not in ENDS_TASK:
            return with_context(result, self.where, is_whole=is_whole)
        decision, entry = self.route.decision, self.route.entry
        assert decision is not None and entry is not None
        tool = self.session.router.tasks.tool_of(self, decision.item)
        where = f"{entry.toolbox}/{entry.name}/{tool}".rstrip("/")
        if self.method == "tasks/result":
            return with_context(result, where, is_whole=is_whole)
        return with_context_in_task(result, where)

    @property
    def _ends_task(self) -> bool:
        """Whether the response about a task holds the result of a tool, in a face that names the tools that failed."""
        return self.view.face.names_failed_tools and self.route.entry is not None

    def on_error(self, error: Raw) -> None:
        """The server answered with a JSON-RPC error.

        If the face shows errors to agents, it becomes a result, unless the client handles that code itself.
        """
        if self._can_mend_headers(error):
            self.was_resent = True
            self.session.router.send_after_listing(self)
            return
        read = read_error(error)
        if self._becomes_task(read):
            return
        self._note_failure("error", read.code)
        if self.route.decision is not None and self.route.decision.shows_errors and read.code not in CODES_FOR_CLIENTS:
            self.finish_result(error_result(f"[{self.where}] {read.message}", read))
            return
        # Errors that cannot be read are given the code `INTERNAL_ERROR`.
        if read.code in (URL_ELICITATION_REQUIRED, INTERNAL_ERROR):
            from mcp_workbench.engine.session.signing_in import asks_for_visit, attributed

            try:
                error = attributed(self, error, read)
            except BadQuestion as reason:
                self.on_failure(DownstreamError(f"the server requires a page to be visited first: {reason}"))
                return
            if self.revision.asks_in_results and asks_for_visit(self, error):
                return
        self.emit("error", memoryview(error_for_client(error, self.method, self.revision)))

    def _can_mend_headers(self, error: Raw) -> bool:
        """Whether the server refused the headers that we made from arguments, because the tool's definition has
        changed. The call has had no effect yet."""
        decision = self.route.decision
        if self.was_resent or decision is None or decision.entry.config.url is None or self.method != "tools/call":
            return False
        # In revisions without these headers, a server may use the code for anything.
        profile = None if self.route.traffic is None else self.route.traffic.profile
        has_headers = profile is not None and profile.revision.has_mirrored_headers
        return has_headers and read_error(error).code == HEADER_MISMATCH

    def _becomes_task(self, error: ErrorObject) -> bool:
        """Whether the server refused a call because it can only be made as a task, and it is made as one now."""
        if error.code != MISSING_CLIENT_CAPABILITY or self.method != "tools/call" or self.route.is_task:
            return False
        if (
            self.route.decision is None
            or not isinstance(error.data, Raw)
            or TASKS_EXTENSION_BYTES not in bytes(error.data)
        ):
            return False
        self.session.router.run_refused_as_task(self)
        return True

    def on_failure(self, error: WorkbenchError) -> None:
        """The server will not answer."""
        self.is_success = False
        if self.round is not None:
            self.round.cancel()
        if isinstance(error, SignInNeeded) and self._asks_to_sign_in(error):
            return
        self._note_failure("timeout" if isinstance(error, DownstreamTimeout) else "error")
        # MCP wants failures of tools in results, which a model can read; a JSON-RPC error is for the client.
        text = failure_text(error, self.where)
        if self.method == "tools/call":
            self.finish_result(error_result(text))
        else:
            self.finish_error(INTERNAL_ERROR, text)

    def _note_failure(self, failure: Failure, code: int | None = None) -> None:
        """For those who count: an agent may be shown this as a result."""
        passage = passage_of(self)
        if passage is not None and not passage.failure:
            passage.failure, passage.failure_code = failure, code

    def _asks_to_sign_in(self, error: SignInNeeded) -> bool:
        """Whether the user is shown the sign-in page, which happens once. The call continues after that."""
        sign_ins, entry = self.session.sign_ins, self.route.entry
        if sign_ins is None or entry is None or self.was_asked_to_sign_in or self.method not in ANSWERS_INPUT_REQUIRED:
            return False
        from mcp_workbench.engine.session.signing_in import how_to_ask, show_link, sign_in

        how = how_to_ask(self)
        # The error names the command to run.
        if how == "command":
            return False
        self.was_asked_to_sign_in = True
        work = sign_in(self, sign_ins, error) if how == "ask" else show_link(self, sign_ins, error)
        self.session.router.start_for(self, work)
        return True

    # ── messages from the server before its answer ──

    def on_progress(self, params: Raw) -> None:
        """Pass progress on with the client's own token."""
        if self.progress_token is not None and not self._is_away:
            # Two clients may have chosen the same token, so servers get one of ours.
            fields = messages.decode_object(params)
            fields[PROGRESS_TOKEN] = self.progress_token
            self.progress = progress_in(fields)
            self.session.notify("notifications/progress", messages.encode(fields), self.id)

    def keep_waiting(self) -> None:
        """Called when the server has sent nothing about this call for a while."""
        if not self._is_away:
            # Imported with the first long call.
            keep_waiting(self)

    # ── calls made for this one ──

    def inner(self, params: dict[str, Raw]) -> ClientInnerCall:
        """A call of its own that is made for this one."""
        # Imported with the first list of calls or program.
        from mcp_workbench.engine.session.inner_call import inner_call

        return inner_call(self, params)

    @property
    def is_inner(self) -> bool:
        return False

    async def answer_inputs(self, result: Raw) -> dict[str, Raw]:
        """Ask the client what its server needs to know to go on. Raises `DownstreamError`."""
        from mcp_workbench.engine.session.relayed_inputs import answers_to, read_input_needed

        return await answers_to(self, self._asked, read_input_needed(result))

    @property
    def _asked(self) -> ClientCall:
        """The call within which the client is asked."""
        return self

    def report(self, done: int, total: int, message: str = "") -> None:
        """Notify the client how many of the calls made for this one have ended."""
        if self.progress_token is not None and not self._is_away:
            self.progress = max(self.progress + _PROGRESS_STEP, float(done))
            fields: dict[str, object] = {PROGRESS_TOKEN: self.progress_token, "progress": self.progress}
            fields |= {"total": total} if total else {}
            fields |= {"message": message} if message else {}
            self.session.notify("notifications/progress", messages.encode(fields), self.id)

    def progress_within(self, message: Raw | None) -> None:
        """Pass on what a server says about a call made for this one."""
        if self.progress_token is not None and not self._is_away:
            self.progress += max(abs(self.progress), 1.0) * _PROGRESS_STEP
            fields = {PROGRESS_TOKEN: self.progress_token, "progress": self.progress}
            fields |= {} if message is None else {"message": message}
            self.session.notify("notifications/progress", messages.encode(fields), self.id)

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """Pass on a question that the server asks during this call."""
        if not self.revision.asks_in_results:
            return self.session.ask(traffic, id, method, params, self.id)
        self.session.parking.question(self, traffic, id, method, params)
        return True

    def send_again(self) -> None:
        """Send it again after the server lost our session. Only once: a third attempt would hardly succeed."""
        if self.was_resent or self.route.is_task or self.route.decision is None:
            self.on_failure(DownstreamError(SESSION_LOST, hint="try again"))
            return
        self.was_resent = True
        self.session.router.send_again(self, self.route.decision.body)

    def note_question(self, is_open: bool) -> None:
        """Of its own call a client knows what it is asked."""

    def can_be_asked(self, method: str) -> bool:
        """Whether a server's question with this method can belong to this call."""
        may_ask = self.method in ANSWERS_INPUT_REQUIRED and method in NEEDED_CAPABILITY
        if self.revision.asks_in_results and not may_ask:
            return False
        return can_answer(messages.decode_object(self.caller.capabilities), method)

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        if self.revision.asks_in_results:
            self.session.parking.withdraw(self, traffic, id)
            return
        self.session.questions.cancelled_by_server(traffic, id, params, self.id)

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """Pass on log messages and other notifications."""
        if self._is_away or (method == "notifications/message" and not self._wants_log(params)):
            return
        if self.revision.asks_in_results and method in NOT_FOR_RETRYING_CLIENTS:
            return
        if method.startswith("notifications/tasks") and params is not None and self.route.entry is not None:
            params = Raw(self.session.router.tasks.shown(self, bytes(params)))
            try:
                params = Raw(bytes(self.session.attribution_in_results(self.route.entry).input_required(params)))
            except BadQuestion:
                # Its question cannot be passed on; the client sees the state of the task when it polls.
                return
        self.session.notify(method, params, self.id)

    def _wants_log(self, params: Raw | None) -> bool:
        is_asked_for = self.revision.has_log_level_per_request
        least = self.log_level if is_asked_for else self.session.log_level
        if least is None:
            # Clients that cannot set a level with each request get all messages, unless they set one for the session.
            return not is_asked_for
        return is_severe(params, least)

    # ── answers to the client ──

    def finish_result(self, result: bytes | Raw, server_info: bytes | Raw | None = None) -> None:
        """Answer with a result. `server_info` is the server that returned it, by default ourselves."""
        revision = self.revision
        is_about_task = self.method in revision.task_methods
        if revision.has_result_types:
            info = server_info or self.session.welcome.info
            if len(result) > LARGE_RESULT:
                self.session.router.start_for(self, self._finish_large(result, info))
                return
            kind, is_escaped = type_and_spelling(result)
            if is_about_task or kind in UNFINISHED_TYPES:
                try:
                    result = self._with_question_or_task(result, kind)
                except BadQuestion as error:
                    self.on_failure(DownstreamError(f"the server's question cannot be asked: {error}"))
                    return
            self.emit("result", *modern_parts(result, kind, self.method, info, is_escaped))
        elif "task" in self.params and self.route.traffic is not None:
            self.emit("result", self.session.router.tasks.remember(self, bytes(result)))
        elif is_about_task and self.route.entry is not None:
            self.emit("result", self.session.router.tasks.shown_result(self, bytes(result)))
        elif self.route.traffic is None or not self.route.traffic.takes_retries:
            self.emit("result", memoryview(result))
        elif len(result) > LARGE_RESULT:
            self.session.router.start_for(self, self._finish_large_legacy(result))
        else:
            self.emit("result", memoryview(legacy_result(result)))

    async def _finish_large_legacy(self, result: bytes | Raw) -> None:
        translated = await asyncio.to_thread(legacy_result, result)
        self.session.router.work_done(self)
        self.emit("result", memoryview(translated))

    async def _finish_large(self, result: bytes | Raw, info: bytes | Raw) -> None:
        """Like `finish_result`, but in a thread, because all of a large result is searched."""
        kind, is_escaped = await asyncio.to_thread(type_and_spelling, result)
        try:
            if self.method in self.revision.task_methods or kind in UNFINISHED_TYPES:
                result = self._with_question_or_task(result, kind)
        except BadQuestion as error:
            self.on_failure(DownstreamError(f"the server's question cannot be asked: {error}"))
            return
        parts = await asyncio.to_thread(modern_parts, result, kind, self.method, info, is_escaped=is_escaped)
        self.session.router.work_done(self)
        self.emit("result", *parts)

    def _with_question_or_task(self, result: bytes | Raw, kind: str | None) -> bytes | Raw:
        """Name the server in questions, and replace the id of a task by the client's. Raises `BadQuestion`."""
        if self.route.entry is not None:
            result = self.session.attribution_in_results(self.route.entry).input_required(result)
        if kind == "task" and self.route.traffic is not None:
            return self.session.router.tasks.remember(self, bytes(result))
        if self.method in self.revision.task_methods and self.route.entry is not None:
            return self.session.router.tasks.shown(self, bytes(result))
        return result

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        if code != INTERNAL_ERROR:
            self._log_refusal(code, message)
        body: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            body["data"] = data
        self.emit("error", messages.encode(body))

    def _log_refusal(self, code: int, message: str) -> None:
        from mcp_workbench.engine.session.client_name import whose

        info, peer = self.introduction
        client = whose(info, self.view.principal, peer)
        log.info(REFUSED_FORMAT, client, self.method[:100], self.id[:100].decode(errors="replace"), code, message)

    def refuse(self, denial: Denial) -> None:
        """Answer a call that a step has denied. If the face shows errors to agents, the answer is a result."""
        if self.round is not None:
            self.round.cancel()
        error = ErrorObject(denial.code, denial.message)
        if denial.data is not None:
            error.data = Raw(messages.encode(denial.data))
        if self.route.decision is not None and self.route.decision.shows_errors:
            self.finish_result(error_result(f"[{self.where}] {denial.message}", error))
        else:
            # Hidden items get the error that servers of the client's revision give for unknown ones.
            self.emit("error", error_for_client(messages.encode(error), self.method, self.revision))

    def user(self) -> OwnQuestions:
        """Access for steps to the user of this call."""
        from mcp_workbench.engine.session.own_questions import OwnQuestions

        return OwnQuestions(self)

    def emit(self, kind: Literal["result", "error"], *parts: Part) -> None:
        """Send the only response, or keep it while the client is away."""
        route, parked = self.route, self.parked
        passage, tracker = route.passage, route.tracker
        # Nearly every request of those who only count is counted without a passage.
        if passage is None and tracker is not None and not (kind == "result" and tracker.counts_result(self, parts)):
            passage = passage_of(self)
        if passage is not None:
            passage.end_with(kind, parts, self.is_success)
        if parked is None:
            self.session.finish(self, kind, parts)
        elif parked.is_away:
            self.session.parking.keep(parked, kind, b"".join(parts))
        else:
            self.session.parking.leave(parked)
            self.session.finish(self, kind, parts)

    def cancel(self, params: dict[str, Raw]) -> None:
        """Cancel it, without a response."""
        if self.round is not None:
            self.round.cancel()
        if self.parked is not None:
            self.session.parking.leave(self.parked)
        self.session.router.cancel(self, params)

    # ── the bridge: legacy server, modern client (`Parking`) ──

    def digest(self) -> str:
        """A digest that identifies this request and its retries."""
        return digest_of(self.method, self.params) if self.parked is None else self.parked.digest

    def slim(self) -> int:
        """Drop what a parked call no longer needs, because it may wait for long. Returns the size of what is kept.

        The server is handling the call, or it would not ask, so the call is never sent again. Its retries are
        recognised by their digest.
        """
        self.was_resent = True
        # The steps keep the arguments: the policy checks them again, and the audit records them at the end.
        passage = passage_of(self)
        self.meta = None
        self.session.router.forget_body(self)
        if self.progress_token is not None:
            # A `Raw` is a view of the whole message, and would keep it in memory.
            self.progress_token = Raw(bytes(self.progress_token))
        given = self.params.get("inputResponses")
        self.params = {} if given is None else {"inputResponses": Raw(bytes(given))}
        judged = 0 if passage is None else len(passage.body)
        return judged + (0 if given is None else len(bytes(given)))

    def send_away(self, result: bytes) -> None:
        """Answer with a question, while the call continues."""
        note_round(self, "input_required")
        self.session.finish(self, "result", (result,))

    def continue_as(self, retry: ClientCall) -> None:
        """Continue as the client's retry, which has a different id and maybe a different connection."""
        session = retry.session
        note_round(self, "input_received")
        session.calls[retry.id] = self
        self.id, self.session, self.client = retry.id, session, session
        # Modern clients declare their capabilities with each request.
        self.caller = retry.caller
        self.progress_token = None if retry.progress_token is None else Raw(bytes(retry.progress_token))
        self.log_level = retry.log_level

    def start_over(self) -> None:
        """Make the call as if it were new, because nothing was parked for this retry."""
        # They answer our own question. No server asked it or issued that state.
        params = {key: value for key, value in self.params.items() if key not in RETRY_MEMBERS}
        self.session.dispatch(self, params)

    def route_again(self) -> None:
        """Decide again where it goes: nothing was sent, and the configuration has changed while it waited."""
        if "requestState" in self.params and not self.is_retry:
            self.start_over()
        else:
            self.session.dispatch(self, self.params)

    def made_by(self) -> bytes:
        """The `_meta` of a result that asks the client on behalf of the server."""
        return meta_of(self._server_info() or self.session.welcome.info)

    def _server_info(self) -> Raw | None:
        """The server's `serverInfo`; None if it sent none."""
        traffic = self.route.traffic
        return None if traffic is None else traffic.server_info

    @property
    def _is_away(self) -> bool:
        """Whether the client has been answered with a question, so that nothing can be sent to it until it retries."""
        return self.parked is not None and self.parked.is_away

    # ── the bridge: modern server, legacy client (`Round`) ──

    def _ask_in_rounds(self, result: Raw) -> None:
        # Imported with the first round, to keep it out of start-up.
        from mcp_workbench.engine.session.rounds import MAX_QUESTION_ROUNDS, Round

        # Its server has answered, but it has not ended.
        note_round(self, "input_required")
        self.rounds += 1
        if self.rounds > MAX_QUESTION_ROUNDS:
            self.on_failure(DownstreamError(f"the server asked {MAX_QUESTION_ROUNDS} times and still has no result"))
            return
        self.round = Round(self)
        self.round.begin(result)

    def next_round(self, members: dict[str, object]) -> None:
        """Send the call again, with the client's answers to this round only."""
        self.round = None
        note_round(self, "input_received")
        assert self.route.decision is not None
        params: dict[str, object] = dict(messages.decode_object(self.route.decision.body + b"}"))
        for name in RETRY_MEMBERS:
            params.pop(name, None)
        self.session.router.send_again(self, messages.encode({**params, **members})[:-1])


# Our own progress notifications while a server sends nothing about a call, for clients that wait longer with
# progress.
def keep_waiting(call: ClientCall) -> None:
    """Notify the client that its call is still running, if that makes it wait longer."""
    if call.progress_token is None or not call.view.face.recognise(call.client_info).progress_extends:
        return
    call.progress += max(abs(call.progress), 1.0) * _PROGRESS_STEP
    fields = {
        PROGRESS_TOKEN: call.progress_token,
        "progress": call.progress,
        "message": f"[{call.where}] still running",
    }
    call.session.notify("notifications/progress", messages.encode(fields), call.id)
