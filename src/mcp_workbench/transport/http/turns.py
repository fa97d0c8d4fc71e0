"""Writes that wait until everything that was read in this turn of the loop has been looked at.

Each write wakes whoever reads, and on a busy machine takes the processor away from us. Sent one behind the other, many
small messages are read in one go on the other side. Measured at 32 calls in flight from HTTP to HTTP, a call costs a
sixth less than with each message written where it comes up. A call that is alone would only be later: whoever has
something to write knows whether others are under way.

Owns when; refuses to know what is written, and where to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

log = logging.getLogger(__name__)


class Writer(Protocol):
    """Somebody who has something to write."""

    def flush(self) -> None:
        """Write it now."""


class Turn:
    """What is to be written at the end of this turn."""

    __slots__ = ("_loop", "_writers")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writers: list[Writer] = []

    def add(self, writer: Writer) -> None:
        """Flush this one too."""
        if not self._writers:
            self._loop.call_soon(self._end)
        self._writers.append(writer)

    def _end(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            try:
                writer.flush()
            except Exception:
                # The others have something to write as well.
                log.exception("a defect of ours; please report it")
