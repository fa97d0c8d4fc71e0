"""One request to a server, from its POST to its answer.

Owns what the status means, which form the answer takes, and resuming a broken stream. Raises an exception if it ends
without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from mcp_workbench.engine.jsonrpc.framing import LongLine
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, METHOD_NOT_FOUND, error_response, read_error
from mcp_workbench.engine.protocol.constants import STATELESS_CODES
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.client.client_connection import OutboundConnection
from mcp_workbench.engine.transport.http.client.failures import explain_status, quoted
from mcp_workbench.engine.transport.http.client.http_client import HttpTarget
from mcp_workbench.engine.transport.http.client.http_session import HttpSession
from mcp_workbench.engine.transport.http.client.response import NotSent, RequestFailed, Response
from mcp_workbench.engine.transport.http.client.response_body import error_in, read_error_text, read_events, read_whole
from mcp_workbench.engine.transport.http.message_summary import summarise
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.engine.transport.lines import LONG_LINE
from mcp_workbench.errors import DownstreamError

log = logging.getLogger(__name__)

HttpTransport = Literal["http", "sse", "auto"]

# The delay before resuming if the server does not send one, and the longest and shortest that are used.
RESUME_DELAY: Final = 1.0
MAX_RESUME_DELAY: Final = 30.0
MIN_RESUME_DELAY: Final = 0.05
# Consecutive attempts that bring nothing new.
MAX_RESUMES: Final = 5
# Statuses of a POST after which the specification lets us try the old HTTP+SSE transport.
_MAY_SPEAK_SSE: Final = (400, 404, 405)
# Refusals of a resumed stream that may be temporary.
_LATER: Final = (408, 425, 429)
# These are about the address and not the request, whatever the body contains.
_WRONG_PLACE: Final = (403, 404, 405, 410)
# The specification requires 404 for an unknown session. Servers modelled on the examples of the TypeScript SDK answer
# 400 with this code and one of these messages. Not any mention of a session: a server may have sessions of its own, and
# may have acted on the request before such an error.
_REFUSED_BY_TRANSPORT: Final = -32000
_NO_SESSION: Final = re.compile(
    r"session[ -]id|session not found|unknown session|server not initialized", re.IGNORECASE
)
# These require signing in, waiting or fixing a proxy: no reason to try another transport or era.
_SAME_FOR_ALL: Final = (401, 407, 429)
NOT_AN_ANSWER: Final = "answered with something that is not an answer to the request"
# An error that only a server which speaks MCP at this address returns.
_FROM_MCP: Final = STATELESS_CODES | {METHOD_NOT_FOUND}


class PostOwner(Protocol):
    """The link that a request belongs to: counts requests, runs their tasks, receives messages."""

    # Which transports may be tried; HTTP+SSE is tried only with `auto`.
    transport: HttpTransport
    # Of all requests that have not been sent yet.
    unsent_bytes: int

    def deliver(self, message: bytes, about: Post | None = None) -> None: ...

    async def deliver_aside(self, body: LongLine, about: Post | None = None) -> None: ...

    def deliver_answer(self, post: Post, body: bytes, done_with: Callable[[bool], None]) -> None: ...

    def run_to_end(self, post: Post, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def broken(self, post: Post, error: Exception) -> None:
        """A request without a task has failed."""

    def over(self, post: Post) -> None:
        """A request is finished."""

    def session_lost(self) -> None:
        """The server has lost our session."""

    async def use_sse_transport(self) -> HttpTarget: ...


class Post(Struct, eq=False):
    """A request in progress. A `Struct`, because there is one for each call and structs are created in C."""

    _session: HttpSession
    _owner: PostOwner
    id: bytes
    method: str
    body: bytes
    is_modern: bool
    # Whether it was sent in a session, which the server may have lost.
    has_session: bool
    # The configured headers that it was sent with, while it has no task.
    own_headers: Mapping[str, str]
    # The answer has been delivered, or the request has failed; there is nothing more to report.
    is_answered: bool = False
    task: asyncio.Task[None] | None = None
    # The connection that it was sent on, while it has no task.
    connection: OutboundConnection | None = None
    # Of the request of ours that it is for: retries, and what had to wait, ask for headers in it.
    context: Context | None = None
    # The number of messages received on its streams.
    _delivered: int = 0
    _headers: dict[str, str] | None = None
    # A response that waits for a task to handle it.
    _unsettled: Response | None = None
    _is_unsent: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """Its headers in addition to the configured ones, fixed when they are first needed."""
        if self._headers is None:
            self._headers = self._session.request_headers(summarise(self.body))
        return self._headers

    def cancel(self) -> bool:
        """Cancel the request. True if none of it has been written, so that the server need not be notified."""
        self.is_answered = True
        if self.task is not None:
            self.task.cancel()
        elif self.connection is not None:
            if self.connection.withdraw():
                self.connection = None
                self._owner.over(self)
                return True
            self.connection.close()
        return False

    def sent(self) -> None:
        """The body is no longer unsent: the server has all of it, or never will."""
        if self._is_unsent:
            self._is_unsent = False
            self._owner.unsent_bytes -= len(self.body)

    def release(self) -> None:
        """Release everything it holds, perhaps before its response was read."""
        self.sent()
        # The traceback of a cancelled task refers back here, and would keep a large body alive.
        self.task = None
        if self._unsettled is not None:
            self._unsettled.release()
            self._unsettled = None

    # ── the short way: an answer in one piece needs no task (`ResponseListener`) ──

    def on_response(self, response: Response) -> None:
        """Deliver a complete answer; anything else is handled in a task."""
        self.connection = None
        owner = self._owner
        is_answer = response.status == 200 and response.content_type == names.JSON and response.is_complete
        if not is_answer or response.buffered_bytes > self._session.limit:
            self._unsettled = response
            self.task = owner.run_to_end(self, self._settle(response))
            return
        self.sent()
        owner.deliver_answer(self, response.take(), response.done_with)

    def on_failed(self, error: RequestFailed) -> None:
        """The connection broke before there was a response."""
        self.connection = None
        if isinstance(error, NotSent) and not self.is_answered:
            # The server has received none of it, so send it on another connection.
            self.task = self._owner.run_to_end(self, self.run())
        else:
            self._owner.broken(self, error)

    async def _settle(self, response: Response) -> None:
        session, headers = self._session, self.headers
        self._unsettled = None
        settled = await session.client.settle(response, "POST", session.target, self.own_headers, headers, self.body)
        await self._on_response(settled, session.target)

    # ── the long way ──

    async def run(self) -> None:
        await self._send(self._session.target)

    async def _send(self, target: HttpTarget) -> None:
        await self._on_response(await self._session.client.request("POST", target, self.headers, self.body), target)

    async def _on_response(self, response: Response, target: HttpTarget) -> None:
        self.sent()
        try:
            if self.method == "initialize" and response.status < 300:
                self._session.id = response.headers.get(names.SESSION_ID)
            if response.status >= 300:
                await self._on_refused(response, target)
            elif self._session.is_sse:
                # The answer comes on the event stream.
                await read_error_text(response)
            elif response.status in (202, 204):
                await self._fail_unanswered(f"accepted the request ({response.status}) without a response")
            else:
                await self._on_body(response)
        finally:
            # Keeps a connection that was read to its end; closes any other.
            response.done_with(self.is_answered or self._session.is_sse)

    async def _on_body(self, response: Response) -> None:
        if response.content_type == names.EVENT_STREAM:
            await self._on_stream(response)
        elif response.content_type == names.JSON:
            body = await read_whole(response, self._session.limit)
            if isinstance(body, LongLine):
                await self._owner.deliver_aside(body)
            else:
                self._owner.deliver(body)
            if not self.is_answered:
                await self._fail_unanswered(NOT_AN_ANSWER)
        else:
            text = quoted(await read_error_text(response))
            kind = quoted(response.content_type) or "no content type"
            await self._fail_unanswered(f"answered with {kind}, which is not MCP: {text}")

    # Streams

    async def _on_stream(self, response: Response) -> None:
        parser = SseParser(self._session.limit)
        try:
            if await read_events(response, parser, self._session.limit, self._on_event):
                return
        except DownstreamError:
            raise
        except Exception:
            if self.is_modern or not parser.last_id:
                raise
        if self.is_modern or not parser.last_id:
            raise DownstreamError(
                f"{self._session.origin} ended the event stream before the response; it may or may "
                "not have acted on the request",
                hint="the call was not repeated; call again if that is safe",
            )
        await self._resume(parser)

    def _on_event(self, event: ServerSentEvent) -> bool | Awaitable[bool]:
        if event.type == "message" and event.data:
            self._delivered += 1
            if len(event.data) > LONG_LINE:
                return self._on_large_event(event)
            self._owner.deliver(event.data, self)
        return self.is_answered

    async def _on_large_event(self, event: ServerSentEvent) -> bool:
        await self._owner.deliver_aside(LongLine([event.data]), self)
        return self.is_answered

    async def _resume(self, parser: SseParser) -> None:
        """Resume a broken stream: a legacy server sends the events after the last id."""
        fruitless = empty = 0
        while fruitless < MAX_RESUMES:
            # A server may keep ending streams that contain nothing but a new id, with no delay in between.
            await asyncio.sleep(max(pause(parser.retry), min(MIN_RESUME_DELAY * 2**empty, RESUME_DELAY)))
            delivered = self._delivered
            seen, fruitless = parser.last_id, fruitless + 1
            headers = {"accept": names.EVENT_STREAM, **self._session.headers(), names.LAST_EVENT_ID: header_safe(seen)}
            try:
                response = await self._session.request("GET", headers)
            except DownstreamError:
                raise
            except Exception as error:
                log.debug("%s: not resumed: %s", self._session.origin, error)
                continue
            try:
                if 400 <= response.status < 500 and response.status not in _LATER:
                    # It does not resume streams, or no longer knows the session or the event: give up.
                    break
                if response.status != 200 or response.content_type != names.EVENT_STREAM:
                    continue
                again = SseParser(self._session.limit)
                again.last_id, again.retry, parser = parser.last_id, parser.retry, again
                if await read_events(response, parser, self._session.limit, self._on_event):
                    return
            except DownstreamError:
                raise
            except Exception as error:
                log.debug("%s: the stream broke again: %s", self._session.origin, error)
            finally:
                response.release()
            if parser.last_id != seen:
                fruitless = 0
            empty = 0 if self._delivered > delivered else min(empty + 1, MAX_RESUMES)
        raise DownstreamError(
            f"{self._session.origin} ended the event stream before the response, and it could not be resumed",
            hint="the call was not repeated; call again if that is safe",
        )

    # Refusals

    async def _on_refused(self, response: Response, target: HttpTarget) -> None:
        owner, status, method = self._owner, response.status, self.method
        text = await read_error_text(response)
        found = error_in(text) if status not in _SAME_FOR_ALL else None
        if self.has_session and (status == 404 or (status == 400 and found is not None and is_session_unknown(found))):
            owner.session_lost()
            # No answer: it was certainly not accepted, so it may be sent again in a new session.
            self.is_answered = True
            return
        is_mcp = found is not None and found[0] in _FROM_MCP
        if method == "initialize" and status in _MAY_SPEAK_SSE and not is_mcp and await self._falls_back_to_sse():
            return
        if found is not None and not (method == "initialize" and status in _WRONG_PLACE and not is_mcp):
            # The server's id may be null, so use ours.
            owner.deliver(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self.id, found[1]))
            return
        token = "authorization" in (target.source.headers() or ())
        failure = explain_status(status, response.headers, text, target.address, has_token=token)
        if method == "server/discover" and status not in _SAME_FOR_ALL:
            # Not a modern server, or not an MCP server at all; `initialize` will tell.
            owner.deliver(error_response(self.id, METHOD_NOT_FOUND, failure.message))
            return
        raise failure

    async def _falls_back_to_sse(self) -> bool:
        """Whether the server has the transport of 2024-11-05; if so, the request has been sent that way."""
        origin = self._session.origin
        if self._owner.transport != "auto" or self._session.is_sse:
            return False
        try:
            target = await self._owner.use_sse_transport()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The failure of the POST is the better explanation.
            log.debug("%s: no HTTP+SSE either: %s", origin, error)
            return False
        log.info("%s uses the older HTTP+SSE transport", origin)
        await self._send(target)
        return True

    async def answered_something_else(self) -> None:
        await self._fail_unanswered(NOT_AN_ANSWER)

    async def _fail_unanswered(self, what: str) -> None:
        message = f"{self._session.origin} {what}"
        if self.method == "server/discover":
            self._owner.deliver(error_response(self.id, INTERNAL_ERROR, message))
            return
        raise DownstreamError(message, hint="check `url`: is it the address of an MCP server?")


def is_session_unknown(error: tuple[int, bytes]) -> bool:
    """Whether an error with status 400 means that our session is unknown."""
    code, written = error
    return code == _REFUSED_BY_TRANSPORT and _NO_SESSION.search(read_error(written).message) is not None


def pause(retry: int | None) -> float:
    """Seconds to wait before a stream is opened again."""
    return RESUME_DELAY if retry is None else min(retry / 1000, MAX_RESUME_DELAY)


def header_safe(event_id: str) -> str:
    """An event id as a header value. One with characters that are not allowed in headers is not sent."""
    return event_id if event_id.isprintable() and event_id.isascii() else ""
