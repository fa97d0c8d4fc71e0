"""The latest lines of this process's log, kept only while somebody follows them. Bounded."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

# Between two looks, which are a fraction of a second apart.
MAX_FOLLOWED_LINES: Final = 2000
_LOGGERS: Final = ("mcp_workbench", "asyncio")


class LogTail(logging.Handler):
    """Formats lines as the log does, so that they are redacted as there."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=MAX_FOLLOWED_LINES)
        # How many there have been.
        self.count = 0
        written = logging.getLogger(_LOGGERS[0]).handlers
        self.setFormatter(written[0].formatter if written else None)
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        self.count += 1

    def since(self, number: int) -> list[str]:
        """The lines after the first `number` ones, as far as they are kept."""
        return list(self._lines)[max(0, len(self._lines) - max(0, self.count - number)) :]

    def end(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
