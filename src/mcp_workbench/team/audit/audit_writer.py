"""The audit's thread: takes entries from a bounded queue and writes them, whatever the disk does.

Owns the queue, the count of lines lost when it is full, and the messages about lines that cannot be written. Adding an
entry never waits for the disk: the thread collects entries for a moment and writes them together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

# The maximum number of entries in the queue: the calls of a busy tenth of a second, and a few megabytes at most.
MAX_QUEUED_ENTRIES: Final = 4096
# The limit if calls wait for room: those in flight by then still end, and are recorded.
MAX_QUEUED_ENTRIES_BY_WAITING: Final = 4 * MAX_QUEUED_ENTRIES
# How long entries are collected; otherwise each call would cost a thread switch. A crash loses this much.
GATHER_DELAY: Final = 0.02
# The maximum number of entries in a batch.
MAX_BATCH_ENTRIES: Final = 256
# The interval of attempts when the disk is full.
FULL_DISK_RETRY_INTERVAL: Final = 1.0
# At the end, the remaining lines are written within this time, or counted as lost.
AUDIT_CLOSE_TIMEOUT: Final = 2.0


class Destination(Protocol):
    """Where the writer puts lines: a file, stdout or syslog."""

    def append(self, lines: Sequence[Any]) -> int:
        """Write the first of these lines, and return how many. Raises OSError if none was written."""

    def close(self) -> None: ...


class AuditWriter:
    """The queue and the thread behind it."""

    def __init__(self, destination: Destination, describe: Callable[[list[Any], int], list[Any]], where: str) -> None:
        self._destination = destination
        # Makes lines from entries and the number of those lost before them. Called in the thread.
        self._describe = describe
        self._where = where
        self.queue: deque[object] = deque()
        # Lost entries are counted by the callers and reported by the thread, so that each number has one writer.
        self._lost = 0
        self._reported = 0
        # The number of lines that are made and not written yet.
        self._unwritten = 0
        self.is_awake = False
        self._is_closing = False
        self._heir: AuditWriter | None = None
        self._predecessor: AuditWriter | None = None
        self._wake = threading.Event()
        self._is_failing = False
        # None before the first entry, and after the last lines at the end.
        self._thread: threading.Thread | None = None
        # Held while deciding whether the thread ends, and while starting another.
        self._starting = threading.Lock()

    @property
    def is_full(self) -> bool:
        return len(self.queue) >= MAX_QUEUED_ENTRIES

    def put(self, entry: object, most: int = MAX_QUEUED_ENTRIES) -> None:
        """Add an entry, which is written soon. Without room, it is counted as lost."""
        if len(self.queue) >= most:
            self.count_lost()
            return
        self.queue.append(entry)
        if not self.is_awake:
            self.wake()

    @property
    def lost(self) -> int:
        """How many entries were lost so far."""
        return self._lost

    def count_lost(self, count: int = 1) -> None:
        self._lost += count

    def wake(self) -> None:
        """Wake the thread, because there are entries in the queue."""
        self.is_awake = True
        with self._starting:
            if self._thread is None:
                # A daemon, because a disk that does not respond must not keep the process from ending.
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()
            self._wake.set()

    def finish(self, heir: AuditWriter | None = None) -> None:
        """Have the remaining lines written and the destination closed, without waiting. Calls in flight may end later:
        their lines are still written, to the destination opened again. `heir`: the writer that continues after our last
        line, and gets the entries that our destination did not accept."""
        if heir is not None:
            self._heir, heir._predecessor = heir, self
        self._is_closing = True
        self.wake()

    def close(self) -> None:
        """Write the remaining lines, for a limited time. Blocks, so not for the event loop."""
        self.finish()
        if not self._wait_finished():
            self._report_left()

    def _wait_finished(self) -> bool:
        thread = self._thread
        if thread is not None:
            thread.join(AUDIT_CLOSE_TIMEOUT)
        return thread is None or not thread.is_alive()

    def _report_left(self) -> None:
        left = len(self.queue) + self._unwritten + self._lost - self._reported
        if left:
            log.error("%d lines of the audit could not be written to `%s`", left, self._where)

    def _run(self) -> None:
        if self._predecessor is not None:
            # It may write to the same file, and lines have to be in order.
            self._predecessor._wait_finished()
            self._predecessor = None
        waiting: list[Any] = []
        while True:
            self._wake.wait()
            if not self._is_closing:
                time.sleep(FULL_DISK_RETRY_INTERVAL if self._is_failing else GATHER_DELAY)
            self._wake.clear()
            # Before looking at the queue, so that entries added from now on wake the thread again.
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
            if is_over and self._has_ended():
                return

    def _has_ended(self) -> bool:
        """Whether no entry was added since the destination was closed. Does not wait for a full disk."""
        self._destination.close()
        with self._starting:
            if self._wake.is_set() and not self._is_failing:
                return False
            self._thread = None
        if self._heir is None:
            self._report_left()
        else:
            self._hand_over(self._heir)
        return True

    def _hand_over(self, heir: AuditWriter) -> None:
        # Counted before entries are added, so that the first line after the gap reports it. Lines that were made
        # already were made for this destination.
        heir.count_lost(self._unwritten + self._lost - self._reported)
        self._unwritten, self._reported = 0, self._lost
        while self.queue:
            heir.put(self.queue.popleft())

    def _append(self, waiting: list[Any]) -> None:
        """Write some of these lines, and remove them. Raises OSError if none was written."""
        try:
            del waiting[: self._destination.append(waiting)]
        except OSError:
            raise
        except Exception:
            # The same lines would fail again forever, and no others would be written.
            log.exception("writing the audit failed, and %d lines of it are lost; please report this", len(waiting))
            self._reported -= len(waiting)
            waiting.clear()

    def _batch(self) -> list[Any]:
        """The lines of some entries, including how many were lost before them."""
        queue, lost = self.queue, self._lost
        entries = [queue.popleft() for _ in range(min(len(queue), MAX_BATCH_ENTRIES))]
        lines = self._describe(entries, lost - self._reported)
        if lines:
            self._reported = lost
        # Entries without a line are lost too.
        self._reported -= len(entries) - len(lines)
        return lines

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = error.strerror or str(error)
            log.error(
                "the audit cannot be written to `%s`: %s. It is tried again; %d lines are kept meanwhile, and those "
                "beyond are counted",
                self._where,
                reason,
                MAX_QUEUED_ENTRIES,
            )

    def _works_again(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.warning("the audit is written to `%s` again", self._where)
