"""The tables of docs/reference/errors.md: texts from the program, with the explanations of the document. Pure.

A text that is gone loses its row. One that is new gets a row in the table that has most texts of the same module, or of
the module nearest to it, with `UNEXPLAINED` beside it until somebody says what it means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

HEADS: Final = ("| text |", "|---|")
ROW: Final = re.compile(r"^\| (?P<text>.+?) \| .+ \|$")
UNEXPLAINED: Final = "?"


def documented(document: str) -> list[str]:
    """The texts that the document explains, in its order."""
    return [text for line in document.splitlines() if (text := _text_in(line)) is not None]


def with_tables(document: str, found: Mapping[str, str], composed: tuple[str, ...] = ()) -> str:
    """The document with the rows of these texts: each with the place where it was found, and those that are put
    together from parts."""
    known = {*found, *composed}
    tables: list[list[str]] = [[]]
    for line in document.splitlines():
        # Every other list is a table.
        is_row = line.startswith("|")
        if is_row != (len(tables) % 2 == 0):
            tables.append([])
        text = _text_in(line)
        if text is None or text in known:
            tables[-1].append(line)
    explained = set(documented(document))
    for text, place in found.items():
        if text not in explained:
            _nearest(tables, place, found).append(f"| {_escaped(text)} | {UNEXPLAINED} |")
    return "\n".join(line for table in tables for line in table) + "\n"


def _text_in(line: str) -> str | None:
    row = None if line.startswith(HEADS) else ROW.match(line)
    return None if row is None else re.sub(r"\\([<>|])", r"\1", row["text"])


def _escaped(text: str) -> str:
    return re.sub(r"[<>|]", r"\\\g<0>", text)


def _nearest(tables: list[list[str]], place: str, found: Mapping[str, str]) -> list[str]:
    """The table with most texts of the same module, or else of the same package, or of one above."""
    parts = place.partition(":")[0].split("/")
    for length in range(len(parts), 0, -1):
        start = "/".join(parts[:length])
        counts = Counter(
            number
            for number, table in enumerate(tables)
            for line in table
            if found.get(_text_in(line) or "", "").startswith(start)
        )
        if counts:
            return tables[counts.most_common(1)[0][0]]
    raise ValueError(f"no table has a text of {place}")
