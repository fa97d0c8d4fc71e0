"""Logs: to stderr or a file, as text or JSON lines, with secrets blacked out.

stdout belongs to the protocol; nothing here ever writes to it.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final, Literal

from mcp_workbench.config.redact import Redactor

Format = Literal["text", "json"]
MOST_TRACEBACKS: Final = 10
_MINUTE: Final = 60.0


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written (closed stderr, full disk) is no reason to fail or to complain."""


class _FewTracebacks(logging.Filter):
    """Tracebacks, so many a minute. A defect that somebody can provoke at will must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0
        self._count = 0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.exc_info:
            return True
        if not 0 <= record.created - self._since < _MINUTE:
            self._since, self._count = record.created, 0
        self._count += 1
        if self._count > MOST_TRACEBACKS:
            self._dropped += 1
            return False
        if self._dropped:
            record.msg, record.args = f"{record.getMessage()} ({self._dropped} more like this were not logged)", ()
            self._dropped = 0
        return True


class _TextFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line = self._redactor.text(super().format(record))
        if line.isprintable():
            return line
        # Imported with the first line that needs it: a start that goes well does not.
        from mcp_workbench.printable import visible

        return visible(line)


class _JsonFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        from mcp_workbench.jsonrpc.messages import encode

        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "message": message}
        # Blacked out before it is encoded: escaping could hide a secret from the redactor.
        return encode({key: self._redactor.text(value) for key, value in fields.items()}).decode()


def set_up(*, debug: bool, file: str | None, format: Format, redactor: Redactor) -> None:
    """Send the house's logs where the user wants them. Raises OSError when the file cannot be opened."""
    stream = sys.stderr if file is None else open(file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
    handler = _Handler(stream)
    handler.setFormatter(_JsonFormatter(redactor) if format == "json" else _TextFormatter(redactor))
    handler.addFilter(_FewTracebacks())
    logger = logging.getLogger("mcp_workbench")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
