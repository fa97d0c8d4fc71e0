"""The common case of checking arguments, at the speed of decoding them.

Most schemas are an object of plainly typed properties. For those a typed decoder is made once; arguments that it
accepts are right, and cost half a microsecond to find so. Everything else, wrong arguments included, goes to the
thorough check in `arguments`. Owns nothing but that shortcut: in doubt there is none.
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
# Numbers are decoded as floats, which hold whole numbers exactly up to here.
_GREATEST_EXACT: Final = 2**53 - 1

Accepts = Callable[[bytes | msgspec.Raw], bool]


class _NotPlain(Exception):
    """A schema that says something no type can."""


def compiled(schema: object) -> Accepts | None:
    """A test that says yes only to arguments that fit; None for schemas that are not plain enough."""
    try:
        decode = msgspec.json.Decoder(_arguments(schema)).decode
    except (_NotPlain, TypeError, ValueError, RecursionError):
        return None

    def accepts(arguments: bytes | msgspec.Raw) -> bool:
        try:
            decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    return accepts


def _arguments(schema: object) -> Any:
    if (
        not isinstance(schema, dict)
        or schema.get("type", "object") != "object"
        or not schema.keys() <= _HARMLESS_AT_TOP
    ):
        raise _NotPlain
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    others = schema.get("additionalProperties", True)
    if not isinstance(properties, dict) or not isinstance(required, list) or not isinstance(others, bool):
        raise _NotPlain
    if not all(isinstance(name, str) and name in properties for name in required):
        raise _NotPlain
    fields: list[tuple[Any, ...]] = []
    names: dict[str, str] = {}
    for number, (name, each) in enumerate(properties.items()):
        field = f"f{number}"
        names[field] = name
        kind = _kind(each)
        fields.append((field, kind) if name in required else (field, kind | msgspec.UnsetType, msgspec.UNSET))
    fields.sort(key=len)
    return msgspec.defstruct("Arguments", fields, rename=names, forbid_unknown_fields=not others)


def _kind(schema: object) -> Any:
    """The type of a value that fits a plain schema."""
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str) or schema["type"] not in _TYPES:
        raise _NotPlain
    word = schema["type"]
    kind = _TYPES[word]
    bounds = _BOUNDS.get(word, {})
    limits: dict[str, Any] = {}
    for key, value in schema.items():
        if key in bounds:
            # Draft 4 wrote `exclusiveMinimum: true`, and others write what means nothing.
            if type(value) is not int or abs(value) > _GREATEST_EXACT:
                raise _NotPlain
            limits[bounds[key]] = value
        elif key == "enum" and word == "string" and isinstance(value, list) and value:
            if not all(type(one) is str for one in value):
                raise _NotPlain
            kind = Literal[tuple(value)]
        elif key == "items" and word == "array":
            kind = list[Any] if value == {} or value is True else list.__class_getitem__(_kind(value))
        elif key not in _HARMLESS:
            raise _NotPlain
    return Annotated[kind, Meta(**limits)] if limits else kind
