"""One request of a modern client: a POST and its answer, as JSON or as an event stream.

Owns when the response becomes a stream: with the first message that is not the answer, or after a period of silence, so
that proxies do not consider the connection dead. A disconnect cancels the request: this is how clients of this era
cancel.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.http.message_summary import MessageSummary, kind_and_id
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.response_writer import JSON_HEADERS, Headers, ResponseWriter
from mcp_workbench.engine.transport.http.server.served_session import ServedSession, cancellation, hand_over
from mcp_workbench.engine.transport.http.server.status_codes import status_of_error
from mcp_workbench.engine.transport.http.sse import KEEP_ALIVE, encode_event
from mcp_workbench.engine.transport.shared_timer import SharedTimer

# How the first part of a result ends.
RESULT_KEY: Final = b',"result":'
_BEFORE_RESULT: Final = -len(RESULT_KEY)
# No buffering: nginx otherwise holds events back until a buffer is full.
STREAM_HEADERS: Final[Headers] = (
    b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
)


class ModernRequest(Struct, eq=False):
    """A modern request in progress, and the link of the session made for it. A `Struct`, because there is one for each
    call and structs are created in C."""

    # Not the whole message, which may be large: the session keeps it for as long as needed.
    _id: bytes
    _method: str
    _writer: ResponseWriter
    _timer: SharedTimer[ModernRequest]
    _limits: Limits
    _silent_since: float
    # The address that it came from, for the audit, and its principal.
    peer: str
    principal: str
    session: ServedSession | None = None
    is_over: bool = False
    _is_streaming: bool = False

    def __repr__(self) -> str:
        state = "over" if self.is_over else "streaming" if self._is_streaming else "waiting"
        return f"<ModernRequest {self._method} {self._id!r} {state}>"

    def start(
        self, session: ServedSession, params: dict[str, Raw] | None, message: tuple[bytes, MessageSummary] | None
    ) -> None:
        """Hand the request to the session: its params, or the message if they are no object. The answer may have been
        sent when this returns."""
        self.session = session
        if params is not None:
            session.on_request(self._id, self._method, params)
        elif message is not None:
            hand_over(session, *message)
        if not self.is_over:
            self._writer.gone = self.disconnected
            self._timer.add(self)

    # The link

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        """Send one message to the client. There is one stream, and every message is about the one request."""
        if self.is_over:
            return
        # The result of the only request, as a session writes it in parts: recognised without parsing.
        if not self._is_streaming and len(parts) > 1 and parts[0][_BEFORE_RESULT:] == RESULT_KEY:
            self._writer.result(parts)
            self._end("answered")
            return
        message = b"".join(parts)
        kind = kind_and_id(message)[0]
        if kind in ("request", "notification"):
            self._begin_stream()
            self._writer.write(encode_event(message))
            if self._writer.unsent_bytes > self._limits.message_bytes + self._limits.unread_bytes:
                self._writer.abort()
                self.disconnected()
        elif self._is_streaming:
            self._writer.finish(encode_event(message))
            self._end("answered")
        else:
            status = status_of_error(message, self._method) if kind == "error" else 200
            self._writer.answer(status, JSON_HEADERS, message)
            self._end("answered")

    @property
    def unsent_bytes(self) -> int:
        return self._writer.unsent_bytes

    # What happens to it

    def disconnected(self) -> None:
        if self.is_over:
            return
        self._writer.abandon()
        self._end("the client disconnected", cancel=True)

    def closed(self, reason: str) -> None:
        """End the request from our side."""
        if not self.is_over:
            self._writer.abort()
            self._end(reason, cancel=True)

    def on_timer(self, now: float) -> None:
        """Write a byte for proxies, which cut silent connections."""
        if now - self._silent_since >= self._limits.comment_seconds:
            self._silent_since = now
            self._begin_stream()
            self._writer.write(KEEP_ALIVE)

    def _begin_stream(self) -> None:
        if not self._is_streaming:
            self._is_streaming = True
            self._writer.begin(200, STREAM_HEADERS)

    def _end(self, reason: str, *, cancel: bool = False) -> None:
        self.is_over = True
        self._timer.discard(self)
        # Break the reference cycle, so that the garbage collector has nothing to do.
        session, self.session = self.session, None
        if session is None:
            return
        if cancel:
            session.on_message(cancellation(self._id, b"the client disconnected"))
        session.on_closed(reason)
