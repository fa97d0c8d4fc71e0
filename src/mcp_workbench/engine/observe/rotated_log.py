"""A log file of limited size: when it is full, it replaces the previous old file, and a new one begins."""

from __future__ import annotations

import contextlib
import os
from typing import Final

# About ten thousand lines; there are at most two such files.
MAX_LOG_FILE_BYTES: Final = 4 * 1024 * 1024
OLD: Final = ".1"


class RotatedLog:
    """The stream of a log handler. Ignores errors such as a full disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._size = 0

    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._open()
            elif self._size + len(data) > MAX_LOG_FILE_BYTES:
                os.replace(self._path, self._path + OLD)
                self.close()
                self._open()
            self._size += os.write(self._descriptor, data)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._descriptor).st_size
