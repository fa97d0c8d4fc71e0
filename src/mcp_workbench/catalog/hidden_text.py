"""Characters that a person does not see and a model reads: control, zero-width, bidirectional, tags.

Owns which they are and what is said of them. Refuses to change any text: what a server wrote passes as it is, and
`check` says what is in it. Names are the exception, where control characters never pass (`offer`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import DecodeError, Raw
from msgspec.json import decode

# What a text is laid out with.
_LAYOUT: Final = frozenset("\n\r\t")
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Letters by their category, blank by their looks: the fillers of Hangul and of Braille.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_JOINERS: Final = frozenset("\u200c\u200d")
# Kinds that are named; many different characters are a message, and one line is enough to say so.
_MOST_NAMED: Final = 4


def hidden_in(text: str) -> Counter[str]:
    """The hidden characters of a text and how often each occurs."""
    found: Counter[str] = Counter()
    if text.isascii() and text.isprintable():
        return found
    for position, letter in enumerate(text):
        if _is_hidden(text, position, letter):
            found[letter] += 1
    return found


def _is_hidden(text: str, position: int, letter: str) -> bool:
    if letter in _LAYOUT:
        return False
    if letter in _JOINERS:
        # Persian, Indic scripts and emoji need them between two letters or pictures; beside ASCII they do nothing.
        around = text[position - 1 : position] + text[position + 1 : position + 2]
        return len(around) < 2 or any(neighbour.isascii() or not neighbour.isprintable() for neighbour in around)
    if "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef":
        # One of these chooses the looks of the character before it; a second one has nothing to choose.
        return position == 0 or unicodedata.name(text[position - 1], "").startswith("VARIATION SELECTOR")
    return letter in _BLANK or unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")


def described(found: Counter[str]) -> str:
    """`3 zero-width (U+200B), 1 bidirectional (U+202E)`: what a reader can search for."""
    kinds: dict[str, Counter[str]] = {}
    for letter, count in found.items():
        kinds.setdefault(_kind(letter), Counter())[letter] = count
    parts = []
    for kind, letters in kinds.items():
        codes = [f"U+{ord(letter):04X}" for letter, _ in letters.most_common(_MOST_NAMED)]
        more = ", …" if len(letters) > _MOST_NAMED else ""
        parts.append(f"{letters.total()} {kind} ({', '.join(codes)}{more})")
    return ", ".join(parts)


def _kind(letter: str) -> str:
    if letter in _BIDIRECTIONAL:
        return "bidirectional"
    if "\U000e0000" <= letter <= "\U000e007f":
        return "tag"
    return "control" if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else "zero-width"


def in_definition(definition: Raw) -> Counter[str]:
    """The hidden characters anywhere in a definition: name, title, descriptions, schema, keys included."""
    # Escapes hide them from a look at the bytes; what is plain ASCII without one has none.
    if definition_is_plain(bytes(definition)):
        return Counter()
    try:
        document = decode(definition)
    except (DecodeError, RecursionError):
        return Counter()
    found: Counter[str] = Counter()
    for text in texts_in(document):
        found += hidden_in(text)
    return found


def definition_is_plain(data: bytes) -> bool:
    """Whether JSON text certainly holds nothing hidden: ASCII, and no escape by number."""
    return data.isascii() and b"\\u" not in data and b"\\b" not in data and b"\\f" not in data


def texts_in(document: object) -> Iterator[str]:
    """Every string of a JSON document, the names of members included: an agent reads them all."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
