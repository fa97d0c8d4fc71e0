"""From what a descriptor brought to a receiver: lines, what is too long, and the rest at the end."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mcp_workbench.jsonrpc.framing import LineSplitter, LongLine
from mcp_workbench.jsonrpc.messages import Envelope, Malformed
from mcp_workbench.transport.link import ReadReceiver, Receiver

log = logging.getLogger(__name__)

# A longer line is joined and read in a thread, where a hundred megabytes take a second or two and nobody else waits. Up
# to this it is done at once, in some ten milliseconds, and costs less.
LONG_LINE: Final = 8 << 20


class LineFeed:
    """Cuts a stream into messages and delivers them, one by one.

    A message that makes a receiver raise is a defect of ours; the messages behind it are delivered all the same.
    """

    __slots__ = ("_read_receiver", "_receiver", "_splitter")

    def __init__(self, limit: int, receiver: Receiver) -> None:
        self._splitter = LineSplitter(limit, LONG_LINE)
        self._receiver = receiver
        self._read_receiver = receiver if isinstance(receiver, ReadReceiver) else None

    def feed(self, data: bytes) -> asyncio.Future[None] | None:
        """Take in what was read. Where a future is returned, nothing more may be fed before it is done."""
        lines = self._splitter.feed(data)
        long_line = self._splitter.long_line
        if long_line is not None:
            self._splitter.long_line = None
            return self._deliver_aside(long_line, lines)
        self._deliver(lines)
        return None

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a line that is not complete."""
        return self._splitter.unfinished_bytes

    def finish(self) -> None:
        """The stream ended: an unfinished last line counts as a message."""
        line = self._splitter.finish()
        self._deliver([line] if line else [])

    def discard(self) -> None:
        """The stream is read no further: let go of an unfinished line at once, which may be large."""
        self._splitter.discard()

    def _deliver_aside(self, long_line: LongLine, lines: list[bytes]) -> asyncio.Future[None]:
        """The long line, read in a thread, and then those behind it."""
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[None] = loop.create_future()
        joins = self._read_receiver is None

        def on_read(reading: asyncio.Future[tuple[bytes, Envelope | Malformed | None]]) -> None:
            try:
                line, message = reading.result()
            except Exception as error:
                # No memory, as a rule. Whoever reads ends with it.
                delivered.set_exception(error)
                return
            self._deliver_read(line, message)
            self._deliver(lines)
            delivered.set_result(None)

        reading = loop.run_in_executor(None, _join if joins else _read, long_line)
        reading.add_done_callback(on_read)
        return delivered

    def _deliver_read(self, line: bytes, message: Envelope | Malformed | None) -> None:
        if self._read_receiver is None or message is None:
            self._deliver([line])
            return
        try:
            self._read_receiver.on_read_message(line, message)
        except Exception:
            log.exception("a message could not be handled; please report this: %.200r", line[:400])

    def _deliver(self, lines: list[bytes]) -> None:
        receiver = self._receiver
        for line in lines:
            if not line:
                continue
            try:
                receiver.on_message(line)
            except Exception:
                log.exception("a message could not be handled; please report this: %.200r", line[:400])
        if self._splitter.oversized:
            for remains in self._splitter.oversized:
                receiver.on_oversized(remains)
            self._splitter.oversized.clear()


def _join(long_line: LongLine) -> tuple[bytes, None]:
    return long_line.join(), None


def _read(long_line: LongLine) -> tuple[bytes, Envelope | Malformed]:
    from mcp_workbench.jsonrpc.large_messages import read_large

    line = long_line.join()
    try:
        return line, read_large(line)
    except Malformed as error:
        return line, error
