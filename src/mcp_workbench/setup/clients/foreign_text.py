"""Text from others on its way into our configuration: only `Verbatim` pieces are references.

Owns how it is written. The pieces of a string are joined before they are made literal: `$` and `{` may come from
different sources, and form a reference once they are adjacent. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

_VARIABLE_START: Final = "${"
_ESCAPED_DOLLAR: Final = "${DOLLAR:-$}{"
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_IN_NAMES: Final = re.compile(r"\W+", re.ASCII)


class Verbatim(Struct, frozen=True):
    """A whole reference of ours, written to the file unchanged."""

    text: str


Piece = str | Verbatim


def joined(pieces: Iterable[Piece]) -> str:
    """Return the pieces as one string for our file."""
    found = []
    for is_ours, run in groupby(pieces, lambda piece: isinstance(piece, Verbatim)):
        text = "".join(piece.text if isinstance(piece, Verbatim) else piece for piece in run)
        found.append(text if is_ours else text.replace(_VARIABLE_START, _ESCAPED_DOLLAR))
    return "".join(found)


def literal(text: str) -> str:
    """Escape text for our file, so that nothing in it is a reference."""
    return joined([text])


def pieces_of(ours: str) -> list[Piece]:
    """Split text that is already in our file, or was typed by the user, so that text from others can be put around it.
    An opening without its end is not a reference: text after it would complete it."""
    found: list[Piece] = []
    position = 0
    while (opening := ours.find(_VARIABLE_START, position)) >= 0 and (end := _end_of(ours, opening)) >= 0:
        found += [ours[position:opening], Verbatim(ours[opening:end])]
        position = end
    return [piece for piece in [*found, ours[position:]] if piece]


def _end_of(text: str, opening: int) -> int:
    """Return the position after the brace that closes the one at `opening`; -1 if there is none."""
    depth = 0
    for position in range(opening + 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return -1


def reference_to(variable: str) -> Verbatim | None:
    """Return the reference to a variable; None if no variable can have this name."""
    return Verbatim(f"${{{variable}}}") if is_variable_name(variable) else None


def is_variable_name(text: str) -> bool:
    return _VARIABLE_NAME.fullmatch(text) is not None


def variable_name(text: str) -> str:
    """Return a similar name for a variable: `x-api-key` becomes `X_API_KEY`. Empty if nothing is left of it."""
    word = _NOT_IN_NAMES.sub("_", text).strip("_").upper()
    return f"_{word}" if word[:1].isdigit() else word
