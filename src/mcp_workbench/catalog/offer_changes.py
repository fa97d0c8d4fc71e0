"""Whether a server's tools are other tools than before, to whoever calls them. Pure.

Servers describe the same tools in other bytes from one start to the next: in another order, or with the time of the
start as a default. Owns what counts as a difference: a tool that came or went, or that takes other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, encode

from mcp_workbench.catalog.offer import KINDS, Definitions, Offer
from mcp_workbench.json_schema import with_schemas

# Definitions that are written differently are looked into up to this size together, which takes some 50 ms; more count
# as changed, so that no server can hold everybody up.
MOST_COMPARED_BYTES: Final = 512 * 1024

# A line of the audit has room for so many.
_MOST_NAMED: Final = 20
# What a schema says for people only.
_REMARKS: Final = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})
# Lists in which the order means nothing.
_UNORDERED: Final = frozenset({"required", "type", "enum", "anyOf", "oneOf", "allOf"})


class _Tool(Struct):
    inputSchema: Any = None


_decode: Final = Decoder(_Tool).decode


def tools_differ(before: Definitions, after: Definitions) -> bool:
    """Whether tools were added or removed, or take other arguments."""
    if before.keys() != after.keys():
        return True
    written = [(before[name], tool) for name, tool in after.items() if before[name] != tool]
    if sum(len(memoryview(old)) + len(memoryview(new)) for old, new in written) > MOST_COMPARED_BYTES:
        return True
    return any(_takes_other_arguments(old, new) for old, new in written)


def _takes_other_arguments(before: Raw, after: Raw) -> bool:
    try:
        return bool(_meaning(_decode(before).inputSchema) != _meaning(_decode(after).inputSchema))
    except (DecodeError, ValidationError, RecursionError):
        return True


def _meaning(schema: Any) -> Any:
    """A schema without what it says for people, in an order that does not depend on how it was written."""
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


def list_changes(before: Offer | None, after: Offer) -> dict[str, str]:
    """What a server lists otherwise than before, by kind: `1 added (x), 2 changed (y, z)`. Where nothing was known
    before, there is nothing to tell."""
    found: dict[str, str] = {}
    for kind in KINDS if before is not None else ():
        old, new = before.lists.get(kind, {}) if before is not None else {}, after.lists.get(kind, {})
        names = {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "changed": [name for name in new if name in old and bytes(new[name]) != bytes(old[name])],
        }
        said = [f"{len(each)} {how} ({', '.join(each[:_MOST_NAMED])})" for how, each in names.items() if each]
        if said:
            found[kind] = ", ".join(said)
    return found
