"""Navigates JSON Schemas: their properties, the schemas nested in them, and the targets of `$ref`.

Owns every step from one schema to another, so that there is one way to do it, with one limit. Never fetches anything:
references to other documents are not resolved. What a schema is used for (a signature, a check, a header, a type to
decode with) is up to the caller. Supports drafts 4 to 2020-12, and accepts anything that a server sends as a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

Schema = Mapping[str, Any]

# The maximum depth of recursion into a schema; no real schema comes close.
MAX_SCHEMA_DEPTH: Final = 48
# References that lead to references: two are usual, a circle is not.
_MAX_REFERENCE_HOPS: Final = 16

# Keywords that hold further schemas: one, a list of them (`items` may be either), or an object of them by name.
# `default`, `examples`, `const` and `enum` hold data, whatever it looks like.
_ONE_SCHEMA: Final = frozenset(
    "items additionalItems contains unevaluatedItems additionalProperties unevaluatedProperties propertyNames "
    "not if then else contentSchema".split()
)
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
_NAMED: Final = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
)


def properties(schema: Schema) -> dict[str, Any]:
    """The named properties, in the order of the schema."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def required(schema: Schema) -> list[str]:
    """The names of the required properties."""
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def schemas_in(keyword: str, value: object) -> Iterator[tuple[str, Schema]]:
    """The schemas in the value of a keyword, each with its name if it has one."""
    if isinstance(value, dict):
        if keyword in _NAMED:
            yield from ((name, part) for name, part in value.items() if isinstance(part, dict))
        elif keyword in _ONE_SCHEMA:
            yield "", value
    elif isinstance(value, list) and keyword in _MANY:
        yield from (("", part) for part in value if isinstance(part, dict))


def with_schemas(keyword: str, value: object, change: Callable[[str, Schema], object]) -> object:
    """Apply `change` to the name and value of every schema in the value of a keyword."""
    if isinstance(value, dict):
        if keyword in _NAMED:
            return {name: change(name, part) if isinstance(part, dict) else part for name, part in value.items()}
        if keyword in _ONE_SCHEMA:
            return change("", value)
    elif isinstance(value, list) and keyword in _MANY:
        return [change("", part) if isinstance(part, dict) else part for part in value]
    return value


def alternatives(schema: object, root: Schema) -> list[Schema]:
    """The alternatives of a schema, with references resolved and without duplicates."""
    found: list[Schema] = []
    waiting, followed = [schema], set[str]()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict):
            continue
        if isinstance(reference := each.get("$ref"), str):
            if reference not in followed:
                followed.add(reference)
                waiting.append(point(root, reference))
            continue
        # With a type beside it, `allOf` adds conditions to that type; without one it is where the type stands.
        unions = ("anyOf", "oneOf") if "type" in each else ("anyOf", "oneOf", "allOf")
        members = next((each[union] for union in unions if isinstance(each.get(union), list)), None)
        if members is None:
            found.append(each)
        else:
            waiting.extend(reversed(members))
    return found


def resolve(root: Schema, reference: object) -> Schema | None:
    """The schema that a local reference leads to, following further references; None if it is missing or cyclic."""
    for _ in range(_MAX_REFERENCE_HOPS):
        target = point(root, reference)
        if not isinstance(target, dict):
            return None
        if "$ref" not in target:
            return target
        reference = target["$ref"]
    return None


def point(root: object, reference: object) -> object:
    """The value that `#` or `#/a/b` points to in `root`; None if missing. Anchors are not supported."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        # A fragment of a URL first, then a JSON Pointer (RFC 6901, section 6), whose `~1` is replaced before `~0`.
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found
