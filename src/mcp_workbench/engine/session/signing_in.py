"""A call that needs a sign-in: the user is shown the page, and the call continues when they have signed in.

A legacy client is asked with `elicitation/create` in mode `url`; a modern one gets `input_required` and retries. Other
clients get an error: with the address of the page if the client is known to show it, otherwise with the command to run.
Does not know how a sign-in works (`SignInService`).
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import ErrorObject, read_error
from mcp_workbench.engine.jsonrpc.pending import Exchange
from mcp_workbench.engine.protocol.constants import ANSWERS_INPUT_REQUIRED, URL_ELICITATION_REQUIRED
from mcp_workbench.engine.protocol.results import may_mention, meta_of
from mcp_workbench.engine.session.parking import input_required
from mcp_workbench.engine.session.questions import MAX_QUESTIONS_PER_CALL, members_of, unreadable
from mcp_workbench.errors import DownstreamError, SignInNeeded, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.session.client_call import ClientCall

# The key under which a modern client answers.
SIGN_IN_KEY: Final = "sign-in"
SIGN_IN_DECLINED: Final = "the sign-in was declined"


class PendingSignIn(Protocol):
    """A sign-in in progress. It has its own time limits."""

    @property
    def url(self) -> str: ...

    @property
    def has_returned(self) -> bool:
        """Whether the user is back from the page."""

    async def wait(self) -> object:
        """Return when the user is done. Raises `DownstreamError`."""


class SignInService(Protocol):
    """Begins sign-ins."""

    async def begin_sign_in(self, entry: ServerEntry, principal: str, introduction: tuple[bytes, str]) -> PendingSignIn:
        """Begin a sign-in, or join the one in progress. Raises `DownstreamError` if this client's user cannot sign
        in."""

    def sign_in_under_way(self, entry: ServerEntry, principal: str) -> PendingSignIn | None:
        """The sign-in that the user has been shown already."""

    def has_just_signed_in(self, entry: ServerEntry, principal: str) -> bool:
        """Whether the user signed in a moment ago."""


class _PageQuestion(Exchange):
    """The request to a legacy client to show the page."""

    # True if the user agreed to open the page.
    agreed: asyncio.Future[bool]

    def on_result(self, result: Raw) -> None:
        self._settle(bytes(members_of(result).get("action", b"")) == b'"accept"')

    def on_error(self, error: Raw) -> None:
        self._settle(False)

    def on_failure(self, error: WorkbenchError) -> None:
        self._settle(False)

    def _settle(self, agreed: bool) -> None:
        if not self.agreed.done():
            self.agreed.set_result(agreed)


async def sign_in(call: ClientCall, sign_ins: SignInService, needed: SignInNeeded) -> None:
    """Have the user sign in, then send the call. If that is not possible, the call ends with the error."""
    assert call.route.entry is not None
    principal = call.view.principal
    try:
        if call.revision.asks_in_results and SIGN_IN_KEY in members_of(call.params.get("inputResponses")):
            pending = sign_ins.sign_in_under_way(call.route.entry, principal)
            if pending is not None:
                await pending.wait()
            if pending is not None or not call.was_resent:
                # If none is in progress, it has ended in between, and the call is sent to the server again. The user is
                # not asked again: a user who is refused in spite of signing in would be sent to the page over and over.
                call.was_resent = call.was_asked_to_sign_in = True
                _go_on(call)
                return
        pending = await sign_ins.begin_sign_in(call.route.entry, principal, call.introduction)
        if call.revision.asks_in_results:
            _answer_with_page(call, pending, needed)
            return
        if not await _ask_legacy(call, pending, needed):
            call.on_failure(DownstreamError(f"{needed.message}; {SIGN_IN_DECLINED}", hint=needed.hint))
            return
    except DownstreamError as error:
        text = needed.message if isinstance(error, SignInNeeded) else f"{needed.message}; {error.message}"
        call.on_failure(DownstreamError(text, hint=needed.hint))
        return
    _go_on(call)


async def show_link(call: ClientCall, sign_ins: SignInService, needed: SignInNeeded) -> None:
    """Answer with the address of the page, for a client that cannot be asked but shows the content of results."""
    assert call.route.entry is not None
    try:
        pending = sign_ins.sign_in_under_way(call.route.entry, call.view.principal)
        has_returned = pending is not None and pending.has_returned
        if pending is not None and has_returned:
            await pending.wait()
        if has_returned or sign_ins.has_just_signed_in(call.route.entry, call.view.principal):
            # The call came while the token was being fetched. If it is refused again, it fails.
            _go_on(call)
            return
        pending = await sign_ins.begin_sign_in(call.route.entry, call.view.principal, call.introduction)
    except DownstreamError as error:
        text = needed.message if isinstance(error, SignInNeeded) else f"{needed.message}; {error.message}"
    else:
        text = f"{needed.message}: ask the user to open {pending.url} and to sign in there, then call again"
    call.session.router.work_done(call)
    call.on_failure(DownstreamError(text, hint=needed.hint))


def how_to_ask(call: ClientCall) -> str:
    """How the user of this client is asked to sign in: `ask`, `link` or `command`."""
    known = call.view.face.recognise(call.client_info).sign_in
    if known != "command" and can_visit_pages(call.caller.capabilities):
        return "ask"
    return "link" if known == "link" else "command"


def can_visit_pages(capabilities: bytes) -> bool:
    """Whether a client with these capabilities can be asked to open a page."""
    return "url" in members_of(messages.decode_object(capabilities).get("elicitation"))


def _go_on(call: ClientCall) -> None:
    call.session.router.work_done(call)
    if call.route.decision is None:
        # The tool has not been resolved yet, because the server could not be asked for its list.
        call.start_over()
    else:
        call.session.router.send_again(call, call.route.decision.body)


def _params(call: ClientCall, pending: PendingSignIn, needed: SignInNeeded) -> dict[str, object]:
    assert call.route.entry is not None
    text = f"[{call.route.entry.label}] {needed.message}. Open the page, sign in there, and come back."
    return {"mode": "url", "message": text, "url": pending.url}


def _answer_with_page(call: ClientCall, pending: PendingSignIn, needed: SignInNeeded) -> None:
    asked = Raw(messages.encode({"method": "elicitation/create", "params": _params(call, pending, needed)}))
    state = call.session.parking.state_without_parking(call)
    call.emit("result", input_required({SIGN_IN_KEY: asked}, state, meta_of(call.session.welcome.info)))


async def _ask_legacy(call: ClientCall, pending: PendingSignIn, needed: SignInNeeded) -> bool:
    """Whether the user signed in, even if the client has not answered."""
    # The notification at the end refers to the page by this id (2025-11-25).
    id = os.urandom(12).hex()
    params = Raw(messages.encode({**_params(call, pending, needed), "elicitationId": id}))
    question = _PageQuestion(agreed=asyncio.get_running_loop().create_future())
    questions = call.session.questions
    done = asyncio.ensure_future(pending.wait())
    call.note_question(True)
    try:
        questions.ask(question, "elicitation/create", params, call.id)
        # The answer means that the user agreed to open the page (2025-11-25), not that they have signed in; and they
        # may have signed in before it arrives.
        either: set[asyncio.Future[Any]] = {done, question.agreed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and not question.agreed.result():
            return False
        await done
        call.session.notify("notifications/elicitation/complete", messages.encode({"elicitationId": id}), call.id)
        return True
    finally:
        call.note_question(False)
        done.cancel()
        questions.forget(question)


# A server's error that lists pages the user has to visit first (URL elicitation required, 2025-11-25).
# A legacy client gets the error with the name of the server; a modern one is asked in a result, as modern servers do
# it, and retries.
class _PagesToVisit(Struct):
    elicitations: list[dict[str, Raw]]


_decode_pages: Final = Decoder(_PagesToVisit).decode


def attributed(call: ClientCall, error: Raw, read: ErrorObject) -> Raw:
    """Return the error; if it lists pages, each with the name of the server. Raises `BadQuestion`."""
    if call.route.entry is None:
        return error
    if read.code != URL_ELICITATION_REQUIRED or isinstance(read.data, UnsetType):
        if isinstance(read.data, UnsetType) and may_mention(error, "elicitations"):
            # We cannot read this error, but a client might, and would show pages that have not been checked.
            raise unreadable()
        return error
    pages = call.session.attribution(call.route.entry.label).pages(read.data)
    return Raw(messages.encode({**messages.decode_object(error), "data": pages}))


def asks_for_visit(call: ClientCall, error: Raw) -> bool:
    """Whether a modern client is asked to show the pages. It retries the call after they have been visited."""
    read = read_error(error)
    if read.code != URL_ELICITATION_REQUIRED or isinstance(read.data, UnsetType):
        return False
    declared = members_of(messages.decode_object(call.caller.capabilities).get("elicitation"))
    try:
        pages = _decode_pages(read.data).elicitations
    except (DecodeError, ValidationError):
        return False
    if (
        "url" not in declared
        or not 0 < len(pages) <= MAX_QUESTIONS_PER_CALL
        or call.method not in ANSWERS_INPUT_REQUIRED
    ):
        return False
    asked = {
        f"question-{number}": Raw(messages.encode({"method": "elicitation/create", "params": page}))
        for number, page in enumerate(pages, 1)
    }
    state = call.session.parking.state_without_parking(call)
    call.emit("result", input_required(asked, state, call.made_by()))
    return True
