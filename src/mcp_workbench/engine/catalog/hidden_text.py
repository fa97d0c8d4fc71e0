"""Characters that are invisible to people but not to models: control, zero-width, bidirectional, tags.

Owns the list of these and their description. Never changes any text: it is forwarded as the server wrote it, and
`check` reports what it contains. The exception are names with control characters, which are rejected (`offer`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import DecodeError, Raw
from msgspec.json import decode

# Control characters that are normal in text.
_LAYOUT: Final = frozenset("\n\r\t")
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Categorised as letters or symbols but displayed as blanks: the fillers of Hangul and Braille.
_BLANK_LETTERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_JOINERS: Final = frozenset("\u200c\u200d")
# How many kinds are listed: one line is enough to show that there is a hidden message.
_MAX_NAMED_KINDS: Final = 4


def hidden_in(text: str) -> Counter[str]:
    """The hidden characters in a text, and how often each occurs."""
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
        # Persian, Indic scripts and emoji need joiners between two characters; next to ASCII they have no effect.
        around = text[position - 1 : position] + text[position + 1 : position + 2]
        return len(around) < 2 or any(neighbour.isascii() or not neighbour.isprintable() for neighbour in around)
    if "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef":
        # A variation selector modifies the character before it; a second one in a row has no effect.
        return position == 0 or unicodedata.name(text[position - 1], "").startswith("VARIATION SELECTOR")
    return letter in _BLANK_LETTERS or unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")


def described(found: Counter[str]) -> str:
    """`3 zero-width (U+200B), 1 bidirectional (U+202E)`, so that a reader can search for them."""
    kinds: dict[str, Counter[str]] = {}
    for letter, count in found.items():
        kinds.setdefault(_kind(letter), Counter())[letter] = count
    parts = []
    for kind, letters in kinds.items():
        codes = [f"U+{ord(letter):04X}" for letter, _ in letters.most_common(_MAX_NAMED_KINDS)]
        more = ", …" if len(letters) > _MAX_NAMED_KINDS else ""
        parts.append(f"{letters.total()} {kind} ({', '.join(codes)}{more})")
    return ", ".join(parts)


def _kind(letter: str) -> str:
    if letter in _BIDIRECTIONAL:
        return "bidirectional"
    if "\U000e0000" <= letter <= "\U000e007f":
        return "tag"
    return "control" if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else "zero-width"


def in_definition(definition: Raw) -> Counter[str]:
    """The hidden characters anywhere in a definition: name, title, descriptions, schema, and keys."""
    # ASCII without numeric escapes contains none, so it need not be decoded.
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
    """Whether JSON text certainly contains nothing hidden: ASCII, without numeric escapes."""
    return data.isascii() and b"\\u" not in data and b"\\b" not in data and b"\\f" not in data


def texts_in(document: object) -> Iterator[str]:
    """Every string in a JSON document, including the names of members: agents read them all."""
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
