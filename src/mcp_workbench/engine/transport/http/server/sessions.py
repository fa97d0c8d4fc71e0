"""Legacy sessions: created by `initialize`, found by an unguessable id, bound to their principal, ended when idle.

Owns which message is sent on which stream: answers on the stream of their POST, messages related to a request on that
request's stream, everything else on the stream that a GET opened.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from msgspec import Raw, Struct

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.protocol.revisions import KNOWN, Revision
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.message_summary import MessageSummary, kind_and_id, version_in_answer
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.modern_request import RESULT_KEY, STREAM_HEADERS
from mcp_workbench.engine.transport.http.server.response_writer import (
    NO_HEADERS,
    Headers,
    ResponseWriter,
    header,
)
from mcp_workbench.engine.transport.http.server.resumable_stream import (
    STANDALONE,
    ReplayBudget,
    ResumableStream,
    parse_event_id,
)
from mcp_workbench.engine.transport.http.server.served_session import (
    MakeSession,
    SavedSession,
    ServedSession,
    SessionKeeper,
    SessionUnknowable,
    cancellation,
    hand_over,
)
from mcp_workbench.engine.transport.http.sse import encode_event
from mcp_workbench.engine.transport.shared_timer import SharedTimer

# 256 bits cannot be guessed, whatever the number of sessions.
ID_BYTES: Final = 32
# The messages of one POST, each with its summary.
Posted = list[tuple[bytes, MessageSummary]]

LOST_REQUEST: Final = (
    b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"the instance that served this request has ended, '
    b'or its answer is no longer kept; the request may have been accepted, and is not repeated"}}'
)

# Around the id at the beginning of a result, as sessions write it.
_ID_AT: Final = len(b'{"jsonrpc":"2.0","id":')
_BEFORE_RESULT: Final = -len(RESULT_KEY)


# The response to a legacy POST: JSON if the answer is the only message, else a stream that can be resumed.
# Owns that choice. A disconnect cancels nothing in this era; if it happens before the client has an event id to
# resume from, only the answer is lost.
class LegacyResponse(Struct, eq=False):
    """A POST with at least one request, until all of them are answered. A `Struct`, because there is one for each call
    and structs are created in C."""

    _writer: ResponseWriter | None
    # The requests without an answer yet.
    ids: set[bytes]
    _make_stream: Callable[[set[bytes]], ResumableStream]
    _timer: SharedTimer[LegacyResponse]
    _since: float
    # It becomes a stream if there is no answer after this long.
    _patience: float
    _is_primed: bool
    _stream: ResumableStream | None = None
    _headers: Headers = NO_HEADERS

    @property
    def is_over(self) -> bool:
        return not self.ids

    @property
    def is_reachable(self) -> bool:
        """Whether messages sent here reach the client, now or when it resumes."""
        return self._stream is not None or self._writer is not None

    def wait(self) -> None:
        """Wait for an answer that was not there at once."""
        if self._stream is None and self._writer is not None:
            self._writer.gone = self.leave
            self._timer.add(self)

    def add_headers(self, headers: Headers) -> None:
        """Add headers to the response, whichever form it takes."""
        self._headers += headers

    def put(self, message: bytes) -> None:
        """Send a message before the answer."""
        stream = self.stream()
        if stream is not None:
            stream.put(message)

    def answer(self, id: bytes, now: Callable[[], float], message: tuple[Part, ...]) -> None:
        """Send the answer to one request, given in parts. `now`: the clock, which only a stream looks at."""
        self.ids.discard(id)
        if self._stream is not None:
            self._stream.put(b"".join(message))
            self._end_if_over(now())
        # Several requests in one POST are each answered as soon as possible, which requires a stream.
        elif self.ids:
            self.put(b"".join(message))
        else:
            self._timer.discard(self)
            if self._writer is not None:
                # A single message: plain JSON costs both ends less than a stream.
                if self._headers:
                    self._writer.add_headers(self._headers)
                self._writer.result(message)

    def cancel(self, id: bytes, now: float) -> None:
        """Drop a request that the client cancelled; it will not be answered."""
        self.ids.discard(id)
        # HTTP requires a response; a stream without events is the least.
        self.stream()
        self._end_if_over(now)

    def stream(self) -> ResumableStream | None:
        """Become a stream and return it. None if the client disconnected before."""
        if self._stream is None and self._writer is not None:
            self._timer.discard(self)
            self._stream = self._make_stream(self.ids)
            self._stream.open(self._writer, is_primed=self._is_primed, headers=self._headers)
        return self._stream

    def leave(self) -> None:
        """The client disconnected before this became a stream."""
        self._timer.discard(self)
        self._writer = None

    def on_timer(self, now: float) -> None:
        """Switch to a stream, so that the client has an id to resume from and proxies see traffic."""
        if now - self._since >= self._patience:
            self.stream()

    def _end_if_over(self, now: float) -> None:
        if not self.ids:
            self._timer.discard(self)
            if self._stream is not None:
                self._stream.end(now)


class LegacySession:
    """One client of the legacy era, and the link of its session."""

    __slots__ = (
        "_feeding",
        "_initialize_id",
        "_last_stream",
        "_streams",
        "_table",
        "id",
        "is_over",
        "is_primed",
        "last_used",
        "peer",
        "principal",
        "responses",
        "revision",
        "session",
    )

    def __init__(self, table: SessionTable, principal: str, now: float, peer: str = "", id: str | None = None) -> None:
        """`id`: that of a session which another instance has begun."""
        # The address that it came from.
        self.peer = peer
        self.id = id or secrets.token_urlsafe(ID_BYTES)
        self.principal = principal
        # The revision negotiated by `initialize`.
        self.revision: Revision | None = None
        # Whether streams of this revision begin with an event id to resume from.
        self.is_primed = False
        self.session: ServedSession | None = None
        self.is_over = False
        self.last_used = now
        self._table = table
        self._initialize_id: bytes | None = None
        # By the id of each request that has not been answered yet.
        self.responses: dict[bytes, LegacyResponse] = {}
        self._streams: dict[int, ResumableStream] = {}
        self._last_stream = STANDALONE
        # The POST whose messages the session is processing right now.
        self._feeding: LegacyResponse | None = None

    def __repr__(self) -> str:
        revision = "?" if self.revision is None else self.revision.name
        return f"<LegacySession MCP {revision}, {len(self.responses)} under way, {len(self._streams)} streams>"

    def _agree(self, revision: Revision | None) -> None:
        self.revision = revision
        self.is_primed = revision is not None and revision.has_primed_streams

    # ── from the client ──

    def initialize(self, session: ServedSession, summary: MessageSummary, body: bytes, writer: ResponseWriter) -> None:
        """Serve the first POST. The session can be found by its id once the answer is being sent."""
        assert summary.id is not None
        self.session = session
        self._initialize_id = summary.id
        self.request_all([(body, summary)], {summary.id}, writer)

    def take_over(self, saved: SavedSession) -> None:
        """Continue what another instance has begun."""
        self._agree(KNOWN.get(saved.revision))
        # Its event ids name streams that are not here: ours must not be taken for them, and events of the stream of
        # notifications that it has not seen must not have numbers that it has.
        self._last_stream = int(time.time())
        self._standalone().number_from(int(time.time() * 1000))
        self.session = saved.resume(self)

    def request(self, id: bytes, method: str, params: dict[str, Raw], writer: ResponseWriter) -> None:
        """Serve a POST with an ordinary request. The answer may have been sent when this returns."""
        response = self.responses[id] = self._response(writer, {id})
        session = self.session
        assert session is not None
        self._feeding = response
        try:
            session.on_request(id, method, params)
        finally:
            self._feeding = None
        if response.ids:
            response.wait()

    def request_all(self, posted: Posted, ids: set[bytes], writer: ResponseWriter) -> None:
        """Serve a POST with any request, or a batch of them."""
        response = self._response(writer, ids)
        for id in ids:
            self.responses[id] = response
        if len(posted) > 1:
            # The answers to a batch are sent one by one, as they become available.
            response.stream()
        self._feed(response, posted)

    def deliver(self, message: bytes, summary: MessageSummary) -> None:
        """Pass on a notification, or the answer to a question."""
        assert self.session is not None
        hand_over(self.session, message, summary)
        self._note_cancelled(self.session, summary)

    def _note_cancelled(self, session: ServedSession, summary: MessageSummary) -> None:
        cancelled = summary.cancels
        # If the call is still in progress, it was not cancelled after all and will be answered.
        if cancelled is None or cancelled in session.calls:
            return
        response = self.responses.pop(cancelled, None)
        if response is not None:
            response.cancel(cancelled, self._table.now())

    def listen(self, writer: ResponseWriter) -> None:
        """Open the standalone stream, for a GET without `Last-Event-ID`."""
        self._standalone().open(writer, is_primed=self.is_primed)

    def stop_listening(self) -> None:
        """End the connections of the standalone stream: their client opens it again, wherever it is served now."""
        stream = self._streams.get(STANDALONE)
        if stream is not None:
            stream.release()

    def resume(self, writer: ResponseWriter, last_event_id: str) -> bool:
        """Resume an earlier stream, for a GET. False if there is nothing to resume."""
        found = parse_event_id(last_event_id)
        if found is None:
            return False
        # Every client has a standalone stream, whether it was opened before or not.
        stream = self._standalone() if found.stream == STANDALONE else self._streams.get(found.stream)
        if stream is not None:
            stream.resume(writer, found.number)
        elif found.request is not None:
            # It was another instance's: whoever waits for the answer must learn that there will be none.
            writer.begin(200, STREAM_HEADERS)
            writer.finish(encode_event(LOST_REQUEST % found.request, id=last_event_id))
        return stream is not None or found.request is not None

    def _response(self, writer: ResponseWriter, ids: set[bytes]) -> LegacyResponse:
        table, is_primed = self._table, self.is_primed
        patience = table.limits.prime_seconds if is_primed else table.limits.comment_seconds
        return LegacyResponse(writer, ids, self._new_stream, table.responses, table.now(), patience, is_primed)

    def _feed(self, response: LegacyResponse, posted: Posted) -> None:
        assert self.session is not None
        self._feeding = response
        try:
            for message, summary in posted:
                hand_over(self.session, message, summary)
                self._note_cancelled(self.session, summary)
        finally:
            self._feeding = None
        if not response.is_over:
            response.wait()

    # ── to the client: the link ──

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        if self.is_over:
            return
        first = parts[0]
        if len(parts) > 1 and first[_BEFORE_RESULT:] == RESULT_KEY:
            # The result of a call, nearly all that is sent: the session has just written its id there.
            called = bytes(first[_ID_AT:_BEFORE_RESULT])
            waiting = self.responses.get(called)
            if waiting is not None and called != self._initialize_id:
                del self.responses[called]
                table = self._table
                waiting.answer(called, table.now, parts)
                if table.keeper is not None and self.session is not None and not self.is_over:
                    table.keeper.keep(self.id, self.session)
                return
        message = b"".join(parts)
        kind, id = kind_and_id(message)
        if kind in ("request", "notification"):
            related = None if about is None else self.responses.get(about)
            # On the stream of the related request; on the standalone stream if that was answered, or lost before the
            # client had an event id to resume from.
            if related is not None and related.is_reachable:
                related.put(message)
            else:
                self._standalone().put(message)
            return
        response = None if id is None else self.responses.pop(id, None)
        if response is not None and id is not None:
            if id == self._initialize_id:
                self._answer_initialize(response, id, message)
            else:
                response.answer(id, self._table.now, (message,))
            keeper = self._table.keeper
            if keeper is not None and self.session is not None and not self.is_over:
                keeper.keep(self.id, self.session)
        elif self._feeding is not None and self._feeding.ids:
            # An error about the message being processed, whose id could not be read.
            answered = next(iter(self._feeding.ids))
            self.responses.pop(answered, None)
            self._feeding.answer(answered, self._table.now, (message,))

    @property
    def unsent_bytes(self) -> int:
        return sum(stream.unsent_bytes for stream in self._streams.values())

    # ── its life ──

    @property
    def is_busy(self) -> bool:
        """Whether a client is connected or waits for an answer."""
        if self.responses or (self.session is not None and self.session.calls):
            return True
        return any(stream.is_connected for stream in self._streams.values())

    def end(self, reason: str, *, is_left: bool = False) -> None:
        """End the session: cancel its calls, close its streams, forget its id. `is_left`: another instance may take it
        over."""
        if self.is_over:
            return
        self._table.forget(self)
        keeper = self._table.keeper
        if keeper is not None:
            if is_left:
                keeper.release(self.id)
            else:
                keeper.drop(self.id, self.principal)
        now = self._table.now()
        session = self.session
        if session is not None:
            # As if the client had cancelled them: in this era a disconnect alone cancels nothing.
            for id in list(session.calls):
                session.on_message(cancellation(id, b"the session has ended"))
        self.is_over = True
        for response in list(self.responses.values()):
            for id in list(response.ids):
                response.cancel(id, now)
        self.responses.clear()
        for stream in list(self._streams.values()):
            stream.end(now)
            stream.forget()
        self._streams.clear()
        if session is not None:
            session.on_closed(reason)

    def on_timer(self, now: float) -> None:
        """Keep connections alive; drop streams that can no longer be resumed; end the session if it is idle."""
        limits = self._table.limits
        for stream in list(self._streams.values()):
            stream.comment()
            if stream.ended_at is not None and now - stream.ended_at >= limits.resume_seconds:
                stream.forget()
        if now - self.last_used >= limits.session_idle_seconds:
            if self.is_busy:
                self.last_used = now
            else:
                self.end(f"not used for {limits.session_idle_seconds:g} s")

    def _answer_initialize(self, response: LegacyResponse, id: bytes, message: bytes) -> None:
        self._initialize_id = None
        version = version_in_answer(message)
        if version is None:
            response.answer(id, self._table.now, (message,))
            self.end("`initialize` was refused")
            return
        self._agree(KNOWN.get(version))
        response.add_headers(header(names.SESSION_ID.encode(), self.id.encode()))
        self._table.enter(self)
        response.answer(id, self._table.now, (message,))

    def _standalone(self) -> ResumableStream:
        stream = self._streams.get(STANDALONE)
        if stream is None:
            stream = self._stream(STANDALONE)
        return stream

    def _new_stream(self, ids: set[bytes]) -> ResumableStream:
        self._last_stream += 1
        if len(self._streams) > self._table.limits.kept_streams:
            ended = next((stream for stream in self._streams.values() if stream.ended_at is not None), None)
            if ended is not None:
                ended.forget()
        request = next(iter(ids)) if self._table.keeper is not None and len(ids) == 1 else None
        return self._stream(self._last_stream, request)

    def _stream(self, number: int, request: bytes | None = None) -> ResumableStream:
        table = self._table
        stream = ResumableStream(number, table.budget, table.limits, self._drop_stream, request)
        self._streams[number] = stream
        return stream

    def _drop_stream(self, number: int) -> None:
        self._streams.pop(number, None)


class SessionTable:
    """All legacy sessions, least recently used first."""

    def __init__(
        self,
        make_session: MakeSession,
        limits: Limits,
        now: Callable[[], float],
        keeper: SessionKeeper | None = None,
    ) -> None:
        self.limits = limits
        self.keeper = keeper
        self.now = now
        self.budget = ReplayBudget(limits.replay_bytes_in_all)
        self.responses: SharedTimer[LegacyResponse] = SharedTimer(limits.prime_seconds)
        self._make_session = make_session
        self._sessions: dict[str, LegacySession] = {}
        # Whose they are, by id, of those that no other instance can have continued. Where there is a keeper, every
        # request is looked up here.
        self.settled: dict[str, str] = {}
        self._timer: SharedTimer[LegacySession] = SharedTimer(limits.comment_seconds)

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> list[LegacySession]:
        return list(self._sessions.values())

    def open(
        self, principal: str, summary: MessageSummary, body: bytes, writer: ResponseWriter, peer: str = ""
    ) -> bool:
        """Answer `initialize` with a new session. False if there are too many."""
        if len(self._sessions) >= self.limits.sessions and not self._make_room():
            return False
        legacy = LegacySession(self, principal, self.now(), peer)
        legacy.initialize(self._make_session(legacy, principal), summary, body, writer)
        return True

    def doubt(self, principal: str) -> None:
        """Another instance serves this user, and may have continued their sessions: find out with their next use.
        Clients that wait here for notifications are sent there, too."""
        for id, session in self._sessions.items():
            if session.principal == principal:
                self.settled.pop(id, None)
                session.stop_listening()

    def find(self, id: str, principal: str) -> LegacySession | None:
        """The session with this id if it belongs to this principal; sessions of others are not found."""
        session = self._sessions.get(id)
        if session is None or session.principal != principal:
            return None
        session.last_used = self.now()
        self._sessions[id] = self._sessions.pop(id)
        return session

    async def recall(self, id: str, principal: str, peer: str) -> None:
        """Take over the session with this id from the instance that has served it, if there is one. Raises
        `SessionUnknowable`, unless it is served here; then it stays in doubt."""
        if self.keeper is None:
            return
        try:
            saved = await self.keeper.find(id, principal, is_here=self._is_of(id, principal))
        except SessionUnknowable:
            # Of another user's, nobody learns that it exists.
            if not self._is_of(id, principal):
                raise
            return
        known = self._sessions.get(id)
        is_doubted = id not in self.settled
        if known is not None and known.principal == principal:
            self.settled[id] = principal
        # Two requests may have asked for it, or it is another user's.
        if saved is None or (known is not None and (not is_doubted or saved.is_own or known.principal != principal)):
            return
        if known is not None:
            known.end("another instance has continued it", is_left=True)
        if len(self._sessions) < self.limits.sessions or self._make_room():
            legacy = LegacySession(self, principal, self.now(), peer, id)
            legacy.take_over(saved)
            self.enter(legacy)

    def _is_of(self, id: str, principal: str) -> bool:
        known = self._sessions.get(id)
        return known is not None and known.principal == principal

    def enter(self, session: LegacySession) -> None:
        self._sessions[session.id] = session
        self.settled[session.id] = session.principal
        self._timer.add(session)

    def forget(self, session: LegacySession) -> None:
        self._sessions.pop(session.id, None)
        self.settled.pop(session.id, None)
        self._timer.discard(session)

    def end_all(self, reason: str) -> None:
        for session in self.sessions():
            session.end(reason, is_left=True)
        self._timer.stop()
        self.responses.stop()

    def _make_room(self) -> bool:
        latest = self.now() - self.limits.evict_after_seconds
        for session in self.sessions():
            if session.last_used > latest:
                return False
            if not session.is_busy:
                session.end("too many sessions; this one was the least recently used")
                return True
        return False
