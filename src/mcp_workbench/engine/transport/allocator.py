"""glibc's allocator, and what it does with memory that a large message has used.

By default glibc returns it to the system after each message and requests it again for the next one; the page faults
that this costs take longer than everything we do with the message (measured: 3.1 ms against 2.3 ms for a result of
1 MiB). So, from the first large message on, a few megabytes are kept.

The memory of a larger message would be kept too: it was read in pieces, and one small allocation above them prevents
all of them from being returned. So it is trimmed once traffic has calmed down.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

KEPT_BYTES: Final = 4 * 1024 * 1024
# Blocks of at least this size are mapped individually, and returned as soon as they are freed.
MAPPED_FROM: Final = 2 * 1024 * 1024

# A moment after a message of more than `KEPT_BYTES`, since more may follow it. And a second time, for a slow peer: what
# it had not read by then was still in use the first time.
TRIM_AFTER: Final = (1.0, 10.0)

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

# Another C library, or not enough descriptors or memory to load `ctypes`: then nothing is changed. Data being read must
# not be lost because of it.
_WITHOUT: Final = (OSError, AttributeError, ImportError, MemoryError)

_done = False
_timers: list[asyncio.TimerHandle | None] = [None, None]


def keep_freed_memory() -> None:
    """Keep freed memory from now on. Does nothing without glibc."""
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
    """Schedule a trim after a message larger than `KEPT_BYTES`. Does nothing without glibc."""
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
    """Return free memory to the system from all arenas, including those of threads, which are never trimmed
    otherwise."""
    with contextlib.suppress(*_WITHOUT):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
