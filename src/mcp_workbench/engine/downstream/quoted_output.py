"""Quotes a server's own output in errors about it.

Owns the wording, how much is quoted, and what is kept of a server's stdout. Many servers explain failures only on
stderr, and some on stdout, where only messages belong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

log = logging.getLogger(__name__)

# How many lines of stderr an error quotes.
QUOTED_STDERR: Final = 8
# How many are searched for the names of variables: all that are kept.
READ_STDERR: Final = 100
# How many lines of noise on stdout are logged and kept; further ones are only counted.
LOGGED_NOISE: Final = 3
MAX_NOISE_LENGTH: Final = 200


class Noise:
    """Lines on a server's stdout that are not messages."""

    __slots__ = ("_label", "count", "lines")

    def __init__(self, label: str) -> None:
        self._label = label
        self.count = 0
        # The first lines, which may explain why there was no response.
        self.lines: list[str] = []

    def add(self, line: bytes, error: Exception, conceal: Callable[[str], str]) -> None:
        self.count += 1
        if self.count <= LOGGED_NOISE:
            log.warning("[%s] skipped noise on stdout (%s): %.120r", self._label, error, line[:200])
            # Not on the start-up path.
            from mcp_workbench.engine.transport.stderr import readable

            self.lines.append(conceal(readable(line[:MAX_NOISE_LENGTH])))


def with_quoted_output(what: str, stderr: Sequence[str], stdout: Sequence[str] = ()) -> str:
    """The error, followed by the server's output, without repeating what it already contains."""
    # Not on the start-up path.
    from mcp_workbench.engine.transport.stderr import GAP

    what = _with_lines(what, "from its stderr:" if GAP in stderr else "last lines of its stderr:", stderr)
    return _with_lines(what, "on its stdout, where only protocol messages belong:", stdout)


def _with_lines(what: str, heading: str, lines: Sequence[str]) -> str:
    quoted = "\n".join((f"\n{heading}", *(f"  {line}" for line in lines))) if lines else ""
    return what if quoted in what else what + quoted
