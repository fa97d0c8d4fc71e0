"""From what a descriptor brought to a receiver: lines, what is too long, and the rest at the end."""

from __future__ import annotations

import logging

from mcp_workbench.jsonrpc.framing import LineSplitter
from mcp_workbench.transport.link import Receiver

log = logging.getLogger(__name__)


class LineFeed:
    """Cuts a stream into messages and delivers them, one by one.

    A message that makes a receiver raise is a defect of ours; the messages behind it are delivered all the same.
    """

    __slots__ = ("_receiver", "_splitter")

    def __init__(self, limit: int, receiver: Receiver) -> None:
        self._splitter = LineSplitter(limit)
        self._receiver = receiver

    def feed(self, data: bytes) -> None:
        self._deliver(self._splitter.feed(data))

    def finish(self) -> None:
        """The stream ended: an unfinished last line counts as a message."""
        line = self._splitter.finish()
        self._deliver([line] if line else [])

    def discard(self) -> None:
        """The stream is read no further: let go of an unfinished line at once, which may be large."""
        self._splitter.discard()

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
