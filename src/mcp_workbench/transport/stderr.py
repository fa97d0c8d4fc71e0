"""What a server said on stderr: always drained, the end of it remembered.

Owns a bounded ring of lines. A server may write gigabytes, with or without newlines, and costs no more than this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_workbench.printable import plain

MOST_LINES: Final = 100
LONGEST_LINE: Final = 1000


class StderrRing:
    """The last lines that a server wrote. Many servers say why they fail here and nowhere else."""

    __slots__ = ("_lines", "_rest", "conceal", "on_line", "total_bytes")

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._rest = b""
        self.total_bytes = 0
        self.on_line: Callable[[str], None] | None = None
        # What is quoted to clients passes through this first: servers print their keys when they fail.
        self.conceal: Callable[[str], str] = str

    def feed(self, data: bytes) -> None:
        """Take in what was read."""
        self.total_bytes += len(data)
        lines = (self._rest + data).split(b"\n")
        # Of a line that never ends only the start is kept.
        self._rest = lines.pop()[: LONGEST_LINE + 1]
        lines = list(filter(None, lines))
        for line in lines if self.on_line else lines[-MOST_LINES:]:
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
        # Made plain first: a secret with a colour in the middle would not be recognised.
        return [self.conceal(plain(line)) for line in lines[max(0, len(lines) - count) :]]

    def _add(self, line: bytes) -> None:
        text = _text(line)
        if text:
            self._lines.append(text)
            if self.on_line is not None:
                self.on_line(text)


def _text(line: bytes) -> str:
    text = line[: LONGEST_LINE + 1].decode(errors="replace").rstrip()
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"
