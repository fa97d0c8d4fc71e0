"""A server's stderr: always drained, its last lines kept.

Owns a bounded ring of lines. A server may write gigabytes, with or without newlines, and costs no more than this.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.printable import plain

MAX_STDERR_LINES: Final = 100
MAX_STDERR_LINE_LENGTH: Final = 1000
# Marks where lines were left out.
GAP: Final = "…"

# How programs report errors. Each alternative begins with something rare and none can match in two ways, so that a line
# costs one pass.
_CAUSE: Final = re.compile(
    r"(?:error|exception|fatal|panic)\b\s?[:!\]]"
    r"|\b(?:npm err|panicked at|traceback)"
    r"|(?-i:\b(?:ERROR|FATAL|CRITICAL|PANIC)\b)"
    r"|\b(?:is|are) (?:required|missing|not set|not defined|not installed)\b"
    r"|\b(?:missing|required) (?:required|environment|option|flag|argument|parameter|variable)"
    r"|\bmust be (?:set|provided|specified)\b"
    r"|\bnot found\b|\bno such file\b|\bcannot find\b|\bcould not\b|\bpermission denied\b|\bconnection refused\b"
    r"|\bunauthori[sz]ed\b|\binvalid (?:api|token|key|option|argument|value)",
    re.IGNORECASE,
)
_USAGE_LINE: Final = re.compile(r"\s*usage\b", re.IGNORECASE)
# A stack frame, or an entry in a list of options.
_STACK_FRAME: Final = re.compile(r"\s+(?:at |File |\^|-{1,2}\w)|-{1,2}\w")


class StderrRing:
    """The last lines that a server wrote. Many servers report why they fail here and nowhere else."""

    __slots__ = ("_conceal", "_lines", "_on_line", "_rest")

    def __init__(self, on_line: Callable[[str], None] | None = None, conceal: Callable[[str], str] = str) -> None:
        """`conceal` is applied to lines that are quoted to clients: servers print their keys when they fail."""
        self._lines: deque[str] = deque(maxlen=MAX_STDERR_LINES)
        self._rest = b""
        self._on_line = on_line
        self._conceal = conceal

    def feed(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        # Only the beginning of an endless line is kept.
        self._rest = lines.pop()[: MAX_STDERR_LINE_LENGTH + 1]
        lines = list(filter(None, lines))
        for line in lines if self._on_line else lines[-MAX_STDERR_LINES:]:
            self._add(line)

    def finish(self) -> None:
        """The stream ended; an unfinished last line counts."""
        if self._rest:
            self._add(self._rest)
            self._rest = b""

    def last(self, count: int) -> list[str]:
        """The last lines, oldest first."""
        lines = [*self._lines]
        if self._rest.strip():
            lines.append(_text(self._rest))
        # Control codes are removed first: a secret with a colour code inside would not be recognised.
        return [self._conceal(plain(line)) for line in lines[max(0, len(lines) - count) :]]

    def most_relevant(self, count: int) -> list[str]:
        """About `count` lines, oldest first: the last ones, and an earlier one that names the cause, if any."""
        return most_relevant_lines(self.last(MAX_STDERR_LINES + 1), count)

    def _add(self, line: bytes) -> None:
        text = _text(line)
        if text:
            self._lines.append(text)
            if self._on_line is not None:
                self._on_line(text)


def most_relevant_lines(lines: list[str], count: int) -> list[str]:
    """The most informative lines that a server wrote when it failed.

    Usually the last ones. If none of them names a cause but an earlier line does (because usage text or a long stack
    follows the error), half of the lines are that one and those after it.
    """
    last = len(lines) - count
    if last <= 0:
        return lines
    causes = _causes(lines)
    if not causes or causes[-1] >= last:
        return lines[last:]
    half = count // 2
    start = causes[-1]
    while start - 1 in causes and causes[-1] - start + 1 < half:
        start -= 1
    rest = max(start + half, len(lines) - (count - half))
    return [*lines[start : start + half], *([GAP] if rest > start + half else []), *lines[rest:]]


def _causes(lines: list[str]) -> list[int]:
    """The lines that name a cause. Usage text does not, although it contains similar words."""
    found = []
    is_usage = False
    for number, line in enumerate(lines):
        if _USAGE_LINE.match(line):
            is_usage = True
        elif is_usage and not line[:1].isspace() and not line.endswith(":"):
            is_usage = False
        if not is_usage and not _STACK_FRAME.match(line) and _CAUSE.search(line):
            found.append(number)
    return found


def readable(line: bytes) -> str:
    """A line of a server's output, safe to show and bounded."""
    return plain(_text(line))


def _text(line: bytes) -> str:
    text = line[: MAX_STDERR_LINE_LENGTH + 1].decode(errors="replace").rstrip()
    return text if len(text) <= MAX_STDERR_LINE_LENGTH else text[:MAX_STDERR_LINE_LENGTH] + "…"
