"""Watches files: says when one has changed and then been left alone for a moment.

Looks at the files from a thread of its own instead of being notified by the system. That is the same on every system,
works for files that are replaced, linked or not there yet, needs no descriptors, which `inotify` and `kqueue` are short
of, and a network disk that hangs holds up only this thread. Looking at four files takes some 20 µs, 2.5 times a
second. The thread is one for all files of the process: while a disk hangs that one of them is on, changes of the others
are not noticed either. They are when it answers again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

# How often files are looked at. Together with the two below a change is noticed, and known to be over, within 0.7 s.
LOOK_SECONDS: Final = 0.4
# While something changes we look more often: it may be over any time.
CLOSER_LOOK_SECONDS: Final = 0.1
# Editors write in several steps, or write a new file and rename it. Within this time they are through.
STILL_SECONDS: Final = 0.2

# Of each file what tells that it is another one or has been written to; None where there is none.
Fingerprint = tuple[tuple[int, ...] | None, ...]


def fingerprint(files: Iterable[str]) -> Fingerprint:
    """What tells later whether any of these files has changed. Looks at the disk."""
    return tuple(map(_fingerprint_of, files))


def _fingerprint_of(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    # The time of the last change of the inode covers what keeps its size and has its time of writing set back.
    return found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


class Watched:
    """Some files that belong together, and who is notified of changes."""

    def __init__(self, files: Iterable[str], known: Fingerprint | None, changed: Callable[[Fingerprint], None]) -> None:
        self.files = tuple(files)
        # Told from the watching thread, with what the files are like now.
        self._changed = changed
        # What was reported last, and what was seen last.
        self._reported = known
        self._seen = known
        self._since = 0.0

    @property
    def is_settling(self) -> bool:
        """Whether it has changed and may not be over yet."""
        return self._seen != self._reported

    def look(self, now: float) -> None:
        """See whether there is something to tell."""
        seen = fingerprint(self.files)
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif seen != self._reported and now - self._since >= STILL_SECONDS:
            self._reported = seen
            self._changed(seen)


class FileWatch:
    """Looks at any number of files from one thread, which runs as long as there are any."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, watched: Watched) -> None:
        """Look at these, too."""
        self._watched.add(watched)
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="file-watch", daemon=True)
            self._thread.start()

    def discard(self, watched: Watched) -> None:
        """Do not look at these any more."""
        self._watched.discard(watched)

    def close(self) -> None:
        """Look at nothing any more. Returns at once; the thread ends by itself."""
        self._watched.clear()
        self._closed.set()

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._closed.wait(pause):
            pause = LOOK_SECONDS
            # A copy, in one step of the interpreter: others add to it.
            for watched in tuple(self._watched):
                watched.look(time.monotonic())
                if watched.is_settling:
                    pause = CLOSER_LOOK_SECONDS
