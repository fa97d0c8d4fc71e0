"""Watches files, and reports a change once the file has not changed again for a moment.

Polls the files in a thread instead of using notifications of the system. That works the same everywhere, also for files
that are replaced, linked or do not exist yet; it needs no descriptors, which are scarce with `inotify` and `kqueue`;
and a network disk that hangs blocks only this thread. Checking four files takes about 20 µs, 2.5 times a second. All
files of the process share the thread, so while one of their disks hangs, changes of the others go unnoticed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

# How often files are checked. With the two constants below, a change is reported within 0.7 s.
FILE_CHECK_INTERVAL: Final = 0.4
# While a file is changing, it is checked more often.
CHANGING_FILE_POLL_INTERVAL: Final = 0.1
# Editors write in several steps, or write a new file and rename it. This is enough time to finish.
FILE_SETTLE_DELAY: Final = 0.2

# For each file, values that change when it is written or replaced; None if it does not exist.
Fingerprint = tuple[tuple[int, ...] | None, ...]


def fingerprint(files: Iterable[str]) -> Fingerprint:
    """A value to detect later whether any of these files has changed. Reads from disk."""
    return tuple(map(_fingerprint_of, files))


def _fingerprint_of(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    # ctime detects changes that keep the size and reset mtime.
    return found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


class Watched:
    """A group of files, and the callback for changes."""

    def __init__(self, files: Iterable[str], known: Fingerprint | None, changed: Callable[[Fingerprint], None]) -> None:
        self.files = tuple(files)
        # Told from the watching thread, with what the files are like now.
        self._changed = changed
        # The last reported and the last seen fingerprint.
        self._reported = known
        self._seen = known
        self._since = 0.0

    @property
    def is_settling(self) -> bool:
        """Whether a change was seen and may still be in progress."""
        return self._seen != self._reported

    def look(self, now: float) -> None:
        """Check the files, and report a change that has settled."""
        seen = fingerprint(self.files)
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif seen != self._reported and now - self._since >= FILE_SETTLE_DELAY:
            self._reported = seen
            self._changed(seen)


class FileWatch:
    """Polls any number of files from one thread, which runs as long as there are any."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, watched: Watched) -> None:
        """Start watching these files."""
        self._watched.add(watched)
        if self._thread is None:
            # A daemon, so that a disk that hangs cannot keep the process from exiting.
            self._thread = threading.Thread(target=self._run, name="file-watch", daemon=True)
            self._thread.start()

    def discard(self, watched: Watched) -> None:
        """Stop watching these files."""
        self._watched.discard(watched)

    def close(self) -> None:
        """Stop watching all files. Returns at once; the thread ends by itself."""
        self._watched.clear()
        self._closed.set()

    def _run(self) -> None:
        pause = FILE_CHECK_INTERVAL
        while not self._closed.wait(pause):
            pause = FILE_CHECK_INTERVAL
            # Copied atomically, because other threads modify it.
            for watched in tuple(self._watched):
                watched.look(time.monotonic())
                if watched.is_settling:
                    pause = CHANGING_FILE_POLL_INTERVAL
