"""glibc's allocator, and what it does with memory that a large message has used.

By default glibc gives it back to the system after each message and asks for it again with the next one; the page
faults that this costs take longer than everything we do with the message (measured: 3.1 ms against 2.3 ms for a result
of 1 MiB). So, from the first large message on, a few megabytes stay ours.

What a larger message leaves behind would stay too: it was read in pieces, and one small thing that lies behind them
keeps all of them. That is given back when things have calmed down.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

KEPT_BYTES: Final = 4 * 1024 * 1024
# Blocks of this size and more are mapped one by one, and go back at once when they are free.
MAPPED_FROM: Final = 2 * 1024 * 1024

# A moment after a message of more than `KEPT_BYTES`; further ones may follow it. And once more, for a peer that took
# its time: what it had not read yet was still in use the first time.
TRIM_AFTER: Final = (1.0, 10.0)

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

# Another C library, or neither descriptors nor memory to load `ctypes` with: then it stays as it is. What is read
# meanwhile must not be lost over it.
_WITHOUT: Final = (OSError, AttributeError, ImportError, MemoryError)

_done = False
_timers: list[asyncio.TimerHandle | None] = [None, None]


def keep_freed_memory() -> None:
    """Let freed memory stay ours, from now on. Without glibc nothing happens."""
    global _done
    if _done:
        return
    _done = True
    with contextlib.suppress(*_WITHOUT):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM)


def trim_soon(loop: asyncio.AbstractEventLoop) -> None:
    """A message of more than we keep has passed. Without glibc nothing happens."""
    for number, seconds in enumerate(TRIM_AFTER):
        timer = _timers[number]
        if timer is not None and timer.when() > loop.time():
            if number == 0:
                continue
            timer.cancel()
        _timers[number] = loop.call_later(seconds, _trim_to_kept)


def _trim_to_kept() -> None:
    with contextlib.suppress(*_WITHOUT):
        import ctypes

        ctypes.CDLL(None).malloc_trim(KEPT_BYTES)


def trim() -> None:
    """Return to the system what is free, in whichever arena: threads have their own, which nobody trims."""
    with contextlib.suppress(*_WITHOUT):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
