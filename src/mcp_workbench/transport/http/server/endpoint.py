"""What is served: from the head of a request to the one who answers it.

Owns the order of the checks: sender, caller, method, types, size, then the body. Both eras at one address, and beside
it the pages of a table.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Malformed
from mcp_workbench.protocol.constants import HEADER_MISMATCH
from mcp_workbench.protocol.revisions import KNOWN, has_handshake
from mcp_workbench.transport.http import vocabulary as words
from mcp_workbench.transport.http.message_summary import MessageSummary, is_batch, single_line, split_batch, summarise
from mcp_workbench.transport.http.server.admission import CORS_ALLOWED, Admission, Refusal, check_post
from mcp_workbench.transport.http.server.arrival import Arrival
from mcp_workbench.transport.http.server.exchange import JSON_HEADERS, Exchange
from mcp_workbench.transport.http.server.limits import MOST_IN_BATCH, Limits
from mcp_workbench.transport.http.server.outlet import NO_HEADERS, Headers, Outlet
from mcp_workbench.transport.http.server.pages import Page, Readiness, ReadinessPage, operator_pages
from mcp_workbench.transport.http.server.sessions import LegacySession, Posted, SessionTable
from mcp_workbench.transport.http.server.sides import MakeSession
from mcp_workbench.transport.http.server.statuses import STATUS_OF_CODE
from mcp_workbench.transport.http.server.sweeps import Sweep
from mcp_workbench.transport.http.server.throttle import AuthenticationThrottle
from mcp_workbench.transport.http.server.validation import ParametersOf, is_stateless, mismatch

log = logging.getLogger(__name__)

MCP_PATH: Final = "/mcp"
SHUTTING_DOWN: Final = "the workbench is shutting down"
_ALLOW_ALL: Final[Headers] = b"allow: POST, GET, DELETE\r\n"
_ALLOW_POST: Final[Headers] = b"allow: POST\r\n"
_ALLOW_GET: Final[Headers] = b"allow: GET, HEAD\r\n"


class Endpoint:
    """Everything that we serve over HTTP."""

    def __init__(
        self,
        admission: Admission,
        make_session: MakeSession,
        limits: Limits,
        *,
        readiness: Readiness | None = None,
        parameters_of: ParametersOf | None = None,
    ) -> None:
        self.is_draining = False
        self._admission = admission
        self._make_session = make_session
        self._limits = limits
        self._parameters_of = parameters_of
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._throttle = AuthenticationThrottle(self._now)
        self.readiness = ReadinessPage(readiness, self._now)
        self._pages = operator_pages(self.readiness)
        self.sessions = SessionTable(make_session, limits, self._now)
        # Modern requests under way.
        self.exchanges: Sweep[Exchange] = Sweep(limits.comment_seconds / 3)

    # ── the head (`Site`) ──

    def admit(self, arrival: Arrival) -> Refusal | None:
        """Whether a request comes in, decided on its head alone."""
        page = self._pages.get(arrival.path)
        refusal = self._admission.check_sender(arrival, needs_host=page is None)
        if refusal is not None:
            return refusal
        if page is not None:
            return self._admit_to_page(arrival, page)
        if arrival.path != MCP_PATH:
            return Refusal(404, f"nothing is here; the MCP endpoint is {MCP_PATH}")
        if arrival.method == "OPTIONS" and "access-control-request-method" in arrival.headers:
            # A browser asks without credentials whether it may come with them.
            return None
        refusal = self._admission.check_caller(arrival)
        if refusal is not None:
            return refusal
        return self._admit_post(arrival) if arrival.method == "POST" else self._admit_without_body(arrival)

    def is_still_admitted(self, arrival: Arrival) -> bool:
        """Whether a head that came in before does so now: a token may prove nobody any more."""
        return self._admission.authenticate(arrival) == arrival.principal

    def _admit_post(self, arrival: Arrival) -> Refusal | None:
        declared = arrival.declared_bytes
        if declared is not None and declared > self._limits.message_bytes:
            return Refusal.too_large(self._limits.message_bytes)
        arrival.takes_body = True
        return check_post(arrival)

    def _admit_without_body(self, arrival: Arrival) -> Refusal | None:
        if arrival.method not in ("GET", "DELETE"):
            return Refusal(405, "the MCP endpoint takes POST, GET and DELETE", _ALLOW_ALL)
        version = arrival.get(words.PROTOCOL_VERSION)
        if version is not None and not has_handshake(version):
            return Refusal(405, f"this revision of MCP has no {arrival.method}", _ALLOW_POST)
        if arrival.method == "GET" and not arrival.accepts(words.EVENT_STREAM):
            return Refusal(406, "`Accept` must list text/event-stream")
        return None

    def _admit_to_page(self, arrival: Arrival, page: Page) -> Refusal | None:
        if arrival.method not in ("GET", "HEAD"):
            return Refusal(405, "this page is for reading", _ALLOW_GET)
        if not page.knows_callers:
            return None
        refusal = self._admission.check_caller(arrival)
        # Who shows nothing sees what everybody may. Who guesses does not get to guess here.
        return refusal if "authorization" in arrival.headers else None

    def refuse(self, arrival: Arrival, refusal: Refusal, outlet: Outlet) -> None:
        """Answer a request that does not come in."""
        log.debug("refused %s %s: %d, %s", arrival.method, arrival.path[:200], refusal.status, refusal.message)
        if refusal.status != 401:
            _answer_refusal(refusal, outlet)
            return
        delay = self._throttle.failed(arrival.peer, refusal.message)
        if delay is None:
            outlet.abort()
        elif delay:
            self._loop.call_later(delay, self._answer_late, arrival.peer, refusal, outlet)
        else:
            _answer_refusal(refusal, outlet)

    def _answer_late(self, peer: str, refusal: Refusal, outlet: Outlet) -> None:
        self._throttle.answered(peer)
        _answer_refusal(refusal, outlet)

    # ── the whole (`Site`) ──

    def serve(self, arrival: Arrival, body: bytes, outlet: Outlet) -> None:
        """Answer a request, now or later."""
        if "origin" in arrival.headers:
            outlet.add_headers(self._admission.cors_headers(arrival))
        try:
            if arrival.method == "POST":
                self._serve_post(arrival, body, outlet)
            else:
                self._serve_rest(arrival, outlet)
        except Exception:
            log.exception("a defect of ours; please report it")
            _complain(outlet, None, INTERNAL_ERROR, "a defect of the workbench; its log says more", status=500)

    def _serve_rest(self, arrival: Arrival, outlet: Outlet) -> None:
        page = self._pages.get(arrival.path)
        if page is not None:
            response = page.respond(bool(arrival.principal))
            outlet.answer(response.status, response.headers, response.body)
        elif arrival.method == "OPTIONS":
            outlet.answer(204, CORS_ALLOWED)
        else:
            self._serve_session(arrival, outlet)

    def _serve_session(self, arrival: Arrival, outlet: Outlet) -> None:
        session = self._find_session(arrival)
        if isinstance(session, Refusal):
            self.refuse(arrival, session, outlet)
        elif arrival.method == "DELETE":
            session.end("the client ended it")
            outlet.answer(204, NO_HEADERS)
        else:
            last_event_id = arrival.get(words.LAST_EVENT_ID)
            if not last_event_id:
                session.listen(outlet)
            elif not session.resume(outlet, last_event_id):
                self.refuse(arrival, Refusal(400, "there is nothing to resume from this event"), outlet)

    # ── POST ──

    def _serve_post(self, arrival: Arrival, body: bytes, outlet: Outlet) -> None:
        if b"\n" in body or b"\r" in body:
            body = single_line(body)
        if body[:1] != b"{" and is_batch(body):
            self._serve_batch(arrival, body, outlet)
            return
        try:
            summary = summarise(body)
        except Malformed as error:
            _complain(outlet, error.id, error.code, error.complaint)
            return
        if summary.kind == "request":
            if not messages.is_valid_id(summary.id or b"null"):
                _complain(outlet, None, INVALID_REQUEST, "`id` must be a string or a number")
                return
            if self.is_draining:
                _complain(outlet, summary.id, INTERNAL_ERROR, SHUTTING_DOWN, status=503)
                return
        if is_stateless(arrival, summary):
            self._serve_modern(arrival, summary, body, outlet)
        elif summary.method == "initialize" and summary.kind == "request":
            if not self.sessions.open(arrival.principal, summary, body, outlet):
                text = "there is no room for another session; try again later"
                _complain(outlet, summary.id, INTERNAL_ERROR, text, status=503)
        else:
            session = self._find_session(arrival)
            if isinstance(session, Refusal):
                _complain(outlet, summary.id, INVALID_REQUEST, session.message, status=session.status)
            else:
                _serve_legacy(session, [(body, summary)], outlet)

    def _serve_modern(self, arrival: Arrival, summary: MessageSummary, body: bytes, outlet: Outlet) -> None:
        if summary.kind == "notification":
            # The revision defines none over HTTP; to cancel is to disconnect.
            outlet.answer(202, NO_HEADERS)
            return
        if summary.kind != "request":
            _complain(outlet, None, INVALID_REQUEST, "clients of this revision send requests only")
            return
        wrong = mismatch(arrival, summary, self._parameters_of)
        if wrong is not None:
            _complain(outlet, summary.id, HEADER_MISMATCH, f"Header mismatch: {wrong}")
        elif summary.method == "initialize":
            _complain(outlet, summary.id, METHOD_NOT_FOUND, "`initialize` does not exist in this revision")
        else:
            exchange = Exchange(summary, outlet, self.exchanges, self._now(), self._limits)
            exchange.start(self._make_session(exchange, arrival.principal), body, summary)

    def _serve_batch(self, arrival: Arrival, body: bytes, outlet: Outlet) -> None:
        session = self._find_session(arrival)
        if isinstance(session, Refusal):
            _complain(outlet, None, INVALID_REQUEST, session.message, status=session.status)
            return
        if session.revision is None or not session.revision.has_batches:
            having = ", ".join(revision.name for revision in KNOWN.values() if revision.has_batches)
            _complain(outlet, None, INVALID_REQUEST, f"only MCP {having} has batches")
            return
        try:
            posted = [(each, summarise(each)) for each in split_batch(body)]
        except Malformed as error:
            _complain(outlet, None, error.code, error.complaint)
            return
        ids = [summary.id for _, summary in posted if summary.kind == "request"]
        if not posted or len(posted) > MOST_IN_BATCH:
            _complain(outlet, None, INVALID_REQUEST, f"a batch has 1 to {MOST_IN_BATCH} messages")
        elif len(set(ids)) != len(ids) or not all(messages.is_valid_id(id or b"null") for id in ids):
            _complain(outlet, None, INVALID_REQUEST, "each request needs an `id` of its own, a string or a number")
        elif ids and self.is_draining:
            refusals = [messages.error_response(id, INTERNAL_ERROR, SHUTTING_DOWN) for id in ids]
            outlet.answer(503, JSON_HEADERS, b"[%b]" % b",".join(refusals))
        elif any(summary.method == "initialize" for _, summary in posted):
            _complain(outlet, None, INVALID_REQUEST, "`initialize` cannot be part of a batch")
        else:
            _serve_legacy(session, posted, outlet)

    def _find_session(self, arrival: Arrival) -> LegacySession | Refusal:
        id = arrival.get(words.SESSION_ID)
        if id is None:
            return Refusal(400, "no session: send `initialize` first, or stamp each request (MCP 2026-07-28)")
        version = arrival.get(words.PROTOCOL_VERSION)
        if version is not None and not has_handshake(version):
            return Refusal(400, f"`{words.PROTOCOL_VERSION}` names no revision that has sessions")
        found = self.sessions.find(id, arrival.principal)
        return Refusal(404, "there is no such session; send `initialize` again") if found is None else found


def _answer_refusal(refusal: Refusal, outlet: Outlet) -> None:
    body = messages.error_response(None, refusal.code, refusal.message)
    outlet.answer(refusal.status, JSON_HEADERS + refusal.headers, body)


def _serve_legacy(session: LegacySession, posted: Posted, outlet: Outlet) -> None:
    ids = {summary.id for _, summary in posted if summary.kind == "request" and summary.id is not None}
    for id in ids:
        if session.is_under_way(id):
            _complain(outlet, id, INVALID_REQUEST, "a request with this id is still under way")
            return
    if ids:
        session.request(posted, ids, outlet)
        return
    for message, summary in posted:
        session.tell(message, summary)
    outlet.answer(202, NO_HEADERS)


def _complain(outlet: Outlet, id: bytes | None, code: int, message: str, *, status: int | None = None) -> None:
    """A JSON-RPC error of ours, instead of a session's."""
    body = messages.error_response(id, code, message)
    outlet.answer(status or STATUS_OF_CODE.get(code, 400), JSON_HEADERS, body)
