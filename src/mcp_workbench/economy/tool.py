"""One tool as the shortening forms see it: whose it is, and its definition as the server sent it.

Owns the reading of a definition's parts. Refuses to know budgets and search.
"""

from __future__ import annotations

import msgspec

_ABSENT = msgspec.Raw()
_NO_SCHEMA = msgspec.Raw(b'{"type":"object"}')


class Tool(msgspec.Struct, frozen=True):
    """`path` is what `use_tool` takes for this tool; `definition` the raw JSON from the server's `tools/list`."""

    path: str
    toolbox: str
    server: str
    name: str
    definition: bytes


class Parts(msgspec.Struct):
    """What of a definition is shown. Everything else that a server sent is not decoded."""

    title: str = ""
    description: str = ""
    input_schema: msgspec.Raw = msgspec.field(default=_NO_SCHEMA, name="inputSchema")
    # What it deletes or only reads, by its own account.
    annotations: msgspec.Raw = _ABSENT

    def schema(self) -> object:
        try:
            return msgspec.json.decode(self.input_schema)
        except (msgspec.DecodeError, RecursionError):
            return {}


class _Loose(msgspec.Struct):
    title: msgspec.Raw = _ABSENT
    description: msgspec.Raw = _ABSENT
    input_schema: msgspec.Raw = msgspec.field(default=_NO_SCHEMA, name="inputSchema")
    annotations: msgspec.Raw = _ABSENT


def parts(definition: bytes) -> Parts:
    """The parts of a definition; what has the wrong type counts as absent, because servers are not ours to judge."""
    try:
        return msgspec.json.decode(definition, type=Parts)
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
