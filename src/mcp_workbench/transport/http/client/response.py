"""A response of a server: its head, its body as it comes, and what may go wrong with it.

Owns the flow of a body. Refuses to know how it is framed: that is the connection's.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache
from typing import Final, Protocol

from mcp_workbench.transport.http.client.decompression import inflater

# A body that nobody reads waits in the kernel, not here.
MOST_BUFFERED: Final = 1024 * 1024


class RequestFailed(Exception):
    """The connection did not bring a response. The classes say how far it got."""


class NoAnswer(RequestFailed):
    """It ended before the first byte of a response; whether the server acted is not known."""


class NotSent(RequestFailed):
    """It ended before anything of the request had left."""


class BrokeOff(RequestFailed):
    """It ended in the middle of a response."""


class NotHttp(RequestFailed):
    """What came is not HTTP."""


class Unwritable(RequestFailed):
    """The request cannot be written: a header contains characters that are not allowed in a header."""


class ResponseListener(Protocol):
    """Whoever waits for a response. Told one of the three, once."""

    # Whether it is content with the body of a response whose head is known.
    takes_bodies: bool

    def on_body(self, body: bytes) -> None:
        """A whole response with status 200 and JSON, whose head is that of an earlier one on this connection. Whoever
        is told says when it is done with the connection (`done_with`)."""

    def on_response(self, response: Response) -> None:
        """Its head is there, and whatever of its body came with it. Whoever is told releases the response."""

    def on_failed(self, error: RequestFailed) -> None:
        """There will be none."""


class BodySource(Protocol):
    """The connection that the body of a response comes from."""

    def pause_reading(self) -> None:
        """More is buffered than should be: let the server wait."""

    def resume_reading(self) -> None: ...

    def release(self, *, is_clean: bool) -> None:
        """Nobody reads the response any more. `is_clean`: it was read to its end."""

    def close(self) -> None: ...


# Servers send the same few. Bounded, because a server may make names up.
@lru_cache(maxsize=256)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def join_fields(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names in lower case; of a field that is repeated, the values are joined (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for field, value in fields:
        name, text = _lower(field), value.decode("latin-1").strip()
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


class Response:
    """A response, from its head on. Its body is read piece by piece; then it is released."""

    __slots__ = ("_buffered", "_connection", "_ended", "_error", "_inflate", "_pieces", "_waiter", "headers", "status")

    def __init__(self, connection: BodySource, status: int, headers: dict[str, str]) -> None:
        self.status = status
        # Lower-case names; of one that is repeated, the values joined.
        self.headers = headers
        self._connection: BodySource | None = connection
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._ended = False
        self._error: RequestFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflate = inflater(headers["content-encoding"]) if "content-encoding" in headers else None

    @property
    def content_type(self) -> str:
        """The type without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def declared_bytes(self) -> int | None:
        """What the server says of the size of the body as it travels."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 20 else None

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come, as the server meant it."""
        return self._ended and self._error is None

    @property
    def buffered_bytes(self) -> int:
        """What has come of the body and waits to be read."""
        return self._buffered

    def take(self) -> bytes:
        """The body of a response that is there."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    async def peek(self, most: int, seconds: float) -> bytes:
        """The body, which stays to be read; what there is of it, where it is longer, or takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended and self._buffered <= most:
                    await self._more()
        return self.take()

    async def read(self) -> bytes:
        """What has come of the body since the last time; waits for it. Empty at the end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._more()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._buffered > MOST_BUFFERED and self._connection is not None:
            self._connection.resume_reading()
        self._buffered = 0
        return data

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def release(self) -> None:
        """Done with it. A connection whose response was read to its end can be used again; any other is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(is_clean=self._ended and self._error is None)

    def done_with(self, is_ours: bool) -> None:
        """Done with it. Where it was not the answer to our request, the right one may still come on this connection,
        which nobody else should get."""
        connection = self._connection
        if not is_ours and connection is not None:
            self._connection = None
            connection.close()
        self.release()

    # For the connection

    def feed(self, data: bytes) -> None:
        for piece in (data,) if self._inflate is None else self._inflate(data):
            self._pieces.append(piece)
            self._buffered += len(piece)
        if self._buffered > MOST_BUFFERED and self._connection is not None:
            self._connection.pause_reading()
        self._wake()

    def end(self, error: RequestFailed | None = None) -> None:
        """Nothing more comes."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
