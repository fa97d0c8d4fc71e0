"""Turn `key=value` words of a shell into the arguments of a tool, typed by the tool's input schema.

Owns that notation. `key=value` gets its type from the schema, `key:=json` is verbatim JSON; a key given several times
makes a list. Numbers keep the digits that were typed: nothing goes through a float. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import MsgspecError, Raw
from msgspec.json import decode

from mcp_workbench.cli.flags import UsageError
from mcp_workbench.engine.economy.signature import written_type
from mcp_workbench.engine.json_schema import Schema, alternatives, properties, required
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.nearest import nearest

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER_ARGUMENT: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS: Final = {"true": b"true", "yes": b"true", "1": b"true", "false": b"false", "no": b"false", "0": b"false"}
_ARGUMENT_FORMS: Final = "write key=value, key:=json for a JSON value, or pass all arguments with --json"


class Given:
    """One `key=value` or `key:=json`."""

    __slots__ = ("is_json", "key", "text")

    def __init__(self, word: str) -> None:
        if not _is_unicode(word):
            raise UsageError(f"`{ascii(word)[1:-1]}` is not UTF-8")
        key, equals, self.text = word.partition("=")
        self.is_json = key.endswith(":")
        self.key = key[:-1] if self.is_json else key
        if not equals or not self.key:
            raise UsageError(f"`{word}` is not key=value", hint=_ARGUMENT_FORMS)


def read_arguments(words: Sequence[str], schema: Schema) -> bytes:
    """Return the arguments as a JSON object. Raises `UsageError`."""
    given: dict[str, list[Given]] = {}
    for word in words:
        one = Given(word)
        given.setdefault(one.key, []).append(one)
    known = properties(schema)
    for key in given:
        if key not in known and schema.get("additionalProperties") is False:
            raise UsageError(_unknown(key, known))
    missing = [name for name in required(schema) if name not in given]
    if missing:
        listed = ", ".join(f"`{name}` ({written_type(known.get(name), schema)})" for name in missing)
        raise UsageError(f"missing: {listed}", hint=_ARGUMENT_FORMS)
    return encode({key: _value(key, ones, known.get(key), schema) for key, ones in given.items()})


def read_json(text: str) -> bytes:
    """Read all arguments from one JSON object, and return it exactly as written."""
    if not _is_unicode(text):
        raise UsageError("the value of --json is not UTF-8")
    kind = kind_of(_decoded(text, "--json"))
    if kind != "object":
        raise UsageError(f"--json takes an object, found {kind}", hint='for example: --json \'{"key": "value"}\'')
    return text.encode()


def _is_unicode(text: str) -> bool:
    # Python represents undecodable bytes of the command line as lone surrogates.
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def unexpected(words: Sequence[str], schema: Schema) -> list[str]:
    """Return remarks on arguments that the schema neither lists nor forbids: often typing errors."""
    known = properties(schema)
    keys = dict.fromkeys(Given(word).key for word in words)
    slips = [_unknown(key, known) for key in keys if known and key not in known]
    return [slip if slip.endswith("?") else f"{slip}." for slip in slips]


def _unknown(key: str, known: Schema) -> str:
    near = nearest(key, known)
    if near:
        return f"the tool has no argument `{key}`; did you mean {' or '.join(f'`{name}`' for name in near)}?"
    there = ", ".join(f"`{name}`" for name in known) or "none"
    return f"the tool has no argument `{key}`; it takes {there}"


def _value(key: str, ones: Sequence[Given], schema: object, root: Schema) -> Raw:
    takes_list = "array" in kinds(schema, root)
    if len(ones) > 1 and not takes_list:
        raise UsageError(f"`{key}` is given {len(ones)} times and takes one value")
    first = ones[0]
    # If the tool accepts a list, `tags=a` is a list with one item, and `tags='["a"]'` is the whole list.
    if len(ones) == 1 and (first.is_json or not takes_list or first.text.startswith("[")):
        return _raw(first) if first.is_json else _typed(first, schema, root)
    element = items(schema, root)
    return Raw(encode([_raw(one) if one.is_json else _typed(one, element, root) for one in ones]))


def _raw(one: Given) -> Raw:
    # Only validated: the digits and spaces are sent exactly as typed.
    _decoded(one.text, f"{one.key}:=")
    return Raw(one.text.encode())


def _typed(one: Given, schema: object, root: Schema) -> Raw:
    # Before the types, because an enumeration of numbers is compared with the text as typed.
    values = choices(schema, root)
    if values:
        return _chosen(one, values)
    allowed = kinds(schema, root)
    for kind, read in _READERS.items():
        if kind in allowed and (found := read(one.text)) is not None:
            return Raw(found)
    if not allowed or "string" in allowed:
        return Raw(encode(one.text))
    raise UsageError(
        f"`{one.key}` must be of type {written_type(schema, root)}, found `{one.text}`", hint=_ARGUMENT_FORMS
    )


def _chosen(one: Given, values: Sequence[object]) -> Raw:
    for value in values:
        if one.text == value or (not isinstance(value, str) and one.text.encode() == encode(value)):
            return Raw(encode(value))
    listed = ", ".join(f"`{value if isinstance(value, str) else encode(value).decode()}`" for value in values)
    raise UsageError(f"`{one.key}` takes one of {listed}, found `{one.text}`")


def _document(start: str) -> Callable[[str], bytes | None]:
    def read(text: str) -> bytes | None:
        if not text.lstrip().startswith(start):
            return None
        try:
            decode(text)
        except (MsgspecError, RecursionError):
            return None
        return text.encode()

    return read


# The order matters: if `string` is one of several types, text that parses as another type gets that type.
_READERS: Final[dict[str, Callable[[str], bytes | None]]] = {
    "integer": lambda text: text.encode() if _INTEGER.fullmatch(text) else None,
    "number": lambda text: text.encode() if _NUMBER_ARGUMENT.fullmatch(text) else None,
    "boolean": lambda text: _BOOLEANS.get(text.lower()),
    "null": lambda text: b"null" if text == "null" else None,
    "array": _document("["),
    "object": _document("{"),
}


def _decoded(text: str, where: str) -> object:
    try:
        return decode(text)
    except (MsgspecError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}", hint="quote it for the shell: '…'") from None


# ── what a schema defines for one argument: its JSON types, items and choices ──


def arguments_schema(tool: object) -> Schema:
    """Return the input schema of a tool's definition; an empty one if it has none that can be used."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return schema if isinstance(schema, dict) else {}


def kinds(schema: object, root: Schema) -> list[str]:
    """Return the allowed JSON types, in the order of the schema; empty if anything is allowed."""
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
    """Return the values of an enumeration; empty if the schema has none."""
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
