"""The response to a legacy POST: JSON if the answer is the only message, else a stream that can be resumed.

Owns that choice. A disconnect cancels nothing in this era; if it happens before the client has an event id to resume
from, only the answer is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.http.server.modern_request import JSON_HEADERS
from mcp_workbench.engine.transport.http.server.response_writer import NO_HEADERS, Headers, ResponseWriter
from mcp_workbench.engine.transport.http.server.resumable_stream import ResumableStream
from mcp_workbench.engine.transport.shared_timer import SharedTimer


class LegacyResponse:
    """A POST with at least one request, until all of them are answered."""

    __slots__ = ("_headers", "_make_stream", "_patience", "_since", "_stream", "_timer", "_writer", "ids", "is_primed")

    def __init__(
        self,
        writer: ResponseWriter,
        ids: set[bytes],
        make_stream: Callable[[], ResumableStream],
        timer: SharedTimer[LegacyResponse],
        now: float,
        is_primed: bool = False,
    ) -> None:
        # The requests without an answer yet.
        self.ids = ids
        self.is_primed = is_primed
        self._writer: ResponseWriter | None = writer
        self._stream: ResumableStream | None = None
        self._make_stream = make_stream
        self._timer = timer
        self._since = now
        self._patience = 0.0
        self._headers = NO_HEADERS

    @property
    def is_over(self) -> bool:
        return not self.ids

    @property
    def is_reachable(self) -> bool:
        """Whether messages sent here reach the client, now or when it resumes."""
        return self._stream is not None or self._writer is not None

    def wait(self, patience: float, *, is_primed: bool) -> None:
        """Become a stream if there is no answer after this long."""
        self._patience = patience
        self.is_primed = is_primed
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

    def answer(self, id: bytes, now: float, *message: Part) -> None:
        """Send the answer to one request, given in parts."""
        self.ids.discard(id)
        if self._stream is not None:
            self._stream.put(b"".join(message))
            self._end_if_over(now)
        # Several requests in one POST are each answered as soon as possible, which requires a stream.
        elif self.ids:
            self.put(b"".join(message))
        else:
            self._timer.discard(self)
            if self._writer is not None:
                # A single message: plain JSON costs both ends less than a stream.
                self._writer.answer(200, JSON_HEADERS + self._headers, *message)

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
            self._stream = self._make_stream()
            self._stream.open(self._writer, is_primed=self.is_primed, headers=self._headers)
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
