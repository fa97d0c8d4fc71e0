"""A tool: its toolbox and server, and its definition as the server sent it.

Owns reading the parts of a definition. Knows nothing about budgets or search.
"""

from __future__ import annotations

import msgspec

# What servers call the only member of the object that they put around a result that is none.
WRAPPERS = frozenset(("content", "result"))
_ABSENT_MEMBER = msgspec.Raw()
_NO_SCHEMA = msgspec.Raw(b'{"type":"object"}')


class Tool(msgspec.Struct, frozen=True):
    """`path` identifies it in `use_tool`; `definition` is the raw JSON from the server's `tools/list`."""

    path: str
    toolbox: str
    server: str
    name: str
    definition: bytes
    # Whether its signature ends with the type of its result.
    shows_result: bool = False


class _Returning(msgspec.Struct):
    output_schema: msgspec.Raw = msgspec.field(default=_ABSENT_MEMBER, name="outputSchema")


def output_schema(definition: bytes) -> object:
    """The schema of a tool's structured content; None if it says nothing about that."""
    if b'"outputSchema"' not in definition:
        return None
    try:
        raw = msgspec.json.decode(definition, type=_Returning).output_schema
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError):
        return None


class Parts(msgspec.Struct):
    """The parts of a definition that are shown. Everything else is not decoded."""

    title: str = ""
    description: str = ""
    input_schema: msgspec.Raw = msgspec.field(default=_NO_SCHEMA, name="inputSchema")
    # For example, whether it only reads or may delete, according to the server.
    annotations: msgspec.Raw = _ABSENT_MEMBER

    def schema(self) -> object:
        try:
            return msgspec.json.decode(self.input_schema)
        except (msgspec.DecodeError, RecursionError):
            return {}


class _Loose(msgspec.Struct):
    title: msgspec.Raw = _ABSENT_MEMBER
    description: msgspec.Raw = _ABSENT_MEMBER
    input_schema: msgspec.Raw = msgspec.field(default=_NO_SCHEMA, name="inputSchema")
    annotations: msgspec.Raw = _ABSENT_MEMBER


def parts(definition: bytes) -> Parts:
    """Read the parts of a definition. Members of the wrong type are ignored: a server's mistake must not hide its
    tools."""
    try:
        return msgspec.json.decode(definition, type=Parts)
    # Rare, so only then is each member looked at by itself.
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError):
        return Parts()
    try:
        loose = msgspec.json.decode(definition, type=_Loose)
    except (msgspec.DecodeError, RecursionError):
        return Parts()
    return Parts(_text(loose.title), _text(loose.description), loose.input_schema, loose.annotations)


def _text(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""
