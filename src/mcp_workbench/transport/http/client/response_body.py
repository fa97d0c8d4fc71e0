"""Bodies of responses: whole ones up to a limit, event streams as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.framing import LongLine
from mcp_workbench.jsonrpc.messages import Envelope, Malformed, read_error
from mcp_workbench.transport.http.client.failures import too_large
from mcp_workbench.transport.http.client.response import Response
from mcp_workbench.transport.http.message_summary import is_batch, single_line
from mcp_workbench.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.transport.lines import LONG_LINE

# What is read of a page that says why something failed.
MOST_OF_ERROR: Final = 16 * 1024
ERROR_SECONDS: Final = 2.0
# After the answer a server ends the stream at once; then the connection can be used again.
END_SECONDS: Final = 0.5
# What is parsed of an event stream before others have their turn: some thousand events, where they are tiny.
MOST_AT_ONCE: Final = 32 * 1024


class _Failed(Struct, gc=False):
    error: Raw


_decode_failed: Final = Decoder(_Failed).decode


async def read_whole(response: Response, limit: int) -> bytes | LongLine:
    """The body, in pieces where it is large. Raises `DownstreamError` beyond the limit."""
    if (response.declared_bytes or 0) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    # What a compressed body says of its size is not what comes out of it, so it is counted here.
    while chunk := await response.read():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        parts.append(chunk)
    return LongLine(parts) if size > LONG_LINE else b"".join(parts)


def read_large_body(body: LongLine) -> tuple[bytes, Envelope | Malformed]:
    """The message as one line, and what is in it; takes a while, and other threads run meanwhile. A batch is not
    read: it is for whoever takes it apart."""
    from mcp_workbench.jsonrpc.large_messages import read_large

    line = single_line(body.join())
    if is_batch(line):
        return line, Malformed("a batch")
    try:
        return line, read_large(line)
    except Malformed as error:
        return line, error


class EventReceiver(Protocol):
    """Takes what comes on a stream that belongs to no request."""

    def deliver(self, message: bytes) -> None: ...

    async def deliver_aside(self, body: LongLine) -> None: ...


async def deliver_large_event(receiver: EventReceiver, event: ServerSentEvent) -> bool:
    """False: what was wanted of such a stream never is all there."""
    await receiver.deliver_aside(LongLine([event.data]))
    return False


async def read_events(
    response: Response, parser: SseParser, limit: int, on_event: Callable[[ServerSentEvent], bool | Awaitable[bool]]
) -> bool:
    """Hand over events until `on_event` says that it has what it wanted (true), or the stream ends (false)."""
    while chunk := await response.read():
        for start in range(0, len(chunk), MOST_AT_ONCE):
            if start:
                # Others have their turn between two pieces, each of which may hold thousands of events.
                await asyncio.sleep(0)
            for event in parser.feed(chunk[start : start + MOST_AT_ONCE]):
                has_it = on_event(event)
                if has_it if isinstance(has_it, bool) else await has_it:
                    await _read_to_end(response)
                    return True
        if parser.overflowed:
            raise too_large(limit)
    return False


async def read_error_text(response: Response) -> str:
    """The beginning of a body that nobody may rely on."""
    text = b""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ERROR_SECONDS):
            while len(text) < MOST_OF_ERROR and (chunk := await response.read()):
                text += chunk
    return text[:MOST_OF_ERROR].decode(errors="replace")


def error_in(text: str) -> tuple[int, bytes] | None:
    """Code and whole of the JSON-RPC error that a body consists of; None where it is anything else."""
    try:
        raw = bytes(_decode_failed(text).error)
    except (DecodeError, ValidationError, RecursionError):
        return None
    return (read_error(raw).code, raw) if raw.startswith(b"{") and b'"code"' in raw else None


async def _read_to_end(response: Response) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while await response.read():
                pass
