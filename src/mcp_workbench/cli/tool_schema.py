"""Which kinds of value an argument takes, for words from a shell that have no type of their own.

Refuses to validate: that is the server's business. Pure; whatever a server wrote as its schema is read without failing.
"""

from __future__ import annotations

from typing import Any

from mcp_workbench.json_schema import Schema, alternatives


def arguments_schema(tool: object) -> Schema:
    """The input schema of a tool's definition; an empty one when it has none that can be used."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return schema if isinstance(schema, dict) else {}


def kinds(schema: object, root: Schema) -> list[str]:
    """The JSON types that are allowed, in the order of the schema; empty when anything is."""
    found: list[str] = []
    for branch in alternatives(schema, root):
        found += _own_kinds(branch)
    return list(dict.fromkeys(found))


def items(schema: object, root: Schema) -> object:
    for branch in alternatives(schema, root):
        if "items" in branch:
            return branch["items"]
    return {}


def choices(schema: object, root: Schema) -> list[Any]:
    """The values of an enumeration; empty when it is none."""
    found: list[Any] = []
    for branch in alternatives(schema, root):
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
