"""Whether a server's tools have changed in a way that matters to callers. Pure.

Many servers write the same tools differently after each start: in another order, or with the current time as a default.
Owns what counts as a change: a tool that was added or removed, or that takes different arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from mcp_workbench.engine.catalog.offer import KINDS, SINGULAR, Definitions, Offer
from mcp_workbench.engine.json_schema import with_schemas

# The total size of differing definitions that are compared in detail, which takes about 50 ms. Beyond that they count
# as changed, so that no server can delay the others.
MAX_COMPARED_BYTES: Final = 512 * 1024

# How many names one line of the audit lists.
_MAX_NAMED_CHANGES: Final = 20
# Keywords of a schema that are only for people.
_REMARKS: Final = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})
# Keywords whose lists are unordered.
_UNORDERED: Final = frozenset({"required", "type", "enum", "anyOf", "oneOf", "allOf"})


class _Tool(Struct):
    inputSchema: Any = None


_decode: Final = Decoder(_Tool).decode


def tools_differ(before: Definitions, after: Definitions) -> bool:
    """Whether tools were added or removed, or take different arguments."""
    if before.keys() != after.keys():
        return True
    written = [(before[name], tool) for name, tool in after.items() if before[name] != tool]
    if sum(len(memoryview(old)) + len(memoryview(new)) for old, new in written) > MAX_COMPARED_BYTES:
        return True
    return any(_takes_other_arguments(old, new) for old, new in written)


def lists_differ(before: Offer, after: Offer) -> bool:
    """Whether anything was listed otherwise, but for the order in which it was written."""
    for kind in KINDS:
        old, new = before.lists.get(kind, {}), after.lists.get(kind, {})
        if old.keys() != new.keys():
            return True
        written = [(old[name], each) for name, each in new.items() if old[name] != each]
        if sum(len(memoryview(one)) + len(memoryview(other)) for one, other in written) > MAX_COMPARED_BYTES:
            return True
        if any(_says_other(one, other) for one, other in written):
            return True
    return False


def _says_other(before: Raw, after: Raw) -> bool:
    try:
        return bool(decode(before) != decode(after))
    except (DecodeError, RecursionError):
        return True


def _takes_other_arguments(before: Raw, after: Raw) -> bool:
    try:
        return bool(_meaning(_decode(before).inputSchema) != _meaning(_decode(after).inputSchema))
    except (DecodeError, ValidationError, RecursionError):
        return True


def _meaning(schema: Any) -> Any:
    """A schema without annotations for people, in a canonical order."""
    if not isinstance(schema, Mapping):
        return schema
    meaning: dict[str, Any] = {}
    for key, value in schema.items():
        if key not in _REMARKS:
            inner: Any = with_schemas(key, value, lambda name, part: _meaning(part))
            is_unordered = key in _UNORDERED and isinstance(inner, list)
            meaning[key] = sorted(inner, key=_written) if is_unordered else inner
    return meaning


def _written(value: object) -> bytes:
    return encode(value, order="deterministic")


def changed_definitions(before: Offer, after: Offer) -> list[str]:
    """What a server says otherwise than before under the same name, in words: `tool read`. Without resources, which
    most servers list as data, and without what was added or removed."""
    found = ["instructions"] if (before.profile.instructions or "") != (after.profile.instructions or "") else []
    left = MAX_COMPARED_BYTES
    for kind in KINDS:
        if kind == "resources":
            continue
        old = before.lists.get(kind, {})
        for name, definition in after.lists.get(kind, {}).items():
            if name not in old or bytes(old[name]) == bytes(definition):
                continue
            left -= len(memoryview(old[name])) + len(memoryview(definition))
            if left < 0 or _content(old[name]) != _content(definition):
                found.append(f"{SINGULAR[kind]} {name}")
    return found


def _content(definition: Raw) -> object:
    """What it says, whatever the order of its members."""
    try:
        found: object = decode(definition)
    except (DecodeError, UnicodeError, RecursionError):
        return bytes(definition)
    return found


def list_changes(before: Offer | None, after: Offer) -> dict[str, str]:
    """The changes between two offers, by kind: `1 added (x), 2 changed (y, z)`. Empty if there was no offer before."""
    found: dict[str, str] = {}
    for kind in KINDS if before is not None else ():
        old, new = before.lists.get(kind, {}) if before is not None else {}, after.lists.get(kind, {})
        names = {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "changed": [name for name in new if name in old and bytes(new[name]) != bytes(old[name])],
        }
        said = [f"{len(each)} {how} ({', '.join(each[:_MAX_NAMED_CHANGES])})" for how, each in names.items() if each]
        if said:
            found[kind] = ", ".join(said)
    return found
