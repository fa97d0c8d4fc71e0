"""Text from elsewhere, made safe to show: an escape sequence in a server's words must not repaint a terminal.

Owns four pure functions. Refuses to know who shows what; data for programs does not come here.
"""

from __future__ import annotations

import re
from typing import Final

# Colours and movements of the cursor (CSI), titles and links (OSC), and the shorter ones.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


def visible(text: str) -> str:
    """The text with control characters, other than line breaks and tabs, written out."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" or letter == "\xa0" else ascii(letter)[1:-1]
        for letter in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """The same for what stands on a line of ours: a line break in it would begin a line that looks like ours."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\xa0" else ascii(letter)[1:-1] for letter in text)


def indented(text: str) -> str:
    """The text with its further lines set in: one at the margin looks as if we had written it."""
    first, *rest = text.split("\n")
    margin = "  " if any(line[:1] not in ("", " ", "\t") for line in rest) else ""
    return "\n".join([first, *(f"{margin}{line}" if line else line for line in rest)])


def plain(line: str) -> str:
    """A line as a terminal would end up showing it, without colours: for those who have no terminal, and for models."""
    if line.isprintable():
        return line
    shown = _ESCAPES.sub("", line)
    # What stands before a carriage return was painted over: progress bars.
    return visible(next((part for part in reversed(shown.split("\r")) if part.strip()), ""))
