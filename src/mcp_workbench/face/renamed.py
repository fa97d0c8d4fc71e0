"""A definition with some of its members replaced, and every other byte as the server wrote it. Pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import decode_object, encode

_OPENING: Final = re.compile(rb"\s*\{")
# A member's name and the colon behind it; what precedes is the comma after the member before.
# Possessive: a definition that is mostly spaces is gone through once, not once for each way to share them out.
_KEY: Final = re.compile(rb'\s*+(?:,\s*+)?("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+')
_decode_key: Final = Decoder(str).decode


_NAME_FIRST: Final = re.compile(rb'(\s*+\{\s*+"name"\s*+:\s*+)"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def renamed(definition: Raw, name: str, **others: str) -> bytes:
    """A definition under another name, and with other texts replaced or added."""
    if not others:
        written = bytes(definition)
        head = _NAME_FIRST.match(written)
        # As nearly all servers write it; with no other `"name"` anywhere there is no other member of that name either.
        if head is not None and written.count(b'"name"') == 1 and b"\\u" not in written:
            return b"".join((head[1], encode(name), written[head.end() :]))
    return with_members(
        bytes(definition), {"name": encode(name), **{key: encode(text) for key, text in others.items()}}
    )


def with_members(definition: bytes, members: dict[str, bytes]) -> bytes:
    """A JSON object with these members, written as JSON, in place of its own of that name or behind them."""
    found = decode_object(definition)
    places = _places(definition, found)
    if places is None:
        # A member that is there twice: whoever reads it decides which one counts, unless it is written once.
        return encode({**found, **{key: Raw(value) for key, value in members.items()}})
    parts: list[bytes] = []
    end = 0
    for start, key in sorted((places[key], key) for key in members if key in places):
        parts += (definition[end:start], members[key])
        end = start + len(bytes(found[key]))
    added = b",".join(encode(key) + b":" + value for key, value in members.items() if key not in places)
    if not added:
        return b"".join((*parts, definition[end:]))
    closing = definition.rindex(b"}")
    return b"".join((*parts, definition[end:closing], b"," if found else b"", added, definition[closing:]))


def _places(definition: bytes, members: dict[str, Raw]) -> dict[str, int] | None:
    """Where the value of each member begins; None where a member is there twice.

    Each value is skipped by its length, so this takes as long as there are members, whatever is inside of them."""
    opening = _OPENING.match(definition)
    assert opening is not None
    at = opening.end()
    places: dict[str, int] = {}
    while (match := _KEY.match(definition, at)) is not None:
        try:
            key = _decode_key(match[1])
        except DecodeError:
            return None
        value = bytes(members.get(key, b""))
        if not value or key in places or not definition.startswith(value, match.end()):
            return None
        places[key] = match.end()
        at = match.end() + len(value)
    return places if len(places) == len(members) and definition[at:].strip() == b"}" else None
