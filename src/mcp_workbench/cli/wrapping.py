"""Text for a terminal, broken between words. In a pipe it stays whole.

Owns where lines are broken. Words are never broken: a path or a command can still be copied. Imported when something is
said, not before: the start-up path says nothing.
"""

from __future__ import annotations

import os
import textwrap
from typing import Final, TextIO

# Longer lines are hard to read, however wide the terminal is.
_WIDEST: Final = 120
# Narrower than this, breaking lines helps nobody.
_NARROWEST: Final = 30


def width_of(stream: TextIO | None) -> int | None:
    """How wide the terminal behind a stream is; None for a pipe."""
    try:
        if stream is None or not stream.isatty():
            return None
        # `COLUMNS` first, as ncurses has it: tests and CI set it, and a terminal of width 0 does exist.
        columns = int(os.environ.get("COLUMNS", "0") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return min(columns, _WIDEST) if columns >= _NARROWEST else None


def folded(text: str, width: int | None, *, before: int = 0) -> str:
    """Each line of the text within the width, its rest under its own indentation. `before` it stands what is printed
    already."""
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
        # An option such as `--no-cache` stays in one piece too.
        break_on_hyphens=False,
    )
    return "\n".join(parts)[before:]


def paragraphs(text: str, width: int | None) -> str:
    """Prose that was written in lines, broken again; indented lines are examples and stay."""
    if width is None:
        return text
    blocks = [
        block if block.startswith(" ") else folded(" ".join(block.split("\n")), width) for block in text.split("\n\n")
    ]
    return "\n\n".join(blocks)


def beside(left: str, right: str, column: int, width: int | None) -> str:
    """Two columns, of which the right one is broken within itself."""
    head = f"  {left:{column}}"
    room = None if width is None else width - len(head)
    if room is None or room < _NARROWEST:
        return head + right
    return head + folded(right, room).replace("\n", "\n" + " " * len(head))
