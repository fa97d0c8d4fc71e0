"""Text that is a table: JSON lines, or CSV with a header. Pure.

Owns what counts as a table: every line has to fit, because whoever selects from one relies on nothing being left out.
Values of CSV stay text, as they were written; JMESPath has `to_number`.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Final

import msgspec

# A table of more values is not read: it would take seconds, and many times its size in memory.
MAX_TABLE_VALUES: Final = 1_000_000
MAX_COLUMNS: Final = 500
_MIN_RECORDS: Final = 1
_decoder: Final = msgspec.json.Decoder()
_DELIMITERS: Final = (",", ";", "\t", "|")
_DIGITS: Final = re.compile(r"[0-9]+")


def records(text: str) -> list[object] | None:
    """The records of a table; None for other text."""
    return _json_lines(text) if text.lstrip()[:1] in ("{", "[") else _csv(text)


def _json_lines(text: str) -> list[object] | None:
    if text.count(",") + text.count("\n") > MAX_TABLE_VALUES:
        return None
    try:
        found: list[object] = _decoder.decode_lines(text.strip())
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if len(found) > _MIN_RECORDS else None


def _csv(text: str) -> list[object] | None:
    head = text.lstrip("\ufeff\n\r").split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=head.count)
    if not 0 < head.count(delimiter) < MAX_COLUMNS or text.count(delimiter) > MAX_TABLE_VALUES:
        return None
    try:
        rows = [row for row in csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=delimiter) if row]
    except csv.Error:
        # For example a field longer than the library reads.
        return None
    names = [name.strip() for name in rows[0]] if rows else []
    is_header = len(set(names)) == len(names) and all(name and not _is_number(name) for name in names)
    if not is_header or len(rows) <= _MIN_RECORDS or any(len(row) != len(names) for row in rows):
        return None
    if any(_is_like_all(name, rows, column) for column, name in enumerate(names)):
        return None
    return [dict(zip(names, row, strict=True)) for row in rows[1:]]


def _is_like_all(name: str, rows: list[list[str]], column: int) -> bool:
    """Whether this differs from everything below it in digits alone. Then it is no name but the first of many values,
    such as the time in a log that has one comma in each line."""
    form = _DIGITS.sub("0", name)
    return form != name and all(_DIGITS.sub("0", row[column].strip()) == form for row in rows[1:])


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
