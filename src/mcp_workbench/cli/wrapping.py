"""Text for a terminal, wrapped between words. In a pipe it is not wrapped.

Owns where lines are broken, and how the home folder is written. Words are never broken, so that paths and commands can
be copied. Imported only when there is something to print: the start-up path prints nothing.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import Final, TextIO

# Longer lines are hard to read, however wide the terminal is.
_WIDEST: Final = 120
# On a narrower terminal, wrapping does not help.
_NARROWEST: Final = 30


def tilde(text: str) -> str:
    """Return a path, or a text with paths, as people write it: `~` for their home folder. Not between quotation marks,
    where no shell would take it for one."""
    home = os.path.expanduser("~").rstrip(os.sep)
    return re.sub(rf"(?<![^\s`(]){re.escape(home)}(?![^\s`):;,{re.escape(os.sep)}])", "~", text) if home else text


def width_of(stream: TextIO | None) -> int | None:
    """Return the width of the terminal behind a stream; None for a pipe."""
    try:
        if stream is None or not stream.isatty():
            return None
        # `COLUMNS` first, as in ncurses: tests and CI set it, and terminals of width 0 exist.
        columns = int(os.environ.get("COLUMNS", "0") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return min(columns, _WIDEST) if columns >= _NARROWEST else None


def folded(text: str, width: int | None, *, before: int = 0) -> str:
    """Wrap each line of the text, continued under its own indentation. `before` is the number of columns already
    printed."""
    if width is None:
        return text
    lines = text.split("\n")
    return "\n".join(_folded(line, width, before if number == 0 else 0) for number, line in enumerate(lines))


def _folded(line: str, width: int, before: int) -> str:
    if before + len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip(" "))]
    parts = textwrap.wrap(
        line[len(margin) :],
        width,
        initial_indent=" " * before + margin,
        subsequent_indent=margin,
        break_long_words=False,
        # Keeps options such as `--no-cache` in one piece.
        break_on_hyphens=False,
    )
    return "\n".join(parts)[before:]


def paragraphs(text: str, width: int | None) -> str:
    """Wrap prose that was written in lines; indented lines are examples and stay unchanged."""
    if width is None:
        return text
    blocks = [
        block if block.startswith(" ") else folded(" ".join(block.split("\n")), width) for block in text.split("\n\n")
    ]
    return "\n\n".join(blocks)


def beside(left: str, right: str, column: int, width: int | None) -> str:
    """Lay out two columns, wrapping the right one."""
    head = f"  {left:{column}}"
    room = None if width is None else width - len(head)
    if room is None or room < _NARROWEST:
        return head + right
    return head + folded(right, room).replace("\n", "\n" + " " * len(head))
