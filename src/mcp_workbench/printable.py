"""Text from elsewhere, made safe to show: an escape sequence in a server's words must not repaint a terminal.

Owns one pure function. Refuses to know who shows what; data for programs does not come here.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with control characters, other than line breaks and tabs, written out."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" or letter == "\xa0" else ascii(letter)[1:-1]
        for letter in text.replace("\r\n", "\n")
    )
