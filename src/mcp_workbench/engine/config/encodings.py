"""The forms a secret may take in a text (plain, in JSON, in a URL, in base64), and finding all of them. Pure.

Owns the forms, and one pass over a text that finds every form of every secret: each position is looked up once by the
few characters there, however many secrets there are. No pattern is compiled, which would take longer than starting the
workbench. Imported with the first text to search.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

import msgspec

# Forms are indexed by this many characters. Nothing shorter is hidden, unless explicitly requested.
INDEXED_CHARACTERS: Final = 4
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_BASE64_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")

# Return the end of a form that begins at this position of the text; -1: it is not there.
_Match = Callable[[str, int], int]


class SecretFinder:
    """Finds every form of these secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_head: dict[str, list[_Match]] = {}
        # Longest first, so that a secret that contains another is hidden as a whole.
        for secret in sorted(secrets, key=lambda secret: (-len(secret), secret)):
            # Servers log JSON, and some libraries write everything beyond ASCII as `\uXXXX`.
            for form in {secret, in_json(secret), _in_ascii_json(secret)}:
                self._add({form[:INDEXED_CHARACTERS]}, partial(_literal, form))
            encoded = [secret.encode(errors="surrogatepass")]
            if not _UNRESERVED.issuperset(secret):
                letters = [_ways(letter) for letter in secret]
                self._add(_heads(letters), partial(_in_address, letters))
                # As in client credentials: URL-encoded first, then in base64.
                encoded.append("".join(ways[0] for ways in letters).replace("%20", "+").encode())
            for data in encoded:
                for form in in_base64(data):
                    self._add({form[:INDEXED_CHARACTERS]}, partial(_base64, form))
        self._sizes = sorted({len(head) for head in self._by_head})

    def _add(self, heads: Iterable[str], match: _Match) -> None:
        for head in heads:
            self._by_head.setdefault(head, []).append(match)

    def replaced(self, text: str, mask: str) -> str:
        """Return the text with each of them replaced."""
        heads = self._by_head
        places = [
            place
            for size in self._sizes
            for place in range(len(text) - size + 1)
            if text[place : place + size] in heads
        ]
        if not places:
            return text
        parts: list[str] = []
        position = 0
        for place in sorted(set(places)):
            # Skip what has been replaced already: secrets may overlap.
            if place >= position and (end := self._end(text, place)) >= 0:
                parts += (text[position:place], mask)
                position = end
        return "".join((*parts, text[position:]))

    def _end(self, text: str, place: int) -> int:
        """Return the end of the longest form that begins at this position."""
        matches = (match for size in self._sizes for match in self._by_head.get(text[place : place + size], ()))
        return max((match(text, place) for match in matches), default=-1)


def _literal(form: str, text: str, place: int) -> int:
    return place + len(form) if text.startswith(form, place) else -1


def _in_address(letters: list[tuple[str, ...]], text: str, place: int) -> int:
    """Match any mixture of encoded and plain characters: programs differ in what they encode."""
    for ways in letters:
        for way in ways:
            if text.startswith(way, place):
                place += len(way)
                break
        else:
            return -1
    return place


def _base64(form: str, text: str, place: int) -> int:
    """Match a base64 form, including the letter after it, which holds the last bits, and the padding."""
    if not text.startswith(form, place):
        return -1
    end = place + len(form)
    end += text[end : end + 1] in _BASE64_LETTERS
    while text[end : end + 1] == "=":
        end += 1
    return end


def in_json(text: str) -> str:
    """Return the form in JSON, with quotes and line breaks escaped."""
    try:
        return msgspec.json.encode(text).decode()[1:-1]
    except UnicodeEncodeError:
        # Of a path or variable that is not UTF-8; JSON has none, but what logs and errors are made of does.
        import json

        return json.dumps(text, ensure_ascii=False)[1:-1]


def _in_ascii_json(text: str) -> str:
    """Return the form that Python's `json` writes by default."""
    if text.isascii():
        return in_json(text)
    # `\u` escapes are UTF-16: a character beyond the first plane takes two of them.
    data = in_json(text).encode("utf-16-be", errors="surrogatepass")
    units = [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


@cache
def _ways(letter: str) -> tuple[str, ...]:
    """Return the forms of a character in a URL, the longest first."""
    if letter in _UNRESERVED:
        return (letter,)
    encoded = "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogatepass"))
    # PHP writes JSON with an escaped slash.
    others = {" ": ("+",), "/": ("\\/",)}.get(letter, ())
    return (encoded, encoded.lower(), *others, letter)


def _heads(letters: list[tuple[str, ...]]) -> set[str]:
    """Return everything that such a mixture may begin with."""
    heads = {""}
    for ways in letters:
        heads = {
            head if len(head) == INDEXED_CHARACTERS else (head + way)[:INDEXED_CHARACTERS]
            for head in heads
            for way in ways
        }
        if all(len(head) == INDEXED_CHARACTERS for head in heads):
            break
    return heads


def in_base64(data: bytes) -> set[str]:
    """Return the strings of which every base64 text that contains these bytes has one, at any offset and in both
    alphabets."""
    forms = set()
    # Base64 encodes three bytes as four letters, so the same bytes look different at each of three offsets; letters
    # that depend on neighbouring bytes are left out.
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        text = b2a_base64(b"\0" * before + data, newline=False).decode()
        # The last letter may hold bits of what follows.
        core = text[skipped : (before + len(data)) * 8 // 6]
        if len(core) >= INDEXED_CHARACTERS:
            forms |= {core, core.replace("+", "-").replace("/", "_")}
    return forms
