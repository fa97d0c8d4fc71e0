"""Edits of a JSON or JSONC text in place: set or remove one member, and keep every other character.

Owns where members begin and end, and the layout of new text: indentation, line breaks and trailing commas as in the
rest of the text. If an object has the same key twice, the last one counts, as for every JSON reader. Pure. The text has
to be valid (`jsonc.Document` without problems), which `parsed` ensures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from mcp_workbench.engine.config.jsonc import SPACE_AND_COMMENTS, Document
from mcp_workbench.engine.config.problems import ConfigProblems

_JSONC_COMMENT: Final = re.compile(r"//[^\n]*+|/\*(?s:.)*?\*/")
_LENIENT_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_SCALAR: Final = re.compile(r'[^\s,\]\}/"]++')
_REST_OF_LINE: Final = re.compile(r"[ \t]*+(?://[^\r\n]*+|/\*[^\r\n]*?\*/[ \t]*+)?(?=\r?\n)")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
BOM_CHARACTER: Final = "\ufeff"


class Member(Struct, frozen=True):
    """A `"key": value` of an object: the positions of both, and of the comma after it, if there is one."""

    key: str
    start: int
    value: int
    end: int
    comma: int | None


class Span(Struct, frozen=True):
    """An object in the text: its braces and its members."""

    start: int
    end: int
    members: list[Member]


def parsed(text: str, path: str) -> object:
    """Return the value of the text; an empty text is an empty object. Raises `ConfigProblems`, named after `path`."""
    text = text.removeprefix(BOM_CHARACTER)
    if not text.strip():
        return {}
    document = Document(text)
    if document.problems or not document.complete:
        raise ConfigProblems(path, document.problems)
    return document.value


def set_member(text: str, steps: Sequence[str], value: object) -> str:
    """Return the text with `value` at the path `steps`; missing objects on the way are created."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text.strip(BOM_CHARACTER + " \t\r\n"):
        text = f"{text[: text.startswith(BOM_CHARACTER)]}{{}}{newline}"
    unit = _indent_unit(text)
    place = _object_at(text, _start(text))
    depth = 0
    # Follow the objects that exist.
    while member := _member(place, steps[depth]):
        depth += 1
        # A value that is not an object, such as `null`, is replaced.
        if depth == len(steps) or text[member.value] != "{":
            written = _written(_nested(steps[depth:], value), unit, depth, newline)
            return text[: member.value] + written + text[member.end :]
        place = _object_at(text, member.value)
    return _inserted(text, place, steps[depth], _nested(steps[depth + 1 :], value), unit, depth, newline)


def remove_member(text: str, steps: Sequence[str]) -> str:
    """Return the text without the member at the path `steps`; the same text if there is none."""
    place = _object_at(text, _start(text)) if text.strip(BOM_CHARACTER + " \t\r\n") else None
    for step in steps[:-1]:
        member = _member(place, step) if place else None
        if member is None or text[member.value] != "{":
            return text
        place = _object_at(text, member.value)
    member = _member(place, steps[-1]) if place else None
    if member is None or place is None:
        return text
    index = place.members.index(member)
    before = place.members[index - 1] if index else None
    end = member.end if member.comma is None else member.comma + 1
    # A line that it had to itself is removed with it; a comment after it stays.
    start = member.start
    line = text.rfind("\n", 0, start) + 1
    rest = re.compile(r"[ \t]*(\r?\n)?").match(text, end)
    assert rest is not None
    if not text[line:start].strip() and rest[1]:
        start, end = line, rest.end()
    elif not text[line:start].strip() and line > place.start:
        if not _ends_comment(text, place.start + 1 if before is None else before.end, line):
            start = line - 1 - text[: line - 1].endswith("\r")
        end = rest.end() if text[rest.end() : rest.end() + 1] in "}" else end
    elif rest[1] is None and member.comma is not None:
        end = rest.end()
    if member.comma is None and before is not None and before.comma is not None:
        # It was the last one, so the comma before it would become a trailing comma.
        between = text[before.comma + 1 : start]
        return text[: before.comma] + (between if between.strip() or "\n" in between else "") + text[end:]
    return text[:start] + text[end:]


def _inserted(text: str, place: Span, name: str, value: object, unit: str, depth: int, newline: str) -> str:
    key = json.dumps(name, ensure_ascii=False)
    written = f"{key}: {_written(value, unit, depth + 1, newline)}"
    if not place.members:
        inner = text[place.start + 1 : place.end - 1]
        if inner.strip():
            # Only comments: the new member comes after them.
            end = place.start + 1 + len(inner.rstrip())
            return text[:end] + newline + unit * (depth + 1) + written + newline + unit * depth + text[place.end - 1 :]
        end = place.start + 1
        return text[:end] + newline + unit * (depth + 1) + written + newline + unit * depth + text[place.end - 1 :]
    last = place.members[-1]
    line = text.rfind("\n", 0, last.start) + 1
    comma = last.end if last.comma is None else last.comma + 1
    head = text[: last.end] + "," if last.comma is None else text[:comma]
    trailing = "" if last.comma is None else ","
    if line <= place.start or text[line : last.start].strip():
        # All on one line.
        return f"{head} {key}: {json.dumps(value, ensure_ascii=False)}{trailing}{text[comma:]}"
    margin = text[line : last.start]
    # The neighbours may be indented more than their depth requires: the new member is aligned with them.
    written = written.replace(newline + unit * (depth + 1), newline + margin)
    # A comment after the last member stays with it.
    rest = _REST_OF_LINE.match(text, comma)
    end = rest.end() if rest else comma
    return head + text[comma:end] + newline + margin + written + trailing + text[end:]


def _nested(steps: Sequence[str], value: object) -> object:
    for step in reversed(steps):
        value = {step: value}
    return value


def _written(value: object, unit: str, depth: int, newline: str) -> str:
    """Write objects on several lines and lists on one, as people write these files."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    margin = newline + unit * (depth + 1)
    members = [
        f"{json.dumps(key, ensure_ascii=False)}: {_written(inner, unit, depth + 1, newline)}"
        for key, inner in value.items()
    ]
    return "{" + margin + f",{margin}".join(members) + newline + unit * depth + "}"


def _indent_unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _start(text: str) -> int:
    return _skip(text, 1 if text.startswith(BOM_CHARACTER) else 0)


def _skip(text: str, position: int) -> int:
    match = SPACE_AND_COMMENTS.match(text, position)
    assert match is not None
    return match.end()


def _ends_comment(text: str, start: int, line: int) -> bool:
    """Whether the line break before `line` ends a comment, which would otherwise swallow what follows."""
    return any(
        each.end() == line - 1 for each in _JSONC_COMMENT.finditer(text, start, line) if each[0].startswith("//")
    )


def _member(place: Span | None, key: str) -> Member | None:
    return next((member for member in reversed(place.members) if member.key == key), None) if place else None


def _object_at(text: str, start: int) -> Span:
    members: list[Member] = []
    position = _skip(text, start + 1)
    while text[position] != "}":
        key = _LENIENT_STRING.match(text, position)
        assert key is not None
        value = _skip(text, _skip(text, key.end()) + 1)
        end = _value_end(text, value)
        after = _skip(text, end)
        comma = after if text[after] == "," else None
        # `strict=False`: a tab in a key is no reason to fail here, because `parsed` has checked the text.
        members.append(Member(json.loads(key[0], strict=False), position, value, end, comma))
        position = _skip(text, after + 1) if comma is not None else after
    return Span(start, position + 1, members)


def _value_end(text: str, position: int) -> int:
    if text[position] not in "{[":
        match = _LENIENT_STRING.match(text, position) or _SCALAR.match(text, position)
        assert match is not None
        return match.end()
    depth = 0
    while True:
        letter = text[position]
        if letter == '"':
            match = _LENIENT_STRING.match(text, position)
            assert match is not None
            position = match.end()
        elif letter in "{[":
            depth, position = depth + 1, position + 1
        elif letter in "}]":
            depth, position = depth - 1, position + 1
            if not depth:
                return position
        elif (after := _skip(text, position)) > position:
            position = after
        else:
            position += 1
