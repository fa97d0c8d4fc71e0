"""The client's own name for an item that no server is known to have. For the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import LargeObject


class WantedItem(NamedTuple):
    """An item that does not exist, or not for this client."""

    toolbox: str = ""
    server: str = ""
    item: str = ""


class _WantedTool(Struct):
    toolbox: str = ""
    server: str = ""
    tool: str = ""


class _WantedArguments(Struct):
    tool: str | _WantedTool = ""
    toolbox_name: str = ""


class _WantedReference(Struct):
    name: str = ""
    uri: str = ""


# Prefixes of our own tools that lead to others.
_USE: Final = "use_tool"
OPEN: Final = "open_toolbox"
_read_text: Final = Decoder(str).decode
_read_arguments: Final = Decoder(_WantedArguments).decode
_read_reference: Final = Decoder(_WantedReference).decode


def wanted_item(method: str, params: Mapping[str, Raw]) -> WantedItem:
    """Read it from the params of a request; empty if they cannot be read."""
    try:
        if method == "completion/complete":
            reference = _read_reference(params["ref"])
            return WantedItem(item=reference.name or reference.uri)
        member = next((each for each in ("name", "uri", "taskId") if each in params), None)
        item = "" if member is None else _read_text(params[member])
    except (KeyError, DecodeError, ValidationError):
        return WantedItem()
    # Of a large request, no more is decoded than a name.
    if method != "tools/call" or not item.startswith((_USE, OPEN)) or type(params) is LargeObject:
        return WantedItem(item=item)
    try:
        arguments = _read_arguments(params["arguments"])
    except (KeyError, DecodeError, ValidationError):
        return WantedItem(item=item)
    if item == OPEN:
        return WantedItem(arguments.toolbox_name, item=item)
    wanted = arguments.tool
    if isinstance(wanted, _WantedTool):
        return WantedItem(wanted.toolbox, wanted.server, wanted.tool)
    # Split at the first slashes, unlike when a tool is looked up, because there are no known names to compare with.
    toolbox, _, rest = wanted.partition("/")
    server, slash, tool = rest.partition("/")
    return WantedItem(toolbox, server, tool) if slash else WantedItem(item=wanted or item)
