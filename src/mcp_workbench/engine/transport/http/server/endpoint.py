"""What is served: from the head of a request to the code that answers it.

Owns the order of the checks: sender, caller, method, types, size, then the body. Serves both eras at one address, and a
table of pages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REFUSED_FORMAT,
    Malformed,
    ShortRequest,
    read_short_request,
)
from mcp_workbench.engine.protocol.constants import HEADER_MISMATCH
from mcp_workbench.engine.protocol.revisions import KNOWN, has_handshake
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.message_summary import (
    MessageSummary,
    is_batch,
    single_line,
    split_batch,
    stamp_and_version,
    summarise,
    summarise_short,
)
from mcp_workbench.engine.transport.http.server.admission import (
    CORS_ALLOWED,
    Admission,
    Refusal,
    check_post,
    refusal_of,
)
from mcp_workbench.engine.transport.http.server.authentication import (
    ANONYMOUS,
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.engine.transport.http.server.large_bodies import LargeBodies, ReadBody
from mcp_workbench.engine.transport.http.server.limits import MAX_BATCH_MESSAGES, SESSION_RETRY_AFTER, Limits
from mcp_workbench.engine.transport.http.server.modern_request import ModernRequest
from mcp_workbench.engine.transport.http.server.pages import (
    MAX_SITE_BODY,
    NegotiatedPage,
    Page,
    PageAccess,
    Readiness,
    ReadinessPage,
    Site,
    SiteRequest,
    operator_pages,
)
from mcp_workbench.engine.transport.http.server.request_head import HEADER_SPELLINGS, RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import JSON_HEADERS, NO_HEADERS, Headers, ResponseWriter
from mcp_workbench.engine.transport.http.server.served_session import MakeSession, SessionKeeper, SessionUnknowable
from mcp_workbench.engine.transport.http.server.sessions import LegacySession, Posted, SessionTable
from mcp_workbench.engine.transport.http.server.status_codes import STATUS_OF_CODE
from mcp_workbench.engine.transport.http.server.throttle import FAILURE_WINDOW, AuthenticationThrottle
from mcp_workbench.engine.transport.http.server.unauthenticated_connections import network_of
from mcp_workbench.engine.transport.http.server.validation import ShownParameters, has_agreed, is_stateless, mismatch
from mcp_workbench.engine.transport.pieces import Pieces
from mcp_workbench.engine.transport.shared_timer import SharedTimer
from mcp_workbench.errors import shortage

log = logging.getLogger(__name__)
MCP_PATH: Final = "/mcp"
# As numbers: to look for bytes in bytes takes ten times as long.
LINE_FEED: Final = 0x0A
CARRIAGE_RETURN: Final = 0x0D
SHUTTING_DOWN: Final = "the workbench is shutting down"
SESSION_UNKNOWABLE: Final = "it is not known at the moment whether another instance has this session; try again"
_RETRY_SESSION: Final[Headers] = b"retry-after: %d\r\n" % SESSION_RETRY_AFTER
_ALLOW_ALL: Final[Headers] = b"allow: POST, GET, DELETE\r\n"
_ALLOW_POST: Final[Headers] = b"allow: POST\r\n"
_ALLOW_SITE: Final[Headers] = b"allow: GET, HEAD, POST\r\n"
_ALLOW_GET: Final[Headers] = b"allow: GET, HEAD\r\n"

# Called with the peer that failed to authenticate, and the reason.
OnRefused = Callable[[str, str], None]
# The method whose response is a stream of notifications.
LISTEN: Final = "subscriptions/listen"
# Consecutive checks that may fail because the identity provider is unavailable: a restart of the provider ends no
# streams, a longer outage does.
MAX_UNANSWERED_CHECKS: Final = 6
Authenticate = Callable[[RequestHead], "Authentication | asyncio.Future[Authentication]"]


# Streams that stay open: their callers are authenticated again while they last.
# A token is checked with every request, but a stream is one request for hours: without this it would outlive the
# token that opened it. A call in progress may finish. Owns when a caller is checked again; how is the authenticator's
# business.
class OpenStream:
    __slots__ = ("_asked", "_authenticate", "_head", "_principal", "_timer", "_unanswered", "_writer")

    def __init__(
        self, head: RequestHead, writer: ResponseWriter, authenticate: Authenticate, timer: SharedTimer[OpenStream]
    ) -> None:
        self._head = head.for_stream()
        self._principal = head.principal
        self._writer = writer
        self._authenticate = authenticate
        self._timer = timer
        # The pending authentication, while another service is being asked.
        self._asked: asyncio.Future[Authentication] | None = None
        self._unanswered = 0

    def on_timer(self, now: float) -> None:
        if self._writer.is_over:
            self._timer.discard(self)
            return
        found: Authentication | asyncio.Future[Authentication]
        found = self._authenticate(self._head) if self._asked is None else self._asked
        if isinstance(found, asyncio.Future):
            self._asked = found
            if not found.done():
                return
            self._asked = None
            found = self._principal if found.cancelled() else found.result()
        self._judge(found)

    def _judge(self, found: Authentication) -> None:
        if found == self._principal:
            self._unanswered = 0
            return
        if isinstance(found, AuthenticationChallenge) and found.status == UNAVAILABLE:
            self._unanswered += 1
            if self._unanswered <= MAX_UNANSWERED_CHECKS:
                return
        why = found.message if isinstance(found, AuthenticationChallenge) else "this is somebody else now"
        log.info("a stream of `%s` from %s was ended: %s", self._principal, self._head.origin, why)
        self._timer.discard(self)
        # The response ends properly, so the client may open the stream again with a valid token.
        gone = self._writer.gone
        self._writer.finish()
        if gone is not None:
            gone()


class Endpoint:
    def __init__(
        self,
        admission: Admission,
        make_session: MakeSession,
        limits: Limits,
        *,
        readiness: Readiness | None = None,
        parameters_of: ShownParameters | None = None,
        pages: Mapping[str, Page | NegotiatedPage] | None = None,
        site: Site | None = None,
        header_names: Mapping[bytes, str] = HEADER_SPELLINGS,
        on_refused: OnRefused | None = None,
        keeper: SessionKeeper | None = None,
    ) -> None:
        self._on_refused = on_refused or (lambda peer, reason: None)
        self.is_draining = False
        self.depends_on_peer = admission.depends_on_peer
        self.header_names = header_names
        # Only where calls are traced.
        self._reads_trace_parent = names.TRACE_PARENT in header_names.values()
        self._admission = admission
        self._make_session = make_session
        self._limits = limits
        self._parameters_of = parameters_of
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._throttle = AuthenticationThrottle(self._now)
        self.readiness = ReadinessPage(readiness, self._now)
        self._pages = {**operator_pages(self.readiness), **(pages or {})}
        self._site = site
        self._large_bodies = LargeBodies(self._serve_later)
        self._turns = self._large_bodies.turns
        self.sessions = SessionTable(make_session, limits, self._now, keeper)
        # Requests that wait for the session of another instance.
        self.recalling: set[asyncio.Task[None]] = set()
        # Modern requests in progress.
        self.modern_requests: SharedTimer[ModernRequest] = SharedTimer(limits.comment_seconds / 3)
        self.streams: SharedTimer[OpenStream] = SharedTimer(limits.comment_seconds / 3)

    # ── the head (`Application`) ──

    def admit(self, head: RequestHead) -> Refusal | None:
        """Whether to admit a request, decided on its head alone."""
        # The sender first: a foreign page in the user's browser learns nothing, not even which paths exist.
        page = self._pages.get(head.path)
        refusal = self._admission.check_sender(head, needs_host=page is None)
        if refusal is not None:
            return refusal
        head.is_slowed = self._throttle.is_slowed
        if page is not None:
            return self._admit_to_page(head, page)
        if head.path != MCP_PATH:
            if self._is_of_site(head):
                return _admit_to_site(head)
            return Refusal(404, f"not found; the MCP endpoint is {MCP_PATH}")
        if head.method == "OPTIONS" and "access-control-request-method" in head.headers:
            # Preflight requests carry no credentials.
            return None
        refusal = self._admission.check_caller(head)
        if refusal is not None:
            return refusal
        if head.pending is not None:
            # Keep what has arrived of the body until the caller is known; the remaining checks happen then.
            head.takes_body = head.method == "POST"
            return None
        return self._admit_caller(head)

    def admit_known(self, head: RequestHead, caller: Authentication) -> Refusal | None:
        """Decide on a head whose `pending` authentication has completed."""
        if isinstance(caller, AuthenticationChallenge):
            return refusal_of(caller)
        head.principal = caller
        return None if head.path in self._pages else self._admit_caller(head)

    def _admit_caller(self, head: RequestHead) -> Refusal | None:
        version = head.get(names.PROTOCOL_VERSION_HEADER)
        head.lacks_sessions = version is not None and not has_handshake(version)
        return self._admit_post(head) if head.method == "POST" else self._admit_without_body(head)

    def is_still_admitted(self, head: RequestHead) -> bool:
        """Whether a head that was admitted before still is: its token may have been revoked."""
        if head.is_still_proved is not None and head.is_still_proved():
            return True
        return self._admission.authenticate(head) == head.principal

    def _admit_post(self, head: RequestHead) -> Refusal | None:
        # A body without a declared length is bounded while it arrives.
        declared = head.declared_bytes
        if declared is not None and declared > self._limits.message_bytes:
            return Refusal.too_large(self._limits.message_bytes)
        head.takes_body = True
        head.is_ordinary = "origin" not in head.headers
        return check_post(head)

    def _admit_without_body(self, head: RequestHead) -> Refusal | None:
        if head.method not in ("GET", "DELETE"):
            return Refusal(405, "the MCP endpoint accepts POST, GET and DELETE", _ALLOW_ALL)
        # Without sessions there is nothing to listen to and nothing to delete: streams answer POSTs.
        if head.lacks_sessions:
            return Refusal(405, f"this revision of MCP has no {head.method}", _ALLOW_POST)
        if head.method == "GET" and not head.accepts(names.EVENT_STREAM):
            return Refusal(406, "`Accept` must list text/event-stream")
        return None

    def _admit_to_page(self, head: RequestHead, page: Page | NegotiatedPage) -> Refusal | None:
        if head.method not in ("GET", "HEAD"):
            return Refusal(405, "this page is read-only; use GET", _ALLOW_GET)
        if page.access is PageAccess.ANYBODY:
            return None
        refusal = self._admission.check_caller(head)
        return refusal if page.access is PageAccess.CALLERS or "authorization" in head.headers else None

    def refuse(self, head: RequestHead, refusal: Refusal, writer: ResponseWriter) -> None:
        """Answer a request that is not admitted."""
        log.debug("refused %s %s: %d, %s", head.method, head.path[:200], refusal.status, refusal.message)
        # Only guessing credentials is slowed down: no other refusal turns into a success by repetition.
        if not refusal.is_about_caller and not refusal.is_undecided:
            _answer_refusal(refusal, writer)
            return
        peer = network_of(head.origin)
        delay = self._throttle.hold(peer) if refusal.is_undecided else self._count_failure(head, peer, refusal)
        if delay is None:
            writer.abort()
        elif delay:
            self._loop.call_later(delay, self._answer_late, peer, refusal, writer)
        else:
            _answer_refusal(refusal, writer)

    def _count_failure(self, head: RequestHead, peer: str, refusal: Refusal) -> float | None:
        delay = self._throttle.failed(peer, refusal.message)
        if delay == 0.0:
            self._on_refused(head.origin, refusal.message)
        elif (left_out := self._throttle.leave_out(peer)) is not None:
            # An audit line per guess would let an attacker fill the disk, so later ones are counted and summarised.
            self._loop.call_later(FAILURE_WINDOW, self._report_left_out_of, left_out)
        return delay

    def report_left_out(self) -> None:
        """Report the failures counted so far. Called when the server stops."""
        for peer in self._throttle.peers_left_out():
            self._report_left_out_of(peer)

    def _report_left_out_of(self, peer: str) -> None:
        if count := self._throttle.take_left_out(peer):
            self._on_refused(peer, f"{count} more attempts failed within {FAILURE_WINDOW:g} s")

    def _answer_late(self, peer: str, refusal: Refusal, writer: ResponseWriter) -> None:
        self._throttle.answered(peer)
        _answer_refusal(refusal, writer)

    # ── the whole (`Application`) ──

    def serve(
        self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter, *, is_here: bool = False
    ) -> asyncio.Future[None] | None:
        """Answer a request, now or later; returns a future if its body has to be read in a thread first, or its session
        has to be taken over from another instance. `is_here`: not to be looked for at others."""
        try:
            sessions = self.sessions
            if (
                sessions.keeper is not None
                and not is_here
                and (id := head.headers.get(names.SESSION_ID)) is not None
                and sessions.settled.get(id) != head.principal
                and head.path == MCP_PATH
            ):
                recalling = self._loop.create_task(self._serve_recalled(head, body, writer))
                self.recalling.add(recalling)
                recalling.add_done_callback(self.recalling.discard)
                return recalling
            is_next = head.principal == self._turns.sole and not self._large_bodies.behind
            if is_next and head.is_ordinary and type(body) is bytes:
                # Nearly all requests: what follows does not concern them.
                if head.recall is not None:
                    head.recall()
                self._serve_post(head, body, writer)
                return None
            if "origin" in head.headers:
                # Its pages are for no other origin. Forms come from browsers, which always send it with a POST.
                if self._is_of_site(head):
                    self._serve_site(head, body, writer)
                    return None
                writer.add_headers(self._admission.cors_headers(head))
            if head.recall is not None:
                head.recall()
            if head.method != "POST":
                self._serve_rest(head, writer)
            elif is_next and type(body) is bytes:
                self._serve_post(head, body, writer)
            else:
                return self._large_bodies.take(head, body, writer)
        except Exception as error:
            _fail(writer, error)
        return None

    async def _serve_recalled(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> None:
        try:
            await self.sessions.recall(head.get(names.SESSION_ID) or "", head.principal, head.origin)
        except SessionUnknowable:
            # A 404 would end the session for good.
            _answer_refusal(Refusal(503, SESSION_UNKNOWABLE, _RETRY_SESSION, INTERNAL_ERROR), writer)
            return
        except Exception as error:
            _fail(writer, error)
            return
        was_gone = writer.is_over
        served = self.serve(head, body, writer, is_here=True)
        if served is not None:
            await served
        elif was_gone:
            # The client disconnected before the request was served, when no callback was set yet.
            writer.disconnected()

    def _serve_later(self, head: RequestHead, body: bytes | ReadBody, writer: ResponseWriter) -> None:
        """Serve a POST that was large, or queued behind a large one of the same session."""
        try:
            if head.recall is not None:
                head.recall()
            if isinstance(body, bytes):
                self._serve_post(head, body, writer)
            else:
                self._serve_read(head, body, writer)
        except Exception as error:
            _fail(writer, error)

    def _serve_rest(self, head: RequestHead, writer: ResponseWriter) -> None:
        page = self._pages.get(head.path)
        if page is not None:
            response = page.respond(head.principal) if isinstance(page, Page) else page.respond_to(head)
            writer.answer(response.status, response.headers, response.body)
        elif self._is_of_site(head):
            self._serve_site(head, b"", writer)
        elif head.method == "OPTIONS":
            writer.answer(204, CORS_ALLOWED)
        else:
            self._serve_session(head, writer)

    def _is_of_site(self, head: RequestHead) -> bool:
        if self._site is None or head.path == MCP_PATH or head.path in self._pages:
            return False
        return self._site.takes(head.path)

    def _serve_site(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> None:
        assert self._site is not None

        def identify(
            key: str, prove: Callable[[object], None], *, is_again: bool = False
        ) -> Authentication | asyncio.Future[Authentication]:
            shown = head.for_stream()
            shown.is_of_stream = is_again
            shown.is_slowed = self._throttle.is_slowed
            shown.headers = {**head.headers, "authorization": f"Bearer {key}"}
            found = self._admission.authenticate(shown)
            if isinstance(found, asyncio.Future):
                found.add_done_callback(lambda _: prove(shown.identity))
            else:
                prove(shown.identity)
            return found

        def refuse(challenge: AuthenticationChallenge, headers: Headers, page: bytes) -> None:
            self.refuse(head, replace(refusal_of(challenge), page=(headers, page)), writer)

        # Larger bodies were refused on their head.
        whole = body if isinstance(body, bytes) else b""
        self._site.serve(SiteRequest(head, head.target.partition(b"?")[2], whole, identify, refuse), writer)

    def _serve_session(self, head: RequestHead, writer: ResponseWriter) -> None:
        session = self._find_session(head)
        if isinstance(session, Refusal):
            self.refuse(head, session, writer)
        elif head.method == "DELETE":
            session.end("the client ended it")
            writer.answer(204, NO_HEADERS)
        else:
            last_event_id = head.get(names.LAST_EVENT_ID)
            if not last_event_id:
                session.listen(writer)
            elif not session.resume(writer, last_event_id):
                self.refuse(head, Refusal(400, "the stream cannot be resumed from this event"), writer)
            self._watch(head, writer)

    def _watch(self, head: RequestHead, writer: ResponseWriter) -> None:
        """End a stream when the caller that opened it may no longer call."""
        if not writer.is_over and head.principal != ANONYMOUS:
            self.streams.add(OpenStream(head, writer, self._admission.authenticate, self.streams))

    # ── POST ──

    def _serve_read(self, head: RequestHead, body: ReadBody, writer: ResponseWriter) -> None:
        """Serve a large POST whose body has been read."""
        if body.error is not None:
            raise body.error
        if body.is_batch:
            self._serve_batch(head, body.messages, writer)
        elif body.malformed is not None:
            _complain(head, writer, body.malformed.id, body.malformed.code, body.malformed.complaint)
        else:
            ((message, summary),) = body.posted
            # In the modern era a disconnect cancels the request.
            if not (writer.is_over and is_stateless(head, summary)):
                self._serve_post(head, message, writer, summary)

    def _serve_post(
        self, head: RequestHead, body: bytes, writer: ResponseWriter, summary: MessageSummary | None = None
    ) -> None:
        if summary is None:
            # JSON may span lines over HTTP; over stdio a message is one line.
            if LINE_FEED in body or CARRIAGE_RETURN in body:
                body = single_line(body)
            short = read_short_request(body)
            if short is not None:
                if self._serve_short(head, short, writer):
                    return
                summary = summarise_short(short)
            elif body[:1] != b"{" and is_batch(body):
                self._serve_batch(head, lambda: _split(body), writer)
                return
            else:
                try:
                    summary = summarise(body)
                except Malformed as error:
                    error = error.by_client(body)
                    _complain(head, writer, error.id, error.code, error.complaint)
                    return
        if summary.kind == "request":
            id = summary.id or b"null"
            if not id.isdigit() and not messages.is_valid_id(id):
                _complain(head, writer, None, INVALID_REQUEST, "`id` must be a string or a number")
                return
            if self.is_draining:
                _complain(head, writer, summary.id, INTERNAL_ERROR, SHUTTING_DOWN, status=503)
                return
            if summary.version is not None:
                self._serve_modern(head, summary, id, body, writer)
                return
        if head.lacks_sessions and is_stateless(head, summary):
            self._serve_stateless(head, summary, body, writer)
        elif summary.method == "initialize" and summary.kind == "request":
            if not self.sessions.open(head.principal, summary, body, writer, head.origin):
                text = "there are too many sessions; try again later"
                _complain(head, writer, summary.id, INTERNAL_ERROR, text, status=503)
        else:
            session = self._find_session(head)
            if isinstance(session, Refusal):
                _complain(head, writer, summary.id, INVALID_REQUEST, session.message, status=session.status)
            elif summary.kind != "request" or summary.id is None:
                session.deliver(body, summary)
                writer.answer(202, NO_HEADERS)
            elif summary.id in session.responses:
                text = "a request with this id is still in progress"
                _complain(head, writer, summary.id, INVALID_REQUEST, text)
            else:
                session.request_all([(body, summary)], {summary.id}, writer)

    def _serve_short(self, head: RequestHead, request: ShortRequest, writer: ResponseWriter) -> bool:
        """Serve a modern call like the last with this head, or any request of a session: nearly all are one of these.
        False if it needs a closer look; then nothing has been done."""
        id, method, params = bytes(request.id), request.method, request.params
        if self.is_draining or not (id.isdigit() or messages.is_valid_id(id)):
            return False
        stamp = params.get("_meta")
        if stamp is not None:
            params["_meta"], version = stamp_and_version(stamp)
            if version is not None:
                is_known = method == "tools/call" and has_agreed(head, version, params, self._parameters_of)
                if is_known:
                    self._begin_modern(head, id, method, params, writer)
                return is_known
        if method == "initialize":
            return False
        session = self._find_session(head)
        if isinstance(session, Refusal) or id in session.responses:
            return False
        session.request(id, method, params, writer)
        return True

    def _serve_stateless(self, head: RequestHead, summary: MessageSummary, body: bytes, writer: ResponseWriter) -> None:
        if summary.kind == "request":
            self._serve_modern(head, summary, summary.id or b"null", body, writer)
        elif summary.kind == "notification":
            # The revision defines none over HTTP; a client cancels by disconnecting.
            writer.answer(202, NO_HEADERS)
        else:
            _complain(head, writer, None, INVALID_REQUEST, "clients of this revision may send requests only")

    def _serve_modern(
        self, head: RequestHead, summary: MessageSummary, id: bytes, body: bytes, writer: ResponseWriter
    ) -> None:
        wrong = mismatch(head, summary, self._parameters_of)
        if wrong is not None:
            _complain(head, writer, summary.id, HEADER_MISMATCH, f"Header mismatch: {wrong}")
        elif summary.method == "initialize":
            _complain(head, writer, summary.id, METHOD_NOT_FOUND, "`initialize` does not exist in this revision")
        else:
            self._begin_modern(head, id, summary.method, summary.params, writer, (body, summary))

    def _begin_modern(
        self,
        head: RequestHead,
        id: bytes,
        method: str,
        params: dict[str, Raw] | None,
        writer: ResponseWriter,
        message: tuple[bytes, MessageSummary] | None = None,
    ) -> None:
        """`message`: needed if there are no params that are an object."""
        principal, timer, limits = head.principal, self.modern_requests, self._limits
        origin = head.forwarded or head.address
        request = ModernRequest(id, method, writer, timer, limits, self._now(), origin, principal)
        session = self._make_session(request, principal)
        session.identity = head.identity
        if self._reads_trace_parent:
            session.trace_parent = head.get(names.TRACE_PARENT) or ""
        request.start(session, params, message)
        if method == LISTEN:
            self._watch(head, writer)

    def _serve_batch(self, head: RequestHead, read: Callable[[], Posted], writer: ResponseWriter) -> None:
        session = self._find_session(head)
        if isinstance(session, Refusal):
            _complain(head, writer, None, INVALID_REQUEST, session.message, status=session.status)
            return
        if session.revision is None or not session.revision.has_batches:
            having = ", ".join(revision.name for revision in KNOWN.values() if revision.has_batches)
            _complain(head, writer, None, INVALID_REQUEST, f"only MCP {having} supports batches")
            return
        try:
            posted = read()
        except Malformed as error:
            _complain(head, writer, None, error.code, error.complaint)
            return
        ids = [summary.id for _, summary in posted if summary.kind == "request"]
        if not posted or len(posted) > MAX_BATCH_MESSAGES:
            _complain(head, writer, None, INVALID_REQUEST, f"a batch must have 1 to {MAX_BATCH_MESSAGES} messages")
        elif len(set(ids)) != len(ids) or not all(messages.is_valid_id(id or b"null") for id in ids):
            _complain(head, writer, None, INVALID_REQUEST, "each request needs a unique `id`, a string or a number")
        elif ids and self.is_draining:
            refusals = [messages.error_response(id, INTERNAL_ERROR, SHUTTING_DOWN) for id in ids]
            writer.answer(503, JSON_HEADERS, b"[%b]" % b",".join(refusals))
        elif any(summary.method == "initialize" for _, summary in posted):
            _complain(head, writer, None, INVALID_REQUEST, "`initialize` cannot be part of a batch")
        else:
            _serve_several(head, session, posted, writer)

    def _find_session(self, head: RequestHead) -> LegacySession | Refusal:
        id = head.headers.get(names.SESSION_ID)
        if id is None:
            return Refusal(400, "no session: send `initialize` first, or stamp each request (MCP 2026-07-28)")
        if head.lacks_sessions:
            return Refusal(400, f"`{names.PROTOCOL_VERSION_HEADER}` does not name a revision with sessions")
        # Another principal's session gets the same answer as a missing one, so that ids cannot be probed.
        found = self.sessions.find(id, head.principal)
        if found is None:
            return Refusal(404, "there is no such session; send `initialize` again")
        session = found.session
        if session is not None:
            # Nearly always the same as before, and comparing takes less than assigning.
            if (peer := head.forwarded or head.address) != session.peer:
                session.peer = peer
            if session.identity is not head.identity:
                session.identity = head.identity
            if self._reads_trace_parent:
                session.trace_parent = head.get(names.TRACE_PARENT) or ""
        return found


def _admit_to_site(head: RequestHead) -> Refusal | None:
    if head.method in ("GET", "HEAD"):
        return None
    if head.method != "POST":
        return Refusal(405, "use GET or POST", _ALLOW_SITE)
    if "origin" not in head.headers:
        return Refusal(403, "forms are accepted from our own pages alone, and this request has no `Origin`")
    declared = head.declared_bytes
    if declared is None:
        return Refusal(411, "the length of the body must be declared")
    if declared > MAX_SITE_BODY:
        return Refusal(413, f"the body is larger than {MAX_SITE_BODY} bytes")
    head.takes_body = True
    return None


def _answer_refusal(refusal: Refusal, writer: ResponseWriter) -> None:
    if refusal.page is not None:
        headers, page = refusal.page
        writer.answer(refusal.status, headers, page)
        return
    body = messages.error_response(None, refusal.code, refusal.message)
    writer.answer(refusal.status, JSON_HEADERS + refusal.headers, body)


def _serve_several(head: RequestHead, session: LegacySession, posted: Posted, writer: ResponseWriter) -> None:
    ids = {summary.id for _, summary in posted if summary.kind == "request" and summary.id is not None}
    for id in ids:
        if id in session.responses:
            _complain(head, writer, id, INVALID_REQUEST, "a request with this id is still in progress")
            return
    if ids:
        session.request_all(posted, ids, writer)
        return
    for message, summary in posted:
        session.deliver(message, summary)
    writer.answer(202, NO_HEADERS)


def _split(body: bytes) -> Posted:
    """Raises `Malformed`."""
    try:
        return [(each, summarise(each)) for each in split_batch(body)]
    except Malformed as error:
        raise error.by_client(body) from None


def _fail(writer: ResponseWriter, error: Exception) -> None:
    """Report a failure that is not the client's fault."""
    what = shortage(error)
    if what is not None:
        log.warning("a request could not be handled: %s", what)
        _complain(
            None, writer, None, INTERNAL_ERROR, f"the workbench could not handle this request: {what}", status=503
        )
        return
    log.error("internal error; please report it", exc_info=error)
    _complain(None, writer, None, INTERNAL_ERROR, "internal error; see the log of the workbench", status=500)


def _complain(
    head: RequestHead | None,
    writer: ResponseWriter,
    id: bytes | None,
    code: int,
    message: str,
    *,
    status: int | None = None,
) -> None:
    """Answer with a JSON-RPC error from the endpoint rather than from a session. `head`: the request that is to blame,
    unless we are."""
    if head is not None:
        # A client whose session has ended is told so, and begins another.
        level = logging.WARNING if status is None else logging.INFO
        shown = "none" if id is None else id[:100].decode(errors="replace")
        log.log(level, REFUSED_FORMAT, f"client {head.principal} {head.origin}", "a message", shown, code, message)
    body = messages.error_response(id, code, message)
    writer.answer(status or STATUS_OF_CODE.get(code, 400), JSON_HEADERS, body)
