"""The texts of a tool that are searched, sorted into the fields that the index weighs.

Owns reading a tool definition for search. Knows nothing about weights and ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from mcp_workbench.engine.economy.prose import split_first_sentence
from mcp_workbench.engine.economy.tool import Tool, parts

# Limits, so that one hostile or merely verbose definition costs no more than a few ordinary ones. The longest
# descriptions of real servers repeat a whole manual; what distinguishes the tool is at their beginning.
_MAX_FIELD_CHARACTERS = 400
_MAX_REST_LENGTH = 300
_MAX_DETAILS = 300
_MAX_ARGUMENTS = 200
_MAX_ARGUMENT_DEPTH = 3
_MAX_CHOICES = 40


class SearchDocument(msgspec.Struct, frozen=True):
    """One tool to index. `key` is the caller's name for it and is returned in hits."""

    key: str
    name: str
    description: str = ""
    title: str = ""
    server: str = ""
    toolbox: str = ""
    schema: bytes | Mapping[str, object] | Argument = b""


class Fields(NamedTuple):
    """The texts of one tool, by how much they reveal about its purpose."""

    name: str
    lead: str
    arguments: str
    place: str
    rest: str


# `gc=False`: thousands of short-lived objects would trigger the garbage collector repeatedly.
class Argument(msgspec.Struct, gc=False):
    """The parts of an argument's schema that are read, in the form that nearly all have. The rest is not decoded."""

    description: str = ""
    enum: list[str | int | float | bool | None] = []
    properties: dict[str, Argument] = {}
    items: Argument | None = None


class _SearchedDefinition(msgspec.Struct, gc=False):
    """The parts of a definition that are searched, in the form that nearly all have."""

    title: str = ""
    description: str = ""
    schema: Argument = msgspec.field(default_factory=Argument, name="inputSchema")


_decode_definition = msgspec.json.Decoder(_SearchedDefinition).decode
_decode_plain = msgspec.json.Decoder(Argument).decode
_NO_ARGUMENT = Argument()


def document(tool: Tool) -> SearchDocument:
    """A tool as it is indexed."""
    try:
        # In one go, which takes half of the time.
        plain = _decode_definition(tool.definition)
    except (msgspec.DecodeError, RecursionError):
        known = parts(tool.definition)
        plain = _SearchedDefinition(known.title, known.description, _decoded(bytes(known.input_schema)))
    return SearchDocument(tool.path, tool.name, plain.description, plain.title, tool.server, tool.toolbox, plain.schema)


def fields(document: SearchDocument) -> Fields:
    """Sort the texts of `document`; a schema that cannot be read is ignored."""
    lead, rest = split_first_sentence(document.description)
    names: list[str] = []
    details: list[str] = []
    _read_arguments(_decoded(document.schema), _MAX_ARGUMENT_DEPTH, names, details)
    return Fields(
        name=document.name[:_MAX_FIELD_CHARACTERS],
        lead=f"{document.title} {lead}"[:_MAX_FIELD_CHARACTERS],
        arguments=" ".join(names)[:_MAX_FIELD_CHARACTERS],
        place=f"{document.server} {document.toolbox}"[:_MAX_FIELD_CHARACTERS],
        # Descriptions of arguments come last and count least: tools of one server share most of them.
        rest=f"{rest[:_MAX_REST_LENGTH]} {' '.join(details)[:_MAX_DETAILS]}",
    )


def _decoded(schema: bytes | Mapping[str, object] | Argument) -> Argument:
    if isinstance(schema, Argument):
        return schema
    try:
        if isinstance(schema, bytes):
            return _decode_plain(schema) if schema else _NO_ARGUMENT
        return _loose(schema, _MAX_ARGUMENT_DEPTH)
    except msgspec.ValidationError:
        return _loose(msgspec.json.decode(schema), _MAX_ARGUMENT_DEPTH)  # type: ignore[arg-type]
    except (msgspec.DecodeError, RecursionError):
        return _NO_ARGUMENT


def _loose(schema: object, depth: int) -> Argument:
    """The same for a schema in another form: `items` as a list, a description that is not a string, …"""
    if not isinstance(schema, dict):
        return _NO_ARGUMENT
    description, choices, properties = (schema.get(key) for key in ("description", "enum", "properties"))
    inside = properties.items() if isinstance(properties, dict) and depth else ()
    return Argument(
        description=description if isinstance(description, str) else "",
        enum=[choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else [],
        properties={name: _loose(part, depth - 1) for name, part in inside if isinstance(part, dict)},
        items=_loose(schema["items"], depth - 1) if depth and isinstance(schema.get("items"), dict) else None,
    )


def _read_arguments(schema: Argument, depth: int, names: list[str], details: list[str]) -> None:
    """Add the arguments' names, and what is said about them."""
    for name, argument in schema.properties.items():
        if len(names) == _MAX_ARGUMENTS:
            return
        names.append(name)
        if argument.description:
            details.append(argument.description)
        if argument.enum:
            details.extend(choice for choice in argument.enum[:_MAX_CHOICES] if isinstance(choice, str))
        if depth > 1:
            if argument.properties:
                _read_arguments(argument, depth - 1, names, details)
            if argument.items is not None:
                _read_arguments(argument.items, depth - 1, names, details)
