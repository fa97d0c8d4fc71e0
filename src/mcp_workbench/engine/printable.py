"""Makes foreign text safe to display: escape sequences from a server must not control the user's terminal.

Pure functions. Not for data that programs read, but for reports as JSON, which people are shown in the end.
"""

from __future__ import annotations

import re
from typing import Any, Final

# Colours and cursor movements (CSI), titles and links (OSC), and shorter sequences.
_TERMINAL_SEQUENCES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


def visible(text: str) -> str:
    """Escape control characters other than line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" or letter == "\xa0" else ascii(letter)[1:-1]
        for letter in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """Also escape line breaks, for text within a line of ours: the next line would look like our own."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\xa0" else ascii(letter)[1:-1] for letter in text)


def indented(text: str) -> str:
    """Indent all lines but the first: at the margin they would look like our own."""
    first, *rest = text.split("\n")
    margin = "  " if any(line[:1] not in ("", " ", "\t") for line in rest) else ""
    return "\n".join([first, *(f"{margin}{line}" if line else line for line in rest)])


def plain(line: str) -> str:
    """A line as a terminal would finally show it, without colours, for models and for output without a terminal."""
    if line.isprintable():
        return line
    shown = _TERMINAL_SEQUENCES.sub("", line)
    # Progress bars overwrite what comes before a carriage return.
    return visible(next((part for part in reversed(shown.split("\r")) if part.strip()), ""))


def in_unicode(text: str) -> str:
    """Escape lone surrogates, which JSON cannot represent: bytes of paths that are not UTF-8, and what JavaScript may
    send."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def report_json(report: object) -> bytes:
    """A report as JSON, whatever the paths in it are."""
    # Imported here, because help for people is printed without it.
    from msgspec.json import encode

    try:
        return encode(report)
    except UnicodeEncodeError:
        return encode(_all_in_unicode(report))


def _all_in_unicode(value: Any) -> Any:
    from msgspec import Struct
    from msgspec.structs import fields

    if isinstance(value, str):
        return in_unicode(value)
    if isinstance(value, Struct):
        value = {field.encode_name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {_all_in_unicode(key): _all_in_unicode(each) for key, each in value.items()}
    return [_all_in_unicode(each) for each in value] if isinstance(value, list | tuple) else value


def plural(count: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
