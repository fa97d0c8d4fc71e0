"""The audit's thread: takes entries from a bounded queue and has them written, whatever the disk does.

Owns the queue, what is lost when it is full, and how it is said that lines cannot be written. Whoever puts an entry in
never waits for the disk: the thread gathers what comes within a moment and writes it at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

# Entries that wait to be written: the calls of a busy tenth of a second, and some megabytes at most.
MOST_QUEUED: Final = 4096
# Where calls wait for room: those that are under way by then still end, and are written down.
MOST_QUEUED_BY_WAITING: Final = 4 * MOST_QUEUED
# How long entries are gathered: without it, each call would cost a switch of threads. A crash loses so much.
GATHER_SECONDS: Final = 0.02
# Entries that are described at once.
MOST_DESCRIBED: Final = 256
# A disk that is full is tried again so often.
RETRY_SECONDS: Final = 1.0
# At the end, what is left is written within this time, or counted as lost.
CLOSE_SECONDS: Final = 2.0


class Destination(Protocol):
    """Where lines go."""

    def append(self, bodies: Sequence[bytes]) -> int:
        """How many of them were written, from the first; raises OSError where none was."""

    def close(self) -> None: ...


class AuditWriter:
    """The queue and the thread behind it."""

    def __init__(self, destination: Destination, describe: Callable[[list[Any], int], list[bytes]], where: str) -> None:
        self._destination = destination
        # From entries, and how many were lost before them, to the bodies of their lines. Called in the thread.
        self._describe = describe
        self._where = where
        self.queue: deque[object] = deque()
        # Counted where entries are put in, and reported by the thread: each number has one writer.
        self._lost = 0
        self._told = 0
        # Described, and not written yet.
        self._unwritten = 0
        self.is_awake = False
        self._is_closing = False
        self._wake = threading.Event()
        self._is_failing = False
        self._thread: threading.Thread | None = None

    @property
    def is_full(self) -> bool:
        return len(self.queue) >= MOST_QUEUED

    def put(self, entry: object, most: int = MOST_QUEUED) -> None:
        """Have it written soon. Where there is no room, it is counted."""
        if len(self.queue) >= most:
            self.count_lost()
            return
        self.queue.append(entry)
        if not self.is_awake:
            self.wake()

    def count_lost(self) -> None:
        """There was no room for an entry."""
        self._lost += 1

    def wake(self) -> None:
        """There is something in the queue."""
        self.is_awake = True
        if self._thread is None:
            # A daemon: a disk that does not answer must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Write what is left, for a bounded time."""
        self._is_closing = True
        if self._thread is None:
            self._destination.close()
            return
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        left = len(self.queue) + self._unwritten + self._lost - self._told
        if self._thread.is_alive() or left:
            log.error("%d lines of the audit could not be written to `%s`", left, self._where)

    def _run(self) -> None:
        waiting: list[bytes] = []
        is_over = False
        while not is_over:
            self._wake.wait()
            if not self._is_closing:
                time.sleep(RETRY_SECONDS if self._is_failing else GATHER_SECONDS)
            self._wake.clear()
            # Before looking: what is put in from now on wakes us again.
            self.is_awake = False
            is_over = self._is_closing
            try:
                while waiting or self.queue:
                    waiting = waiting or self._batch()
                    self._unwritten = len(waiting)
                    if waiting:
                        self._append(waiting)
                    self._unwritten = len(waiting)
                    self._works_again()
            except OSError as error:
                self._failed(error)
                self.is_awake = True
                self._wake.set()
            except Exception:
                log.exception("writing the audit failed; please report this")
        self._destination.close()

    def _append(self, waiting: list[bytes]) -> None:
        """Write some of these, and take them out. Raises OSError where none was written."""
        try:
            del waiting[: self._destination.append(waiting)]
        except OSError:
            raise
        except Exception:
            # The same lines would fail in the same way for ever, and no other would be written.
            log.exception("writing the audit failed, and %d lines of it are lost; please report this", len(waiting))
            self._told -= len(waiting)
            waiting.clear()

    def _batch(self) -> list[bytes]:
        """The bodies of some entries, and that lines were lost before them."""
        queue, lost = self.queue, self._lost
        entries = [queue.popleft() for _ in range(min(len(queue), MOST_DESCRIBED))]
        bodies = self._describe(entries, lost - self._told)
        if bodies:
            self._told = lost
        # What cannot be described is lost too.
        self._told -= len(entries) - len(bodies)
        return bodies

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = error.strerror or str(error)
            log.error(
                "the audit cannot be written to `%s`: %s. It is tried again; %d lines are kept meanwhile, and those "
                "beyond are counted",
                self._where,
                reason,
                MOST_QUEUED,
            )

    def _works_again(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.warning("the audit is written to `%s` again", self._where)
