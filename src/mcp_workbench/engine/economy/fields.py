"""The texts of a tool that are searched, sorted into the fields that the index weighs.

Owns reading a tool definition for search. Knows nothing about weights and ranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from mcp_workbench.engine.economy.prose import split_first_sentence

# Limits, so that one hostile or merely verbose definition costs no more than a few ordinary ones. The longest
# descriptions of real servers repeat a whole manual; what distinguishes the tool is at their beginning.
_MOST_CHARACTERS = 400
_MOST_REST = 300
_MOST_DETAILS = 300
_MOST_ARGUMENTS = 200
_DEEPEST_ARGUMENT = 3
_MOST_CHOICES = 40


class SearchDocument(msgspec.Struct, frozen=True):
    """One tool to index. `key` is the caller's name for it and is returned in hits."""

    key: str
    name: str
    description: str = ""
    title: str = ""
    server: str = ""
    toolbox: str = ""
    schema: bytes | Mapping[str, object] = b""


class Fields(NamedTuple):
    """The texts of one tool, by how much they reveal about its purpose."""

    name: str
    lead: str
    arguments: str
    place: str
    rest: str


# `gc=False`: thousands of short-lived objects would trigger the garbage collector repeatedly.
class _Argument(msgspec.Struct, gc=False):
    """The parts of an argument's schema that are read, in the form that nearly all have. The rest is not decoded."""

    description: str = ""
    enum: list[str | int | float | bool | None] = []
    properties: dict[str, _Argument] = {}
    items: _Argument | None = None


_decode_plain = msgspec.json.Decoder(_Argument).decode
_NOTHING = _Argument()


def fields(document: SearchDocument) -> Fields:
    """Sort the texts of `document`; a schema that cannot be read is ignored."""
    lead, rest = split_first_sentence(document.description)
    names: list[str] = []
    details: list[str] = []
    for name, argument in islice(_arguments(_decoded(document.schema), _DEEPEST_ARGUMENT), _MOST_ARGUMENTS):
        names.append(name)
        if argument.description:
            details.append(argument.description)
        if argument.enum:
            details.extend(choice for choice in argument.enum[:_MOST_CHOICES] if isinstance(choice, str))
    return Fields(
        name=document.name[:_MOST_CHARACTERS],
        lead=f"{document.title} {lead}"[:_MOST_CHARACTERS],
        arguments=" ".join(names)[:_MOST_CHARACTERS],
        place=f"{document.server} {document.toolbox}"[:_MOST_CHARACTERS],
        # Descriptions of arguments come last and count least: tools of one server share most of them.
        rest=f"{rest[:_MOST_REST]} {' '.join(details)[:_MOST_DETAILS]}",
    )


def _decoded(schema: bytes | Mapping[str, object]) -> _Argument:
    try:
        if isinstance(schema, bytes):
            return _decode_plain(schema) if schema else _NOTHING
        return _loose(schema, _DEEPEST_ARGUMENT)
    except msgspec.ValidationError:
        return _loose(msgspec.json.decode(schema), _DEEPEST_ARGUMENT)  # type: ignore[arg-type]
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


def _loose(schema: object, depth: int) -> _Argument:
    """The same for a schema in another form: `items` as a list, a description that is not a string, …"""
    if not isinstance(schema, dict):
        return _NOTHING
    description, choices, properties = (schema.get(key) for key in ("description", "enum", "properties"))
    inside = properties.items() if isinstance(properties, dict) and depth else ()
    return _Argument(
        description=description if isinstance(description, str) else "",
        enum=[choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else [],
        properties={name: _loose(part, depth - 1) for name, part in inside if isinstance(part, dict)},
        items=_loose(schema["items"], depth - 1) if depth and isinstance(schema.get("items"), dict) else None,
    )


def _arguments(schema: _Argument, depth: int) -> Iterator[tuple[str, _Argument]]:
    for name, argument in schema.properties.items():
        yield name, argument
        if depth > 1:
            if argument.properties:
                yield from _arguments(argument, depth - 1)
            if argument.items is not None:
                yield from _arguments(argument.items, depth - 1)
