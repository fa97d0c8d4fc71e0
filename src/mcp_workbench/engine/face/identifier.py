"""Reads the arguments of `use_tool`. The canonical form is `{tool: {toolbox, server, tool}, arguments}`.

Models make mistakes whose meaning is clear, so these are accepted too: the full path as one string, fields next to
`arguments` instead of inside `tool`, arguments next to `arguments`, or `arguments` as a string of JSON. A part of the
identity that is missing is left empty, never made up: whoever knows what exists refuses the call.
"""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcp_workbench.engine.jsonrpc.messages import LargeObject, decode_object, encode

EXAMPLE_CALL: Final = '{"tool": {"toolbox": "…", "server": "…", "tool": "…"}, "arguments": {…}}'
IDENTIFIER_PARTS: Final = ("toolbox", "server", "tool")
# The address of large results, which `use_tool` can read in pieces.
RESULTS: Final = "workbench://results/"
NO_ARGUMENTS: Final = Raw(b"{}")
NO_CALLS: Final = Raw()
_OPENING_BRACE: Final = ord("{")
_EMPTY_BYTES: Final = len("{}")
# What is ours of the arguments: a tool and a number. To decode more takes the time of all other clients.
MAX_OWN_BYTES: Final = 64 * 1024
# Arguments that a model wrote as a string of JSON are decoded, too, and written again; so is a list of calls.
MAX_WRITTEN_BYTES: Final = 1024 * 1024
# The calls in one list. A longer one is better a program.
MAX_LISTED_CALLS: Final = 50
EXAMPLE_OF_CALLS: Final = '{"calls": [{"tool": …, "arguments": {…}}, …]}'


class ToolIdentifier(Struct, gc=False):
    """The three parts of a tool's identity; empty where missing."""

    toolbox: str = ""
    server: str = ""
    tool: str = ""


class UseTool(Struct, gc=False):
    """The arguments of `use_tool`. A tool is identified by its three parts, or by its path."""

    tool: ToolIdentifier | str = ""
    arguments: Raw = NO_ARGUMENTS
    # The token budget for the result of this call.
    max_tokens: int = 0
    # The part of the result to answer with: a JSON Pointer or JMESPath.
    select: str = ""
    # A list of calls, instead of a tool.
    calls: Raw = NO_CALLS
    # Set if a model wrote the parts of the identifier next to `arguments`.
    toolbox: str = ""
    server: str = ""


class BadIdentifier(Exception):
    """The arguments of `use_tool` are invalid; the message says why."""


_OWN: Final = frozenset(UseTool.__struct_fields__)
_decode_canonical: Final = Decoder(UseTool).decode


def read_use_tool(raw: Raw | None, members: dict[str, Raw] | None = None) -> UseTool:
    """Raises `BadIdentifier`. `members` are those of a large object that has been split already."""
    if raw is None and members is None:
        raise BadIdentifier(f"the arguments of use_tool must be an object: {EXAMPLE_CALL}")
    try:
        call = _decode_canonical(raw or b"{}") if members is None else _read_members(members)
    except (DecodeError, ValidationError, RecursionError):
        call = _read_tolerantly(raw) if members is None else _read_members_tolerantly(members)
    if call.calls:
        if bytes(call.calls) != b"null":
            return call
        call.calls = NO_CALLS
    # A string with anything beside it is the name of a tool, not a path.
    if isinstance(call.tool, str) and (call.toolbox or call.server or not call.tool):
        call.tool = ToolIdentifier(call.toolbox, call.server, call.tool)
    written = memoryview(call.arguments)
    # A string of JSON, or null. Looked at as bytes: what is an object stays as it was written.
    if written[0] != _OPENING_BRACE:
        call.arguments = _read_arguments(_decoded(call.arguments))
        written = memoryview(call.arguments)
    if len(written) == _EMPTY_BYTES:
        call.arguments = _beside(members if members is not None else {} if raw is None else decode_object(raw))
    if call.max_tokens < 0:
        raise BadIdentifier("`max_tokens` must be a number of tokens, 0 for no limit of its own")
    return call


def read_large_use_tool(members: LargeObject | None) -> UseTool:
    """The same for a large request, of which nothing large is decoded. Raises `BadIdentifier`."""
    if members is None:
        raise BadIdentifier(f"the arguments of use_tool must be an object: {EXAMPLE_CALL}")
    for name in _OWN - {"arguments"}:
        limit = MAX_WRITTEN_BYTES if name == "calls" else MAX_OWN_BYTES
        if members.size_of(name) > limit:
            raise BadIdentifier(f"`{name}` has {members.size_of(name)} bytes, more than the {limit} allowed")
    if members.size_of("arguments") > MAX_WRITTEN_BYTES and memoryview(members["arguments"])[0] != _OPENING_BRACE:
        raise BadIdentifier(f"`arguments` must be an object; expected {EXAMPLE_CALL}")
    return read_use_tool(None, members)


def _read_members(members: dict[str, Raw]) -> UseTool:
    call = _decode_canonical(_own(members))
    call.arguments = members.get("arguments", NO_ARGUMENTS)
    return call


def _read_members_tolerantly(members: dict[str, Raw]) -> UseTool:
    arguments = members.get("arguments", NO_ARGUMENTS)
    if memoryview(arguments)[0] != _OPENING_BRACE:
        arguments = _read_arguments(_decoded(arguments))
    call = _read_tolerantly(Raw(_own(members)))
    call.arguments = arguments
    return call


def _own(members: dict[str, Raw]) -> bytes:
    return encode({name: value for name, value in members.items() if name in _OWN and name != "arguments"})


def _read_tolerantly(raw: Raw | None) -> UseTool:
    try:
        given = None if raw is None else decode(raw)
    except (DecodeError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadIdentifier(f"the arguments of use_tool must be an object: {EXAMPLE_CALL}")
    identity = given.get("tool")
    if not isinstance(identity, dict):
        identity = given
    toolbox, server, tool = (part if isinstance(part := identity.get(field), str) else "" for field in IDENTIFIER_PARTS)
    tokens, selected, calls = given.get("max_tokens"), given.get("select"), given.get("calls")
    if selected is not None and not isinstance(selected, str):
        raise BadIdentifier("`select` must be a string: a JSON Pointer or JMESPath")
    return UseTool(
        ToolIdentifier(toolbox, server, tool) if identity is not given or toolbox or server else tool,
        _read_arguments(given.get("arguments")),
        tokens if isinstance(tokens, int) else 0,
        selected or "",
        NO_CALLS if calls is None else Raw(encode(calls)),
    )


def read_calls(call: UseTool) -> tuple[Raw, ...]:
    """The calls of a list, each with the arguments of a `use_tool` of its own. Raises `BadIdentifier`, so that of a bad
    list nothing is called."""
    has_tool = call.tool and call.tool != ToolIdentifier()
    if has_tool or call.toolbox or call.server or len(memoryview(call.arguments)) > _EMPTY_BYTES:
        raise BadIdentifier(f"`calls` replaces `tool` and `arguments`: {EXAMPLE_OF_CALLS}")
    if call.max_tokens < 0:
        raise BadIdentifier("`max_tokens` must be a number of tokens, 0 for no limit of its own")
    listed = call.calls
    try:
        if bytes(memoryview(listed)[:1]) == b'"':
            # A string of JSON.
            listed = Raw(decode(listed, type=str).encode())
        calls = decode(listed, type=list[Raw])
    except (DecodeError, ValidationError, RecursionError):
        raise BadIdentifier(f"`calls` must be an array: {EXAMPLE_OF_CALLS}") from None
    if not 1 <= len(calls) <= MAX_LISTED_CALLS:
        raise BadIdentifier(
            f"`calls` has {len(calls)} members; 1 to {MAX_LISTED_CALLS} are allowed, nothing was called"
        )
    for number, each in enumerate(calls):
        try:
            _check_listed(each)
        except BadIdentifier as error:
            raise BadIdentifier(f"`calls[{number}]`: {error}; nothing was called") from None
    return tuple(Raw(bytes(each)) for each in calls)


def _check_listed(call: Raw) -> None:
    read = read_use_tool(call)
    if read.calls:
        raise BadIdentifier("a list of calls cannot contain another")
    if read.select or read.max_tokens:
        raise BadIdentifier("`select` and `max_tokens` belong next to `calls`, for all of them at once")
    if not read.tool or read.tool == ToolIdentifier():
        raise BadIdentifier(f"`tool` is missing; expected {EXAMPLE_CALL}")


def _beside(members: dict[str, Raw]) -> Raw:
    """The arguments that a model put next to `arguments` instead of inside, unchanged."""
    # Members that begin like `_meta` are the protocol's.
    return Raw(encode({name: value for name, value in members.items() if name not in _OWN and name[:1] != "_"}))


def _decoded(arguments: Raw) -> object:
    try:
        return decode(arguments)
    except (DecodeError, ValidationError, RecursionError):
        # For example a number that is too long.
        raise BadIdentifier(f"`arguments` must be an object; expected {EXAMPLE_CALL}") from None


def _read_arguments(value: object) -> Raw:
    if isinstance(value, str):
        try:
            value = decode(value)
        except (DecodeError, RecursionError):
            raise BadIdentifier(f"`arguments` must be an object, found a string; expected {EXAMPLE_CALL}") from None
    if value is None:
        return NO_ARGUMENTS
    if not isinstance(value, dict):
        raise BadIdentifier(f"`arguments` must be an object, found {type(value).__name__}; expected {EXAMPLE_CALL}")
    return Raw(encode(value))
