"""From the data read from a descriptor to a receiver: lines, oversized lines, and the rest at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.jsonrpc.framing import LineSplitter, LongLine
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Envelope, Malformed, find_id
from mcp_workbench.engine.transport.allocator import trim_soon
from mcp_workbench.engine.transport.link import ExaminingReceiver, ReadReceiver, Receiver
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import shortage

log = logging.getLogger(__name__)

# A longer line is joined and parsed in a thread, where a hundred megabytes take a second or two and block no other
# client. A shorter one is parsed at once, in a millisecond or two, which costs less.
LONG_LINE: Final = 1 << 20
# The same where each is looked through as well.
LONG_EXAMINED_LINE: Final = 1 << 18
UNHANDLED: Final = "a message could not be handled; please report this: %.200r"


class LineFeed:
    """Splits a stream into messages and delivers them one by one.

    If a receiver raises on a message, that is a bug of ours; later messages are delivered nevertheless.
    """

    __slots__ = ("_batch", "_examine", "_read_receiver", "_receiver", "_splitter")

    def __init__(self, limit: int, receiver: Receiver, batch: WriteBatch) -> None:
        self._batch = batch
        self._examine = receiver.examine if isinstance(receiver, ExaminingReceiver) else None
        self._splitter = LineSplitter(limit, LONG_LINE if self._examine is None else LONG_EXAMINED_LINE)
        self._receiver = receiver
        self._read_receiver = receiver if isinstance(receiver, ReadReceiver) else None

    def feed(self, data: bytes) -> asyncio.Future[None] | None:
        """Process data that was read. If a future is returned, feed nothing more until it is done."""
        line = self._splitter.sole_line(data)
        if line:
            self._batch.is_sole = True
            try:
                self._receiver.on_message(line)
            except Exception:
                log.exception(UNHANDLED, line[:400])
            return None
        lines = self._splitter.feed(data)
        long_line = self._splitter.long_line
        if long_line is not None:
            self._splitter.long_line = None
            return self._deliver_aside(long_line, lines)
        self._deliver(lines)
        return None

    @property
    def unfinished_bytes(self) -> int:
        """The number of bytes received of an incomplete line."""
        return self._splitter.unfinished_bytes

    def finish(self) -> None:
        """The stream ended: an unfinished last line counts as a message."""
        line = self._splitter.finish()
        self._deliver([line] if line else [])

    def discard(self) -> None:
        """Drop an unfinished line, which may be large, because the stream is read no further."""
        self._splitter.discard()

    def _deliver_aside(self, long_line: LongLine, lines: list[bytes]) -> asyncio.Future[None]:
        """Deliver the long line, parsed in a thread, and then the lines after it."""
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[None] = loop.create_future()
        read = _join if self._read_receiver is None else _read

        def on_read(reading: asyncio.Future[tuple[bytes, Envelope | Malformed | None]]) -> None:
            try:
                line, message = reading.result()
            except Exception as error:
                # Usually out of memory. It ends the reader.
                delivered.set_exception(error)
                return
            self._deliver_read(line, message)
            self._deliver(lines)
            # What was read in a thread came from an arena that nothing else gives back.
            trim_soon(loop)
            delivered.set_result(None)

        reading = loop.run_in_executor(None, read, long_line, self._examine)
        reading.add_done_callback(on_read)
        return delivered

    def _deliver_read(self, line: bytes, message: Envelope | Malformed | None) -> None:
        if self._read_receiver is None or message is None:
            self._deliver([line])
            return
        try:
            self._read_receiver.on_read_message(line, message)
        except Exception:
            log.exception(UNHANDLED, line[:400])

    def _deliver(self, lines: list[bytes]) -> None:
        receiver = self._receiver
        for line in lines:
            if not line:
                continue
            try:
                receiver.on_message(line)
            except Exception:
                log.exception(UNHANDLED, line[:400])
        if self._splitter.oversized:
            for remains in self._splitter.oversized:
                receiver.on_oversized(remains)
            self._splitter.oversized.clear()


_Examine = Callable[[bytes], None]


def _join(long_line: LongLine, examine: _Examine | None) -> tuple[bytes, None]:
    line = long_line.join()
    if examine is not None:
        examine(line)
    return line, None


def _read(long_line: LongLine, examine: _Examine | None) -> tuple[bytes, Envelope | Malformed]:
    from mcp_workbench.engine.jsonrpc.large_messages import read_large

    line = b""
    try:
        line, _ = _join(long_line, examine)
        return line, read_large(line)
    except Malformed as error:
        return line, error
    except Exception as error:
        # A shortage of memory, or a bug of ours. Whoever waits for an answer gets one, and later messages are read.
        log.warning("a message of %d bytes cannot be read: %r", long_line.size, error)
        id = find_id(long_line.parts[0], long_line.parts[-1])
        return line, Malformed(shortage(error) or "internal error; see the log", id, code=INTERNAL_ERROR)
