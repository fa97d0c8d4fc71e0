"""Parses `.env` files. Pure.

Lines of `NAME=value`, as shells and Docker accept them: with `export`, comments, quotes, a byte order mark and Windows
line endings. Single-quoted values are literal; in double quotes, a backslash escapes the next character (`\\n` and
`\\t` as usual); both may span lines. `${VAR}` is not expanded.
"""

from __future__ import annotations

import re
from typing import Final

_ASSIGNMENT: Final = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_BLANK_LINE: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_IN_SINGLE_QUOTES: Final = re.compile(r"'([^']*)'")
_IN_DOUBLE_QUOTES: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_ESCAPED_CHARACTER: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE_CODES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class DotenvError(ValueError):
    """Names the line that cannot be parsed, never its content."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not `NAME=value`")
        self.line = line


def parse(text: str) -> dict[str, str]:
    """The variables; of two with the same name, the later counts. Raises `DotenvError`."""
    # As in universal newlines; a value in quotes that holds `\r` has it escaped.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        blank = _BLANK_LINE.match(text, position)
        if blank is not None:
            # At the end of the text a blank line is empty.
            position = max(blank.end(), position + 1)
            continue
        assignment = _ASSIGNMENT.match(text, position)
        if assignment is None:
            raise DotenvError(text.count("\n", 0, position) + 1)
        value, position = _value(text, assignment.end())
        found[assignment[1]] = value
    return found


def _value(text: str, position: int) -> tuple[str, int]:
    """The value at a position, and the start of the next line."""
    quoted = (_IN_SINGLE_QUOTES if text[position : position + 1] == "'" else _IN_DOUBLE_QUOTES).match(text, position)
    if quoted is not None:
        rest = _BLANK_LINE.match(text, quoted.end())
        if rest is None:
            raise DotenvError(text.count("\n", 0, position) + 1)
        is_literal = text[position] == "'"
        value = (
            quoted[1]
            if is_literal
            else _ESCAPED_CHARACTER.sub(lambda one: _ESCAPE_CODES.get(one[1], one[1]), quoted[1])
        )
        return value, rest.end()
    if text[position : position + 1] in ("'", '"'):
        raise DotenvError(text.count("\n", 0, position) + 1)
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    line = text[position:end]
    # A comment must follow white space: `pass#word` is a value.
    for mark in (" #", "\t#"):
        line = line.partition(mark)[0]
    return ("" if line.startswith("#") else line.strip()), end + 1
