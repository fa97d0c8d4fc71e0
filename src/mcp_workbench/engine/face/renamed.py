"""Replaces members of a definition and keeps every other byte. Pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import decode_object, encode

_OBJECT_START: Final = re.compile(rb"\s*\{")
# The name of a member and its colon, preceded by the comma after the previous member.
# Possessive quantifiers make it linear even for a definition that is mostly white space.
_MEMBER_KEY: Final = re.compile(rb'\s*+(?:,\s*+)?("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+')
_decode_key: Final = Decoder(str).decode


_NAME_FIRST: Final = re.compile(rb'(\s*+\{\s*+"name"\s*+:\s*+)"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def renamed(definition: Raw, name: str, **others: str) -> bytes:
    """A definition with a new name, and with other texts replaced or added."""
    if not others:
        written = bytes(definition)
        head = _NAME_FIRST.match(written)
        # The usual form. Without another `"name"` in the text, there is no second member of that name.
        if head is not None and written.count(b'"name"') == 1 and b"\\u" not in written:
            return b"".join((head[1], encode(name), written[head.end() :]))
    return with_members(
        bytes(definition), {"name": encode(name), **{key: encode(text) for key, text in others.items()}}
    )


def with_members(definition: bytes, members: dict[str, bytes]) -> bytes:
    """Set members of a JSON object to values that are JSON already, replacing existing ones or appending."""
    found = decode_object(definition)
    places = _places(definition, found)
    if places is None:
        # A duplicate member: parsers disagree about which one counts, so it is written only once.
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
    """The start of each member's value; None if a member is duplicated.

    Values are skipped by their length, so the time depends only on the number of members."""
    opening = _OBJECT_START.match(definition)
    assert opening is not None
    at = opening.end()
    places: dict[str, int] = {}
    while (match := _MEMBER_KEY.match(definition, at)) is not None:
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
