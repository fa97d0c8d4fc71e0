"""Logs to stderr or a file, as text or JSON lines, with secrets redacted.

stdout belongs to the protocol; nothing here writes to it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final, Literal, TextIO

from mcp_workbench.engine.config.redact import Redactor

if TYPE_CHECKING:
    from mcp_workbench.engine.observe.rotated_log import RotatedLog

LogFormat = Literal["text", "json"]
# The maximum number of similar lines, of tracebacks, and of all lines within a minute.
MAX_SIMILAR_LINES: Final = 20
MAX_SIMILAR_TRACEBACKS: Final = 10
MAX_LINES_PER_MINUTE: Final = 1000
_MINUTE: Final = 60.0
_MAX_LOG_SUBJECT_LENGTH: Final = 200


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a log that cannot be written (closed stderr, full disk)."""


class RepetitionLimit(logging.Filter):
    """Limits similar lines, tracebacks, and all lines within a minute.

    A client or server that can cause one line can cause any number of them, and a full disk is another failure. Lines
    are similar if they come from the same place in the code and have the same first argument, such as a server's label
    or an address. Debug lines always pass, because the user asked for everything.
    """

    def __init__(self) -> None:
        super().__init__()
        self._since = float("-inf")
        self._lines = 0
        self._tracebacks = 0
        # The number of lines of each kind within the minute. Bounded, because only lines that pass are added.
        self._alike: dict[tuple[str, int, str], int] = {}
        # The number of lines dropped since the last that passed.
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        if not 0 <= record.created - self._since < _MINUTE:
            self._since, self._lines, self._tracebacks = record.created, 0, 0
            self._alike.clear()
        kind = (record.pathname, record.lineno, _subject(record))
        alike = self._alike.get(kind, 0) + 1
        self._tracebacks += bool(record.exc_info)
        if (
            alike > MAX_SIMILAR_LINES
            or (record.exc_info and self._tracebacks > MAX_SIMILAR_TRACEBACKS)
            or self._lines >= MAX_LINES_PER_MINUTE
        ):
            self._left_out += 1
            return False
        self._alike[kind] = alike
        self._lines += 1
        notes = []
        if self._left_out:
            notes.append(f"{self._left_out} lines were not logged before this one")
            self._left_out = 0
        if alike == MAX_SIMILAR_LINES:
            notes.append("more like this are not logged within this minute")
        if notes:
            record.msg, record.args = f"{record.getMessage()} ({'; '.join(notes)})", ()
        return True


def _subject(record: logging.LogRecord) -> str:
    first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
    return first[:_MAX_LOG_SUBJECT_LENGTH] if isinstance(first, str) else ""


class _TextFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line = self._redactor.text(super().format(record))
        if line.isprintable():
            return line
        try:
            # Imported with the first line that needs it, to keep it out of a normal start.
            from mcp_workbench.engine.printable import visible
        except (OSError, ImportError, MemoryError):
            # Without free descriptors nothing can be imported, and this line may be the one that reports it.
            return "\n".join(ascii(part)[1:-1] for part in line.split("\n"))
        return visible(line)


class _JsonFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        from mcp_workbench.engine.printable import report_json

        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "message": message}
        # Redacted before it is encoded, because escaping could hide a secret from the redactor.
        return report_json({key: self._redactor.text(value) for key, value in fields.items()}).decode()


def _for_us_alone(path: str, flags: int) -> int:
    """Create a log file for its owner only, because the output of servers may be private. An existing file keeps its
    mode, which may be intended."""
    return os.open(path, flags, 0o600)


def set_up(
    *, debug: bool, file: str | None, format: LogFormat, redactor: Redactor, stream: TextIO | RotatedLog | None = None
) -> None:
    """Send our logs to `stream`, or else to `file`, or else to stderr. Raises OSError if the file cannot be opened."""
    if stream is None:
        stream = sys.stderr if file is None else open(file, "a", encoding="utf-8", buffering=1, opener=_for_us_alone)  # noqa: SIM115
    handler = _Handler(stream)
    handler.setFormatter(_JsonFormatter(redactor) if format == "json" else _TextFormatter(redactor))
    handler.addFilter(RepetitionLimit())
    ours = logging.DEBUG if debug else logging.INFO
    # The event loop itself logs exceptions in callbacks.
    for name, level in (("mcp_workbench", ours), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level)
