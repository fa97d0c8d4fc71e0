"""Counting tokens as o200k_base does, from its ranks alone: byte-pair encoding in plain Python.

Owns the encoding. Exists so that the figures are the same wherever the ranks are, with nothing to install; it is slow,
which a benchmark that remembers every piece it has counted can afford.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from base64 import b64decode
from functools import cache, cached_property
from itertools import chain, groupby
from pathlib import Path

_LETTERS = ("Lu", "Ll", "Lt", "Lm", "Lo")
_NUMBERS = ("Nd", "Nl", "No")
_UPPER = ("Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me")
_LOWER = ("Ll", "Lm", "Lo", "Mn", "Mc", "Me")
_SHORTENED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


class Tokenizer:
    """Counts. `ranks` says of each token, as bytes, how early it is put together."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        self._ranks = ranks
        self._counted: dict[str, int] = {}

    @classmethod
    def read(cls, file: Path) -> Tokenizer:
        """From a file with a token in base64 and its rank on each line."""
        lines = (line.split() for line in file.read_bytes().splitlines())
        return cls({b64decode(token): int(rank) for token, rank in lines})

    def count(self, text: str) -> int:
        counted, total = self._counted, 0
        for piece in self._pieces.findall(text):
            known = counted.get(piece)
            if known is None:
                known = counted[piece] = self._merged(piece.encode(errors="replace"))
            total += known
        return total

    @cached_property
    def _pieces(self) -> re.Pattern[str]:
        """How text is cut before anything is put together: words with what stands before them, numbers by three
        digits, punctuation, line ends, spaces."""
        letter, number, upper, lower = map(_class, (_LETTERS, _NUMBERS, _UPPER, _LOWER))
        before = rf"[^\r\n{letter}{number}]?"
        return re.compile(
            f"{before}[{upper}]*[{lower}]+{_SHORTENED}"
            f"|{before}[{upper}]+[{lower}]*{_SHORTENED}"
            f"|[{number}]{{1,3}}"
            rf"| ?[^\s{letter}{number}]+[\r\n/]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )

    def _merged(self, piece: bytes) -> int:
        """How many tokens a piece is: neighbours are put together, those of the lowest rank first."""
        if piece in self._ranks:
            return 1
        parts = [piece[at : at + 1] for at in range(len(piece))]
        while len(parts) > 1:
            ranked = [self._ranks.get(parts[at] + parts[at + 1], sys.maxsize) for at in range(len(parts) - 1)]
            lowest = min(ranked)
            if lowest == sys.maxsize:
                break
            at = ranked.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return len(parts)


def _class(categories: tuple[str, ...]) -> str:
    """All characters of these categories, for the inside of brackets: Python's `re` does not know them by name."""
    numbers = sorted(chain.from_iterable(map(_by_category().__getitem__, categories)))
    runs = (list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    return "".join(f"\\U{run[0][1]:08x}-\\U{run[-1][1]:08x}" for run in runs)


@cache
def _by_category() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(number)), []).append(number)
    return found
