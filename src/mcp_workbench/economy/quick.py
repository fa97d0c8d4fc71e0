"""The common case of checking arguments, at the speed of decoding them.

Most schemas are an object of plainly typed properties. For those a typed decoder is made once; arguments that it
accepts are right, and cost half a microsecond to find so. Everything else, wrong arguments included, goes to the
thorough check in `arguments`. Owns nothing but that shortcut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}
# Words of a schema that do not narrow down what is allowed.
_HARMLESS: Final = frozenset(
    "type title description default examples example format deprecated readOnly writeOnly $comment x-mcp-header "
    "contentEncoding contentMediaType".split()
)
_HARMLESS_AT_TOP: Final = frozenset((*_HARMLESS, "properties", "required", "$schema", "$id", "additionalProperties"))
# Bounds that decoding can hold a value against, by what they apply to.
_BOUNDS: Final[Mapping[str, Mapping[str, str]]] = {
    "integer": {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"},
    "number": {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"},
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}

Accepts = Callable[[bytes], bool]


def compiled(schema: object) -> Accepts | None:
    """A test that says yes only to arguments that fit; None for schemas that are not plain enough."""
    if (
        not isinstance(schema, dict)
        or schema.get("type", "object") != "object"
        or not schema.keys() <= _HARMLESS_AT_TOP
    ):
        return None
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    others = schema.get("additionalProperties", True)
    if not isinstance(properties, dict) or not isinstance(required, list) or not isinstance(others, bool):
        return None
    if not all(name in properties for name in required):
        return None
    fields: list[tuple[Any, ...]] = []
    names: dict[str, str] = {}
    for number, (name, each) in enumerate(properties.items()):
        kind = _kind(each)
        if kind is None:
            return None
        names[f"f{number}"] = name
        field = (f"f{number}", kind) if name in required else (f"f{number}", kind | msgspec.UnsetType, msgspec.UNSET)
        fields.append(field)
    fields.sort(key=len)
    try:
        made = msgspec.defstruct("Arguments", fields, rename=names, forbid_unknown_fields=not others)
        decode = msgspec.json.Decoder(made).decode
    except (TypeError, ValueError):
        # Whatever a schema says that no type can: the thorough check reads it.
        return None

    def accepts(arguments: bytes) -> bool:
        try:
            decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    return accepts


def _kind(schema: object) -> Any:
    """The type of a value that fits a plain schema; None for one that is not plain."""
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        return None
    word = schema["type"]
    kind = _TYPES.get(word)
    if kind is None:
        return None
    bounds = _BOUNDS.get(word, {})
    limits: dict[str, Any] = {}
    for key, value in schema.items():
        if key in bounds and isinstance(value, int):
            limits[bounds[key]] = value
        elif key == "enum" and word == "string" and isinstance(value, list) and all(type(one) is str for one in value):
            kind = Literal[tuple(value)] if value else None
        elif key == "items" and word == "array":
            inner = _kind(value) if value not in ({}, True) else Any
            kind = None if inner is None else list.__class_getitem__(inner)
        elif key not in _HARMLESS:
            return None
    if kind is None:
        return None
    return Annotated[kind, Meta(**limits)] if limits else kind
