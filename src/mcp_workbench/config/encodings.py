"""How a secret may be written in a text: as it is, in JSON, in an address, in base64; and finding all of that. Pure.

Owns the forms, and one pass over a text that finds every form of every secret: each place is looked up once, by the few
letters that stand there, however many secrets there are. No pattern is compiled, which would take longer than starting
the workbench. Imported with the first text that is looked through.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

import msgspec

# By how many letters a form is found. Nothing that is hidden is shorter, unless somebody insists.
HEAD: Final = 4
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_BASE64_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")

# Where a form ends that begins at this place of the text; -1: it does not stand there.
_Match = Callable[[str, int], int]


class SecretFinder:
    """Every form of these secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_head: dict[str, list[_Match]] = {}
        # Longest first: a secret that contains another one is hidden whole.
        for secret in sorted(secrets, key=lambda secret: (-len(secret), secret)):
            # Servers log JSON, and some libraries write everything beyond ASCII as `\uXXXX`.
            for form in {secret, _in_json(secret), _in_ascii_json(secret)}:
                self._add({form[:HEAD]}, partial(_literal, form))
            encoded = [secret.encode(errors="surrogatepass")]
            if not _UNRESERVED.issuperset(secret):
                letters = [_ways(letter) for letter in secret]
                self._add(_heads(letters), partial(_in_address, letters))
                # As in the credentials of a client: encoded for an address first, then in base64.
                encoded.append("".join(ways[0] for ways in letters).replace("%20", "+").encode())
            for data in encoded:
                for form in _in_base64(data):
                    self._add({form[:HEAD]}, partial(_base64, form))
        self._sizes = sorted({len(head) for head in self._by_head})

    def _add(self, heads: Iterable[str], match: _Match) -> None:
        for head in heads:
            self._by_head.setdefault(head, []).append(match)

    def replaced(self, text: str, mask: str) -> str:
        """The text with each of them replaced."""
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
            # What has been hidden already is not looked at again: secrets may overlap.
            if place >= position and (end := self._end(text, place)) >= 0:
                parts += (text[position:place], mask)
                position = end
        return "".join((*parts, text[position:]))

    def _end(self, text: str, place: int) -> int:
        """Where the longest one ends that begins at this place."""
        matches = (match for size in self._sizes for match in self._by_head.get(text[place : place + size], ()))
        return max((match(text, place) for match in matches), default=-1)


def _literal(form: str, text: str, place: int) -> int:
    return place + len(form) if text.startswith(form, place) else -1


def _in_address(letters: list[tuple[str, ...]], text: str, place: int) -> int:
    """Any mixture of encoded and plain characters: everybody encodes others of them."""
    for ways in letters:
        for way in ways:
            if text.startswith(way, place):
                place += len(way)
                break
        else:
            return -1
    return place


def _base64(form: str, text: str, place: int) -> int:
    """With the letter behind it, which holds the last bits, and what fills it up."""
    if not text.startswith(form, place):
        return -1
    end = place + len(form)
    end += text[end : end + 1] in _BASE64_LETTERS
    while text[end : end + 1] == "=":
        end += 1
    return end


def _in_json(text: str) -> str:
    """JSON lines carry a secret with its quotes and line breaks escaped."""
    return msgspec.json.encode(text).decode()[1:-1]


def _in_ascii_json(text: str) -> str:
    """As Python writes JSON by default."""
    if text.isascii():
        return _in_json(text)
    # `\u` escapes are UTF-16: beyond the first plane a character is two of them.
    data = _in_json(text).encode("utf-16-be", errors="surrogatepass")
    units = [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


@cache
def _ways(letter: str) -> tuple[str, ...]:
    """How a character may stand in an address, the longest first."""
    if letter in _UNRESERVED:
        return (letter,)
    encoded = "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogatepass"))
    # PHP writes JSON with an escaped slash.
    others = {" ": ("+",), "/": ("\\/",)}.get(letter, ())
    return (encoded, encoded.lower(), *others, letter)


def _heads(letters: list[tuple[str, ...]]) -> set[str]:
    """Everything that such a mixture may begin with."""
    heads = {""}
    for ways in letters:
        heads = {head if len(head) == HEAD else (head + way)[:HEAD] for head in heads for way in ways}
        if all(len(head) == HEAD for head in heads):
            break
    return heads


def _in_base64(data: bytes) -> set[str]:
    """What every base64 text has in it that has these bytes in it, wherever they begin, in both alphabets."""
    forms = set()
    # Base64 writes three bytes as four letters, so the same bytes look different at each of three offsets; what
    # neighbours take part in is left off.
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        text = b2a_base64(b"\0" * before + data, newline=False).decode()
        # The last letter may hold bits of what follows.
        core = text[skipped : (before + len(data)) * 8 // 6]
        if len(core) >= HEAD:
            forms |= {core, core.replace("+", "-").replace("/", "_")}
    return forms
