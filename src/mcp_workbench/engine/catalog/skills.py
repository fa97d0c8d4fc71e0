"""Skills of servers (the extension `io.modelcontextprotocol/skills`): which servers have them, and how an entry is
written for a client. Pure.

A skill is a directory of resources with a `SKILL.md`, and its entry lists every file with its digest. Digests are never
changed; addresses only where two servers use the same one, because two such skills have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import SKILLS_EXTENSION
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS, decode_object, encode

SKILLS_GET: Final = "skills/get"
DIRECTORY_READ: Final = "resources/directory/read"

# An address as clients see it; None if they must not see it.
Shown = Callable[[str], str | None]


class _Settings(Struct):
    directoryRead: bool = False


class _Frontmatter(Struct):
    name: str = ""
    description: str = ""


class SkillEntry(Struct):
    """What search reads of an entry."""

    uri: str
    frontmatter: _Frontmatter


_decode_settings: Final = Decoder(_Settings).decode
_decode_items: Final = Decoder(list[Raw]).decode
_decode_string: Final = Decoder(str).decode
read_skill: Final = Decoder(SkillEntry).decode


def has_skills(entry: ServerEntry) -> bool:
    return SKILLS_EXTENSION in entry.extensions


def reads_directories(entry: ServerEntry) -> bool:
    try:
        return _decode_settings(entry.extensions[SKILLS_EXTENSION]).directoryRead
    except (KeyError, DecodeError, ValidationError):
        return False


def is_above(skills: Iterable[str], uri: str) -> bool:
    """Whether a directory contains skills, as `skill://acme` does those of `skill://acme/refunds`."""
    return any(skill.startswith(uri.removesuffix("/") + "/") for skill in skills)


def shown_entry(definition: bytes | Raw, shown: Shown) -> bytes:
    """An entry with its addresses as clients see them. What cannot be read is left out: it may name what is hidden."""
    try:
        members: dict[str, Any] = dict(decode_object(definition))
        members["uri"] = _address(members["uri"], shown)
    except (*READING_ERRORS, KeyError):
        return b"{}"
    if "resources" in members:
        members["resources"] = _shown_items(members["resources"], shown)
    return encode(members)


def shown_result(method: str, result: bytes | Raw, shown: Shown) -> bytes:
    """The result of one of the methods, with its addresses as clients see them; without what cannot be read."""
    try:
        members: dict[str, Any] = dict(decode_object(result))
    except READING_ERRORS:
        return b"{}"
    if method == SKILLS_GET and "skill" in members:
        members["skill"] = Raw(shown_entry(members["skill"], shown))
    elif method == DIRECTORY_READ and "resources" in members:
        members["resources"] = _shown_items(members["resources"], shown)
    return encode(members)


def _shown_items(items: Raw, shown: Shown) -> list[object]:
    found: list[object] = []
    try:
        every = _decode_items(items)
    except READING_ERRORS:
        return found
    for item in every:
        try:
            members: dict[str, Any] = dict(decode_object(item))
            address = _address(members["uri"], shown)
        except (*READING_ERRORS, KeyError):
            continue
        if address is not None:
            found.append({**members, "uri": address})
    return found


def _address(uri: Raw, shown: Shown) -> str | None:
    return shown(_decode_string(uri))
