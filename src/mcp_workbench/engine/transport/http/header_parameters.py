"""`x-mcp-header`: tool parameters that are mirrored into `Mcp-Param-*` headers. Pure.

Owns which annotations of an input schema are valid, which headers a call carries, and whether the headers of a call
match its arguments. "Custom Headers from Tool Parameters" of the streamable HTTP page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Raw
from msgspec.json import Decoder

from mcp_workbench.engine.json_schema import schemas_in
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS, decode_object
from mcp_workbench.engine.transport.http import header_values
from mcp_workbench.engine.transport.http.header_names import PARAMETER_PREFIX

ANNOTATION: Final = "x-mcp-header"

Path = tuple[str, ...]
# Maps the path of a property, as keys of `properties`, to the name after `Mcp-Param-`.
HeaderParameters = Mapping[Path, str]

_HTTP_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")

_decode_any: Final = Decoder(Any).decode


class InvalidAnnotation(Exception):
    """A tool definition that clients over HTTP must leave out. The text gives the reason."""


def read_annotations(input_schema: object) -> HeaderParameters:
    """The annotated parameters of an input schema. Raises `InvalidAnnotation`."""
    found: dict[Path, str] = {}
    taken: set[str] = set()
    for path, schema in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        if not path:
            raise InvalidAnnotation(f"`{ANNOTATION}` cannot be reached through `properties` alone")
        where, name, kind = ".".join(path), schema[ANNOTATION], schema.get("type")
        if not isinstance(name, str) or not _HTTP_TOKEN.fullmatch(name):
            raise InvalidAnnotation(f"`{ANNOTATION}` of `{where}` is not the name of a header")
        if kind not in _MIRRORED_TYPES:
            raise InvalidAnnotation(f"`{ANNOTATION}` of `{where}` needs type string, integer or boolean")
        if name.lower() in taken:
            raise InvalidAnnotation(f"`{ANNOTATION}` of `{where}` repeats `{name}`")
        taken.add(name.lower())
        found[path] = name
    return found


def headers_for(parameters: HeaderParameters, arguments: Raw | bytes | None) -> dict[str, str]:
    """The headers of a call with these arguments."""
    if not parameters:
        return {}
    headers: dict[str, str] = {}
    for path, name in parameters.items():
        try:
            text = _written(_value_at(arguments, path))
        except READING_ERRORS:
            # Left to the server, which reports invalid arguments.
            continue
        if text is not None:
            headers[(PARAMETER_PREFIX + name).lower()] = header_values.encode(text)
    return headers


def find_mismatch(
    parameters: HeaderParameters, arguments: Raw | bytes | None, headers: Mapping[str, list[str]]
) -> str | None:
    """What is wrong with the headers of a call, or None. `headers` maps lower-case names to all values given."""
    for path, name in parameters.items():
        given = headers.get((PARAMETER_PREFIX + name).lower(), [])
        header, where = f"Mcp-Param-{name}", ".".join(path)
        try:
            value = _value_at(arguments, path)
        except READING_ERRORS:
            # Not treated as missing: a server behind us may be able to read it.
            return f"`{where}` in the body cannot be read, and so not compared with `{header}`"
        text = _written(value)
        if len(given) > 1:
            return f"`{header}` is given more than once"
        if text is None:
            if given:
                return f"`{header}` is given, but the body has no value for `{where}`"
        elif not given:
            return f"`{header}` is missing, though the body has a value for `{where}`"
        elif not _agrees(header_values.decode(given[0]), value, text):
            return f"`{header}` does not match `{where}` in the body"
    return None


def _schemas(root: object) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every schema inside a schema, with the chain of `properties` that leads to it, or None if there is none."""
    waiting: list[tuple[Path | None, object]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        yield path, schema
        for keyword, value in schema.items():
            # Only a chain of `properties` makes a parameter statically reachable.
            chain = path if keyword == "properties" else None
            waiting += ((None if chain is None else (*chain, name), part) for name, part in schemas_in(keyword, value))


def _value_at(arguments: Raw | bytes | None, path: Path) -> object:
    """The value at a path, or None. Only the members on the path are decoded."""
    value = arguments
    for key in path:
        if value is None or bytes(memoryview(value)[:1]) != b"{":
            return None
        value = decode_object(value).get(key)
    return None if value is None else _decode_any(value)


def _written(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, int):
        # Python refuses to format integers of thousands of digits; the specification's safe range is far below that.
        return str(value) if value.bit_length() <= 64 else None
    return None


def _agrees(given: str | None, value: object, text: str) -> bool:
    if given is None or given == text:
        return given is not None
    if isinstance(value, str | bool):
        return False
    # Integers are compared as numbers: `42.0` is `42`.
    number = _DECIMAL.fullmatch(given)
    return number is not None and number[1] == text
