"""Text that others wrote, on its way into our configuration: only what stands there as `Verbatim` is a reference.

Owns how it is written down. The pieces of a string are joined first and made literal then: `$` and `{` may come from
different hands, and are a reference all the same once they stand side by side. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

_OPENING: Final = "${"
_LITERAL: Final = "${DOLLAR:-$}{"
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_A_WORD: Final = re.compile(r"\W+", re.ASCII)


class Verbatim(Struct, frozen=True):
    """A whole reference of ours, as it is to stand in the file."""

    text: str


Piece = str | Verbatim


def joined(pieces: Iterable[Piece]) -> str:
    """The pieces as one string of our file."""
    found = []
    for is_ours, run in groupby(pieces, lambda piece: isinstance(piece, Verbatim)):
        text = "".join(piece.text if isinstance(piece, Verbatim) else piece for piece in run)
        found.append(text if is_ours else text.replace(_OPENING, _LITERAL))
    return "".join(found)


def literal(text: str) -> str:
    """As it stands in our file: what looks like a reference is none."""
    return joined([text])


def pieces_of(ours: str) -> list[Piece]:
    """What stands in our file already, or was typed by its user, so that text of others can be put around it. An
    opening without its end is none: text behind it would complete it."""
    found: list[Piece] = []
    position = 0
    while (opening := ours.find(_OPENING, position)) >= 0 and (end := _end_of(ours, opening)) >= 0:
        found += [ours[position:opening], Verbatim(ours[opening:end])]
        position = end
    return [piece for piece in [*found, ours[position:]] if piece]


def _end_of(text: str, opening: int) -> int:
    """Behind the brace that closes what is opened here; -1 where none does."""
    depth = 0
    for position in range(opening + 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return -1


def reference_to(variable: str) -> Verbatim | None:
    """The reference to a variable; None for what no variable can be called."""
    return Verbatim(f"${{{variable}}}") if is_variable_name(variable) else None


def is_variable_name(text: str) -> bool:
    return _VARIABLE_NAME.fullmatch(text) is not None


def variable_name(text: str) -> str:
    """A name for a variable that says the same: `x-api-key` is `X_API_KEY`. Empty where nothing is left of it."""
    word = _NOT_A_WORD.sub("_", text).strip("_").upper()
    return f"_{word}" if word[:1].isdigit() else word
