"""The answer to a legacy POST: JSON when its answer is all there is, else a stream that can be resumed.

Owns that choice. A disconnect does not cancel anything in this era; if it comes before the client was given an id to
resume from, the answer is lost to it, and only that.
"""

from __future__ import annotations

from collections.abc import Callable

from mcp_workbench.transport.http.server.modern_request import JSON_HEADERS
from mcp_workbench.transport.http.server.response_writer import NO_HEADERS, Headers, ResponseWriter
from mcp_workbench.transport.http.server.resumable_stream import ResumableStream
from mcp_workbench.transport.shared_timer import SharedTimer


class LegacyResponse:
    """A POST with at least one request in it, until all of them are answered."""

    __slots__ = ("_headers", "_make_stream", "_patience", "_since", "_stream", "_timer", "_writer", "ids", "is_primed")

    def __init__(
        self,
        writer: ResponseWriter,
        ids: set[bytes],
        make_stream: Callable[[], ResumableStream],
        timer: SharedTimer[LegacyResponse],
        now: float,
    ) -> None:
        # The requests that have no answer yet.
        self.ids = ids
        self.is_primed = False
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
        """Whether what is sent here reaches the client, now or when it resumes."""
        return self._stream is not None or self._writer is not None

    def wait(self, patience: float, *, is_primed: bool) -> None:
        """Become a stream if there is no answer after this long."""
        self._patience = patience
        self.is_primed = is_primed
        if self._stream is None and self._writer is not None:
            self._writer.gone = self.leave
            self._timer.add(self)

    def add_headers(self, headers: Headers) -> None:
        """Headers for the response, whichever form it takes."""
        self._headers += headers

    def put(self, message: bytes) -> None:
        """A message that comes before the answer."""
        stream = self.stream()
        if stream is not None:
            stream.put(message)

    def answer(self, id: bytes, message: bytes, now: float) -> None:
        self.ids.discard(id)
        if self._stream is not None:
            self._stream.put(message)
            self._end_if_over(now)
        # Of several requests in one POST, each is answered as soon as it can be: that takes a stream.
        elif self.ids:
            self.put(message)
        else:
            self._timer.discard(self)
            if self._writer is not None:
                # One message, and the last: plain JSON, which costs both ends less than a stream.
                self._writer.answer(200, JSON_HEADERS + self._headers, message)

    def cancel(self, id: bytes, now: float) -> None:
        """A request that will not be answered: the client itself cancelled it."""
        self.ids.discard(id)
        # A response has to be there; a stream without events says the least.
        self.stream()
        self._end_if_over(now)

    def stream(self) -> ResumableStream | None:
        """The stream that this is from now on. None when the client left before it became one."""
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
        """Do not let the client wait without an id to resume from, or a proxy without a byte."""
        if now - self._since >= self._patience:
            self.stream()

    def _end_if_over(self, now: float) -> None:
        if not self.ids:
            self._timer.discard(self)
            if self._stream is not None:
                self._stream.end(now)
