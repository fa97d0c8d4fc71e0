"""Bodies of responses: complete ones up to a limit, event streams as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.framing import LongLine
from mcp_workbench.engine.jsonrpc.messages import Envelope, Malformed, read_error
from mcp_workbench.engine.transport.http.client.failures import too_large
from mcp_workbench.engine.transport.http.client.response import Response
from mcp_workbench.engine.transport.http.message_summary import is_batch, single_line
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.engine.transport.lines import LONG_LINE

# How much of an error page is read.
MAX_ERROR_BODY_BYTES: Final = 16 * 1024
ERROR_BODY_TIMEOUT: Final = 2.0
# After the answer a server usually ends the stream at once; then the connection can be reused.
STREAM_END_TIMEOUT: Final = 0.5
# How much of an event stream is parsed before other tasks get a turn: some thousand events if they are tiny.
MAX_PARSED_AT_ONCE: Final = 32 * 1024


class _Failed(Struct, gc=False):
    error: Raw


_decode_failed: Final = Decoder(_Failed).decode


async def read_whole(response: Response, limit: int) -> bytes | LongLine:
    """The body, in pieces if it is large. Raises `DownstreamError` beyond the limit."""
    if (response.declared_bytes or 0) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    # The declared size of a compressed body is not its real size, so count here.
    while chunk := await response.read():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        parts.append(chunk)
    return LongLine(parts) if size > LONG_LINE else b"".join(parts)


def read_large_body(
    body: LongLine, examine: Callable[[bytes], None] | None = None
) -> tuple[bytes, Envelope | Malformed]:
    """The message as one line, and its envelope; takes a while, and other threads run meanwhile. A batch is neither
    parsed nor examined here, because the caller splits it."""
    from mcp_workbench.engine.jsonrpc.large_messages import read_large

    line = single_line(body.join())
    if is_batch(line):
        return line, Malformed("a batch")
    if examine is not None:
        examine(line)
    try:
        return line, read_large(line)
    except Malformed as error:
        return line, error


class EventReceiver(Protocol):
    """Receives the messages of a stream that belongs to no request."""

    def deliver(self, message: bytes) -> None: ...

    async def deliver_aside(self, body: LongLine) -> None: ...


async def deliver_large_event(receiver: EventReceiver, event: ServerSentEvent) -> bool:
    """Returns false: such a stream is read until it ends."""
    await receiver.deliver_aside(LongLine([event.data]))
    return False


async def read_events(
    response: Response, parser: SseParser, limit: int, on_event: Callable[[ServerSentEvent], bool | Awaitable[bool]]
) -> bool:
    """Deliver events until `on_event` returns true (returns true), or the stream ends (returns false)."""
    while chunk := await response.read():
        for start in range(0, len(chunk), MAX_PARSED_AT_ONCE):
            if start:
                # Let other tasks run between two pieces, each of which may contain thousands of events.
                await asyncio.sleep(0)
            for event in parser.feed(chunk[start : start + MAX_PARSED_AT_ONCE]):
                has_it = on_event(event)
                if has_it if isinstance(has_it, bool) else await has_it:
                    await _read_to_end(response)
                    return True
        if parser.overflowed:
            raise too_large(limit)
    return False


async def read_error_text(response: Response) -> str:
    """The beginning of an error body; whatever arrives in time."""
    text = b""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ERROR_BODY_TIMEOUT):
            while len(text) < MAX_ERROR_BODY_BYTES and (chunk := await response.read()):
                text += chunk
    return text[:MAX_ERROR_BODY_BYTES].decode(errors="replace")


def error_in(text: str) -> tuple[int, bytes] | None:
    """Code and raw JSON of the JSON-RPC error in a body; None if the body is anything else."""
    try:
        raw = bytes(_decode_failed(text).error)
    except (DecodeError, ValidationError, RecursionError):
        return None
    return (read_error(raw).code, raw) if raw.startswith(b"{") and b'"code"' in raw else None


async def _read_to_end(response: Response) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STREAM_END_TIMEOUT):
            while await response.read():
                pass
