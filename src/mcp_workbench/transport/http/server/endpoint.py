"""The ASGI application: from the head of a request to the one who answers it.

Owns the order of the checks: sender, token, method, types, size, then the body. Both eras at one address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, Malformed
from mcp_workbench.transport.http import vocabulary as words
from mcp_workbench.transport.http.carried import Carried, is_batch, look_at, single_line, split_batch
from mcp_workbench.transport.http.server.admission import Admission, Headers, Refusal, check_post
from mcp_workbench.transport.http.server.arrival import Arrival
from mcp_workbench.transport.http.server.body import (
    BodyTooLarge,
    ClientGone,
    linger,
    must_close,
    read_body,
    wait_for_disconnect,
)
from mcp_workbench.transport.http.server.exchange import JSON_HEADERS, Exchange
from mcp_workbench.transport.http.server.limits import MOST_IN_BATCH, Limits
from mcp_workbench.transport.http.server.outlet import Outlet, Receive, Send, StartTask
from mcp_workbench.transport.http.server.sessions import LegacySession, SessionTable
from mcp_workbench.transport.http.server.sides import MakeSession
from mcp_workbench.transport.http.server.statuses import STATUS_OF_CODE
from mcp_workbench.transport.http.server.sweeps import Sweep
from mcp_workbench.transport.http.server.validation import ParametersOf, era_of, mismatch

log = logging.getLogger(__name__)

MCP_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
# Where the connection of a request is found in its ASGI scope.
CONNECTION: Final = "mcp_workbench.connection"
ALLOWED: Final[Headers] = ((b"allow", b"POST, GET, DELETE"),)
CLOSE: Final[Headers] = ((b"connection", b"close"),)
_TEXT: Final[Headers] = ((b"content-type", b"text/plain"),)

# Whether clients may be sent to us, and what an operator should see of it, as JSON.
Readiness = Callable[[], tuple[bool, bytes]]


class Endpoint:
    """Everything that we serve over HTTP."""

    def __init__(
        self,
        admission: Admission,
        make_session: MakeSession,
        start_task: StartTask,
        limits: Limits,
        *,
        readiness: Readiness | None = None,
        parameters_of: ParametersOf | None = None,
    ) -> None:
        self.is_draining = False
        self._admission = admission
        self._make_session = make_session
        self._start_task = start_task
        self._limits = limits
        self._readiness = readiness
        self._parameters_of = parameters_of
        self._now = asyncio.get_running_loop().time
        self.sessions = SessionTable(make_session, limits, self._now)
        # Modern requests under way.
        self.exchanges: Sweep[Exchange] = Sweep(limits.comment_seconds / 3)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        arrival = Arrival.of(scope)
        outlet = Outlet(send, self._start_task, scope.get(CONNECTION))
        try:
            await self._serve(arrival, receive, outlet)
        except ClientGone:
            outlet.abandon()
        except Exception:
            log.exception("a defect of ours; please report it")
            raise

    async def _serve(self, arrival: Arrival, receive: Receive, outlet: Outlet) -> None:
        refusal = self._admission.check_sender(arrival)
        if refusal is not None:
            await _refuse(arrival, receive, outlet, refusal)
            return
        if "origin" in arrival.headers:
            outlet.add_headers(self._admission.cors_headers(arrival))
        if arrival.path == MCP_PATH:
            await self._serve_mcp(arrival, receive, outlet)
        elif arrival.path == HEALTH_PATH:
            outlet.answer(200, _TEXT, b"ok\n")
        elif arrival.path == READY_PATH:
            is_ready, report = (True, b"{}") if self._readiness is None else self._readiness()
            outlet.answer(200 if is_ready and not self.is_draining else 503, JSON_HEADERS, report)
        else:
            await _refuse(arrival, receive, outlet, Refusal(404, f"nothing is here; the MCP endpoint is {MCP_PATH}"))

    async def _serve_mcp(self, arrival: Arrival, receive: Receive, outlet: Outlet) -> None:
        if arrival.method == "OPTIONS" and "access-control-request-method" in arrival.headers:
            outlet.answer(204, self._admission.preflight_headers(arrival))
            return
        principal = self._admission.principal(arrival)
        refusal = principal if isinstance(principal, Refusal) else self._check_head(arrival)
        if refusal is not None:
            await _refuse(arrival, receive, outlet, refusal)
            return
        assert isinstance(principal, str)
        if arrival.method == "POST":
            await self._serve_post(arrival, principal, receive, outlet)
            return
        session = self._find_session(arrival, principal)
        if isinstance(session, Refusal):
            await _refuse(arrival, receive, outlet, session)
        elif arrival.method == "GET":
            await self._serve_get(arrival, session, receive, outlet)
        else:
            session.end("the client ended it")
            outlet.answer(204, ())

    def _check_head(self, arrival: Arrival) -> Refusal | None:
        if arrival.method == "POST":
            declared = arrival.declared_bytes
            if declared is not None and declared > self._limits.message_bytes:
                return self._too_large()
            return check_post(arrival)
        if arrival.method not in ("GET", "DELETE"):
            return Refusal(405, "the MCP endpoint takes POST, GET and DELETE", ALLOWED)
        version = arrival.get(words.PROTOCOL_VERSION)
        if version is not None and version not in words.LEGACY_VERSIONS:
            return Refusal(405, f"MCP {version} has no {arrival.method}", ((b"allow", b"POST"),))
        if arrival.method == "GET" and not arrival.accepts(words.EVENT_STREAM):
            return Refusal(406, "`Accept` must list text/event-stream")
        return None

    # ── POST ──

    async def _serve_post(self, arrival: Arrival, principal: str, receive: Receive, outlet: Outlet) -> None:
        try:
            body = single_line(await read_body(receive, self._limits.message_bytes))
        except BodyTooLarge:
            await _refuse(arrival, receive, outlet, self._too_large())
            return
        if is_batch(body):
            await self._serve_batch(arrival, principal, body, receive, outlet)
            return
        try:
            carried = look_at(body)
        except Malformed as error:
            _complain(outlet, error.id, PARSE_ERROR, f"cannot be read: {error}")
            return
        if carried.kind == "request" and not messages.is_valid_id(carried.id or b"null"):
            _complain(outlet, None, INVALID_REQUEST, "`id` must be a string or a number")
        elif carried.kind == "request" and self.is_draining:
            _complain(outlet, carried.id, INTERNAL_ERROR, "the workbench is shutting down", status=503)
        elif era_of(arrival, carried) == "modern":
            await self._serve_modern(arrival, principal, carried, body, receive, outlet)
        elif carried.method == "initialize" and carried.kind == "request":
            await self._serve_initialize(principal, carried, body, receive, outlet)
        else:
            session = self._find_session(arrival, principal)
            if isinstance(session, Refusal):
                _complain(outlet, carried.id, INVALID_REQUEST, session.message, status=session.status)
            else:
                await self._serve_legacy(session, [(body, carried)], receive, outlet)

    async def _serve_modern(
        self, arrival: Arrival, principal: str, carried: Carried, body: bytes, receive: Receive, outlet: Outlet
    ) -> None:
        if carried.kind == "notification":
            # The revision defines none over HTTP; to cancel is to disconnect.
            outlet.answer(202, ())
            return
        if carried.kind != "request":
            _complain(outlet, None, INVALID_REQUEST, "clients of this revision send requests only")
            return
        wrong = mismatch(arrival, carried, self._parameters_of)
        if wrong is not None:
            _complain(outlet, carried.id, words.HEADER_MISMATCH, f"Header mismatch: {wrong}")
            return
        if carried.method == "initialize":
            _complain(outlet, carried.id, METHOD_NOT_FOUND, "`initialize` does not exist in this revision")
            return
        exchange = Exchange(carried, outlet, self.exchanges, self._now(), self._limits)
        exchange.start(self._make_session(exchange, principal, exchange.closed), body)
        # Also after the answer: a client that does not read makes it wait to be written.
        await wait_for_disconnect(receive)
        exchange.disconnected()

    async def _serve_initialize(
        self, principal: str, carried: Carried, body: bytes, receive: Receive, outlet: Outlet
    ) -> None:
        opened = self.sessions.open(principal, carried, body, outlet)
        if opened is None:
            _complain(outlet, carried.id, INTERNAL_ERROR, "no room for another session; try again later", status=503)
            return
        await wait_for_disconnect(receive)
        opened[1].leave()

    async def _serve_legacy(
        self, session: LegacySession, posted: list[tuple[bytes, Carried]], receive: Receive, outlet: Outlet
    ) -> None:
        ids = {carried.id for _, carried in posted if carried.kind == "request" and carried.id is not None}
        for id in ids:
            if session.is_under_way(id):
                _complain(outlet, id, INVALID_REQUEST, "a request with this id is still under way")
                return
        if not ids:
            for message, carried in posted:
                session.tell(message, carried)
            outlet.answer(202, ())
            return
        reply = session.request([message for message, _ in posted], ids, outlet)
        await wait_for_disconnect(receive)
        reply.leave()

    async def _serve_batch(
        self, arrival: Arrival, principal: str, body: bytes, receive: Receive, outlet: Outlet
    ) -> None:
        session = self._find_session(arrival, principal)
        if isinstance(session, Refusal):
            _complain(outlet, None, INVALID_REQUEST, session.message, status=session.status)
            return
        if session.version != words.BATCH_VERSION:
            _complain(outlet, None, INVALID_REQUEST, f"only MCP {words.BATCH_VERSION} has batches")
            return
        try:
            posted = [(each, look_at(each)) for each in split_batch(body)]
        except Malformed as error:
            _complain(outlet, None, PARSE_ERROR, f"cannot be read: {error}")
            return
        ids = [carried.id for _, carried in posted if carried.kind == "request"]
        if not posted or len(posted) > MOST_IN_BATCH:
            _complain(outlet, None, INVALID_REQUEST, f"a batch has 1 to {MOST_IN_BATCH} messages")
        elif len(set(ids)) != len(ids) or not all(messages.is_valid_id(id or b"null") for id in ids):
            _complain(outlet, None, INVALID_REQUEST, "each request needs an `id` of its own, a string or a number")
        elif any(carried.method == "initialize" for _, carried in posted):
            _complain(outlet, None, INVALID_REQUEST, "`initialize` cannot be part of a batch")
        else:
            await self._serve_legacy(session, posted, receive, outlet)

    # ── GET, and what it has in common with DELETE and legacy POSTs ──

    async def _serve_get(self, arrival: Arrival, session: LegacySession, receive: Receive, outlet: Outlet) -> None:
        last_event_id = arrival.get(words.LAST_EVENT_ID)
        stream = session.resume(outlet, last_event_id) if last_event_id else session.listen(outlet)
        if stream is None:
            await _refuse(arrival, receive, outlet, Refusal(400, "there is nothing to resume from this event"))
            return
        await wait_for_disconnect(receive)
        stream.leave(outlet)

    def _find_session(self, arrival: Arrival, principal: str) -> LegacySession | Refusal:
        id = arrival.get(words.SESSION_ID)
        if id is None:
            return Refusal(400, "no session: send `initialize` first, or stamp each request (MCP 2026-07-28)")
        if arrival.repeated == words.SESSION_ID:
            return Refusal(400, f"the header `{words.SESSION_ID}` is given more than once")
        version = arrival.get(words.PROTOCOL_VERSION)
        if version is not None and version not in words.LEGACY_VERSIONS:
            return Refusal(400, f"`{words.PROTOCOL_VERSION}` names no revision that has sessions")
        found = self.sessions.find(id, principal)
        return Refusal(404, "there is no such session; send `initialize` again") if found is None else found

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body is larger than {self._limits.message_bytes} bytes; see `maxMessageBytes`")


def _complain(outlet: Outlet, id: bytes | None, code: int, message: str, *, status: int | None = None) -> None:
    """A JSON-RPC error of ours, instead of a session's."""
    body = messages.error_response(id, code, message)
    outlet.answer(status or STATUS_OF_CODE.get(code, 400), JSON_HEADERS, body)


async def _refuse(arrival: Arrival, receive: Receive, outlet: Outlet, refusal: Refusal) -> None:
    """Answer without having read the body."""
    body = messages.error_response(None, INVALID_REQUEST, refusal.message)
    headers = (*JSON_HEADERS, *refusal.headers)
    if not must_close(arrival):
        outlet.answer(refusal.status, headers, body)
        return
    outlet.begin(refusal.status, (*headers, *CLOSE, (b"content-length", b"%d" % len(body))))
    outlet.write(body)
    await linger(receive)
    outlet.finish()
