"""What of a tool is searched: its texts, sorted into the fields that the index weighs.

Owns the reading of a tool definition for search. Refuses to know weights and ranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from mcp_workbench.economy.prose import split_first_sentence

# Bounds, so that one hostile or merely verbose definition costs no more than a few ordinary ones. The longest
# descriptions of real servers repeat a whole manual; what tells the tool apart stands at their beginning.
_MOST_CHARACTERS = 400
_MOST_DETAILS = 200
_MOST_ARGUMENTS = 200
_DEEPEST_ARGUMENT = 3
_MOST_CHOICES = 40


class Entry(msgspec.Struct, frozen=True):
    """One tool to be found. `key` is the caller's name for it and comes back in the hit."""

    key: str
    name: str
    description: str = ""
    title: str = ""
    server: str = ""
    toolbox: str = ""
    schema: bytes | Mapping[str, object] = b""


class Fields(NamedTuple):
    """The texts of one tool, by how much they say about what it is for."""

    name: str
    lead: str
    arguments: str
    place: str
    rest: str


def fields(entry: Entry) -> Fields:
    """Sort the texts of `entry`; a schema that cannot be read counts as none."""
    lead, rest = split_first_sentence(entry.description)
    names: list[str] = []
    details: list[str] = []
    for name, argument in islice(_arguments(_decoded(entry.schema), _DEEPEST_ARGUMENT), _MOST_ARGUMENTS):
        names.append(name)
        about = argument.get("description")
        if isinstance(about, str):
            details.append(about)
        choices = argument.get("enum")
        if isinstance(choices, list):
            details.extend(choice for choice in choices[:_MOST_CHOICES] if isinstance(choice, str))
    return Fields(
        name=entry.name,
        lead=f"{entry.title} {lead}"[:_MOST_CHARACTERS],
        arguments=" ".join(names)[:_MOST_CHARACTERS],
        place=f"{entry.server} {entry.toolbox}",
        rest=f"{rest[:_MOST_CHARACTERS]} {' '.join(details)[:_MOST_DETAILS]}",
    )


def _decoded(schema: bytes | Mapping[str, object]) -> Mapping[str, object]:
    if isinstance(schema, bytes):
        try:
            schema = msgspec.json.decode(schema) if schema else {}
        except (msgspec.DecodeError, RecursionError):
            return {}
    return schema if isinstance(schema, dict) else {}


def _arguments(schema: Mapping[str, object], depth: int) -> Iterator[tuple[str, Mapping[str, object]]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, argument in properties.items():
        if not isinstance(argument, dict):
            continue
        yield name, argument
        if depth > 1:
            yield from _arguments(argument, depth - 1)
            items = argument.get("items")
            if isinstance(items, dict):
                yield from _arguments(items, depth - 1)
