"""One HTTP response, written from wherever its answer arrives.

Owns status lines, headers and the framing of a body that is written in pieces. Nothing here waits: unread data is
buffered, and callers check `unsent_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from http.client import responses  # noqa: TID253 (a table of words; loaded only where HTTP is served)
from typing import Final, Protocol

from msgspec import Struct

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW

# Headers are stored as bytes, ready to be written.
Headers = bytes

NO_HEADERS: Final[Headers] = b""
JSON_HEADERS: Final[Headers] = b"content-type: application/json\r\n"
CLOSE: Final[Headers] = b"connection: close\r\n"
CHUNKED: Final[Headers] = b"transfer-encoding: chunked\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS_LINES: Final = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode()) for status, phrase in responses.items() if status >= 200
}


class ConnectionWriter(Protocol):
    """The part of a connection that a response needs."""

    # Whether the client understands chunked bodies (HTTP/1.1).
    is_chunking: bool

    @property
    def is_kept(self) -> bool:
        """Whether the connection is kept after the response."""

    def make_last(self) -> None:
        """Close the connection after this response."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not read yet."""

    @property
    def date(self) -> Callable[[], Headers]:
        """Returns the current `Date` header when called."""

    def write(self, data: bytes | memoryview) -> None:
        """Write now, after anything that is still in a batch."""

    def respond(self, parts: tuple[Part, ...]) -> bool:
        """Write a whole answer in JSON, which completes the response, if it is short, in two parts, and nothing is
        special about it; else False."""

    def write_soon(self, data: bytes) -> None:
        """Write, possibly a moment later in one batch with other connections."""

    def responded(self) -> None: ...

    def abort(self) -> None:
        """Close at once; unsent data is dropped."""


def whole_json_head(date: Headers) -> Headers:
    """The head of a whole answer in JSON on a connection that is kept, up to its length."""
    return b"".join((_STATUS_LINES[200], date, JSON_HEADERS, b"content-length: "))


def header(name: bytes, value: bytes) -> Headers:
    return b"%b: %b\r\n" % (name, value)


class ResponseWriter(Struct, eq=False):
    """Writes the response to one request: whole, or in pieces. A `Struct`, because there is one for each request and
    structs are created in C."""

    _connection: ConnectionWriter
    # For `HEAD` requests.
    _without_body: bool = False
    _extra: Headers = NO_HEADERS
    _is_chunked: bool = False
    # Nothing more will be written: the response is complete, or the client has disconnected.
    is_over: bool = False
    # Called if the client disconnects before the response is complete.
    gone: Callable[[], None] | None = None

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    def add_headers(self, headers: Headers) -> None:
        """Add headers to this response, whatever it will be."""
        self._extra += headers

    def result(self, parts: tuple[Part, ...]) -> None:
        """Write a whole response in JSON, given in parts."""
        if self.is_over:
            return
        if self._extra or self._without_body or not self._connection.respond(parts):
            self.answer(200, JSON_HEADERS, *parts)
            return
        self.is_over = True
        self.gone = None

    def answer(self, status: int, headers: Headers, *body: Part) -> None:
        """Write a whole response. The parts of a large body are written without copying."""
        if self.is_over:
            return
        size = 0
        for part in body:
            size += len(part)
        connection = self._connection
        # A 204 must not have a `Content-Length` (RFC 9110, 8.6).
        length = NO_HEADERS if status == 204 else b"content-length: %d\r\n" % size
        head = self._head(status, headers, length)
        if self._without_body:
            connection.write(head)
        elif size < JOIN_BELOW:
            connection.write_soon(b"".join((head, *body)))
        else:
            connection.write(head)
            for part in body:
                connection.write(part)
        self.is_over = True
        self.gone = None
        connection.responded()

    def begin(self, status: int, headers: Headers) -> None:
        """Write the head of a response whose body follows in pieces."""
        if not self.is_over:
            self._is_chunked = self._connection.is_chunking
            if not self._is_chunked:
                self._connection.make_last()
            self._connection.write(self._head(status, headers, CHUNKED if self._is_chunked else NO_HEADERS))

    def write(self, data: bytes) -> None:
        if not self.is_over:
            self._write_piece(data, b"")

    def finish(self, data: bytes = b"") -> None:
        if not self.is_over:
            self._write_piece(data, LAST_CHUNK)
            self.is_over = True
            self.gone = None
            self._connection.responded()

    def abandon(self) -> None:
        self.is_over = True
        self.gone = None

    def abort(self) -> None:
        """Close the connection of a client that does not read."""
        self.abandon()
        self._connection.abort()

    def disconnected(self) -> None:
        gone, self.gone = self.gone, None
        self.is_over = True
        if gone is not None:
            gone()

    def _head(self, status: int, headers: Headers, length: Headers) -> bytes:
        connection = self._connection
        close = NO_HEADERS if connection.is_kept else CLOSE
        return b"".join((_STATUS_LINES[status], connection.date(), headers, self._extra, length, close, b"\r\n"))

    def _write_piece(self, data: bytes, end: bytes) -> None:
        if not self._is_chunked:
            self._connection.write(data)
        elif not data:
            self._connection.write(end)
        elif len(data) < JOIN_BELOW:
            self._connection.write(b"%x\r\n%b\r\n%b" % (len(data), data, end))
        else:
            for part in (b"%x\r\n" % len(data), data, b"\r\n" + end):
                self._connection.write(part)
