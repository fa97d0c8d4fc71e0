"""Reading a tool's input schema: which kinds of value an argument takes, and how a call is written for people.

Owns as much of JSON Schema as that needs: types, unions, references inside the document. Refuses to validate: that is
the server's business. Pure; whatever a server wrote as its schema is read without failing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

# References may go in circles.
_DEEPEST: Final = 12
_MOST_CHOICES: Final = 6
_LONGEST_CHOICE: Final = 30


def arguments_schema(tool: object) -> Schema:
    """The input schema of a tool's definition; an empty one when it has none that can be used."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return schema if isinstance(schema, dict) else {}


def properties(schema: Schema) -> dict[str, Any]:
    """The named arguments, in the order of the schema."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def required(schema: Schema) -> list[str]:
    """The names of the arguments that must be given."""
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def branches(schema: object, root: Schema, depth: int = 0) -> list[Schema]:
    """The alternatives that a schema stands for, with references followed."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    if isinstance(reference := schema.get("$ref"), str):
        return branches(_target(reference, root), root, depth + 1)
    for union in ("anyOf", "oneOf"):
        if isinstance(members := schema.get(union), list):
            return [branch for member in members for branch in branches(member, root, depth + 1)]
    if "type" not in schema and isinstance(members := schema.get("allOf"), list):
        return [branch for member in members for branch in branches(member, root, depth + 1)]
    return [schema]


def kinds(schema: object, root: Schema) -> list[str]:
    """The JSON types that are allowed, in the order of the schema; empty when anything is."""
    found: list[str] = []
    for branch in branches(schema, root):
        found += _own_kinds(branch)
    return list(dict.fromkeys(found))


def items(schema: object, root: Schema) -> object:
    """The schema of the items of an array."""
    for branch in branches(schema, root):
        if "items" in branch:
            return branch["items"]
    return {}


def choices(schema: object, root: Schema) -> list[Any]:
    """The values of an enumeration; empty when it is none."""
    found: list[Any] = []
    for branch in branches(schema, root):
        if isinstance(values := branch.get("enum"), list):
            found += values
        elif "const" in branch:
            found.append(branch["const"])
        else:
            return []
    return found


def _own_kinds(schema: Schema) -> list[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return [kind for kind in declared if isinstance(kind, str)]
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    if values:
        return list(dict.fromkeys(kind_of(value) for value in values))
    return ["object"] if "properties" in schema else ["array"] if "items" in schema else []


def kind_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _target(reference: str, root: Schema) -> object:
    if not reference.startswith("#/"):
        return None
    found: object = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


# for people


def signature(name: str, schema: Schema) -> str:
    """`add_note(title: string, text: string, tags?: string[])`"""
    return f"{name}({', '.join(_parameters(schema))})"


def _parameters(schema: Schema) -> list[str]:
    needed = set(required(schema))
    known = properties(schema)
    # What must be given comes first, as in any language.
    ordered = sorted(known, key=lambda name: name not in needed)
    return [
        f"{name}{'' if name in needed else '?'}: {described(known[name], schema)}{_default(known[name])}"
        for name in ordered
    ]


def described(schema: object, root: Schema, depth: int = 0) -> str:
    """An argument's type in a few words: `integer`, `string[]`, `"fast" | "slow"`."""
    if depth > 2:
        return "…"
    values = choices(schema, root)
    if values:
        shown = [_shortened(json.dumps(value, ensure_ascii=False)) for value in values[:_MOST_CHOICES]]
        return " | ".join([*shown, "…"] if len(values) > _MOST_CHOICES else shown)
    words = [_word(kind, schema, root, depth) for kind in kinds(schema, root)]
    return " | ".join(dict.fromkeys(words)) or "any"


def _word(kind: str, schema: object, root: Schema, depth: int) -> str:
    if kind == "array":
        inner = described(items(schema, root), root, depth + 1)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    return kind


def _default(schema: object) -> str:
    if not isinstance(schema, dict) or schema.get("default") is None:
        return ""
    return " = " + _shortened(json.dumps(schema["default"], ensure_ascii=False))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_CHOICE else text[: _LONGEST_CHOICE - 1] + "…"
