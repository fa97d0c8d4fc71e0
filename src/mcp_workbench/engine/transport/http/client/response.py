"""A server's response: its head, its body as it arrives, and the ways in which it can fail.

Owns the flow of a body. Knows nothing about its framing, which is up to the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

# Beyond this, unread data stays in the kernel.
MAX_BUFFERED_BYTES: Final = 1024 * 1024
# The largest output of one read of up to 256 KiB; JSON hardly ever compresses that well. More is a decompression bomb.
MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024


class RequestFailed(Exception):
    """The connection did not deliver a response. The subclasses tell how far it got."""


class NoAnswer(RequestFailed):
    """It ended before the first byte of a response; it is unknown whether the server acted."""


class NotSent(RequestFailed):
    """It ended before any of the request was written."""


class BrokeOff(RequestFailed):
    """It ended in the middle of a response."""


class NotHttp(RequestFailed):
    """The server's data is not HTTP."""


class Unwritable(RequestFailed):
    """The request cannot be written: a header contains characters that are not allowed in a header."""


class ResponseListener(Protocol):
    """Waits for a response. One of the two methods is called, once."""

    def on_response(self, response: Response) -> None:
        """The head has arrived, perhaps with a part of the body. The listener releases the response."""

    def on_failed(self, error: RequestFailed) -> None:
        """There will be no response."""


class BodySource(Protocol):
    """The connection that the body of a response comes from."""

    def pause_reading(self) -> None:
        """Too much is buffered: stop reading."""

    def resume_reading(self) -> None: ...

    def release(self, *, is_clean: bool) -> None:
        """The response is no longer read. `is_clean`: it was read to its end."""

    def close(self) -> None: ...


# Servers send the same few. Bounded, because a server may invent names.
@lru_cache(maxsize=256)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def join_fields(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; the values of a repeated field are joined (RFC 9110, 5.3)."""
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
        # Lower-case names; repeated values are joined.
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
        """The media type without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def declared_bytes(self) -> int | None:
        """The declared size of the body, before decompression."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 20 else None

    @property
    def is_complete(self) -> bool:
        """Whether the complete body has arrived."""
        return self._ended and self._error is None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the body that have arrived and not been read."""
        return self._buffered

    def take(self) -> bytes:
        """The body of a complete response."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    async def peek(self, most: int, seconds: float) -> bytes:
        """The body, without consuming it; only a part if it is larger than `most` or takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended and self._buffered <= most:
                    await self._more()
        return self.take()

    async def read(self) -> bytes:
        """Wait for more of the body and return it. Empty at the end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._more()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._buffered > MAX_BUFFERED_BYTES and self._connection is not None:
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
        """Stop reading. A connection whose response was read to its end is reused; any other is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(is_clean=self._ended and self._error is None)

    def done_with(self, is_ours: bool) -> None:
        """Release it. If it was not the answer to our request, the right one may still arrive on this connection, so no
        other request may use it."""
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
        if self._buffered > MAX_BUFFERED_BYTES and self._connection is not None:
            self._connection.pause_reading()
        self._wake()

    def end(self, error: RequestFailed | None = None) -> None:
        """The body has ended, or failed."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# Decompressing bodies as they arrive, within a bound.
def inflater(encoding: str) -> Callable[[bytes], list[bytes]] | None:
    """A decompressor for an encoding that we did not ask for. None if the encoding is not one we know."""
    name = encoding.strip().lower()
    if name not in ("gzip", "x-gzip", "deflate"):
        return None
    # 32 makes zlib detect which of the two formats it is.
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    is_first = True

    def unpack(data: bytes, room: int) -> bytes:
        nonlocal inflate, is_first
        try:
            return inflate.decompress(data, room)
        except zlib.error:
            if not is_first or name != "deflate":
                raise
            # Some servers leave out the zlib header that the standard requires.
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return inflate.decompress(data, room)
        finally:
            is_first = False

    def run(data: bytes) -> list[bytes]:
        nonlocal inflate
        pieces: list[bytes] = []
        size = 0
        while data:
            piece = unpack(data, MAX_INFLATED_BYTES + 1 - size)
            size += len(piece)
            if size > MAX_INFLATED_BYTES:
                raise zlib.error(f"one read of it unpacks to more than {MAX_INFLATED_BYTES} bytes")
            if piece:
                pieces.append(piece)
            data = inflate.unconsumed_tail
            if inflate.eof and inflate.unused_data:
                # Concatenated members are one body.
                data = inflate.unused_data
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return pieces

    return run
