"""`open_toolbox` as the faces `proxy` and `dynamic` share it."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.decisions import Answer, Decision, Open
from mcp_workbench.face.wording import error_result, no_such
from mcp_workbench.jsonrpc.messages import encode


class _OpenToolbox(Struct):
    toolbox_name: str


_decode: Final = Decoder(_OpenToolbox).decode


def open_toolbox_tool(catalog: Catalog, purpose: str) -> dict[str, object]:
    """The definition of `open_toolbox`."""
    return {
        "name": "open_toolbox",
        "title": "Open a toolbox",
        "description": f"{purpose} Toolboxes: {', '.join(catalog.toolboxes)}.",
        "inputSchema": {
            "type": "object",
            "properties": {"toolbox_name": {"type": "string", "description": "Name of the toolbox."}},
            "required": ["toolbox_name"],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
    }


def resolve_open(catalog: Catalog, arguments: Raw | None) -> Decision:
    """What to do with a call of `open_toolbox`."""
    try:
        toolbox = _decode(b"{}" if arguments is None else arguments).toolbox_name
    except (DecodeError, ValidationError, RecursionError) as error:
        return Answer(error_result(f'{error}; expected {{"toolbox_name": "<name>"}}'))
    if toolbox not in catalog.toolboxes:
        return Answer(error_result(no_such("toolbox", toolbox, catalog.toolboxes)))
    return Open(toolbox)


def opened_result(
    catalog: Catalog, toolbox: str, tools: list[Raw], failures: dict[str, WorkbenchError], changed: list[str]
) -> bytes:
    """The answer: what the toolbox offers now, and what it cannot offer and why. The same as structure and as text."""
    entries = catalog.toolboxes[toolbox]
    content: dict[str, object] = {
        "toolbox": toolbox,
        "description": catalog.config.toolboxes[toolbox].description,
        "tools": tools,
    }
    instructions = _server_instructions(entries, failures)
    if instructions:
        content["instructions"] = instructions
    content["unavailable"] = [
        {"server": server, "reason": error.message, "retry": error.hint or "call open_toolbox again to try once more"}
        for server, error in failures.items()
    ]
    if changed:
        content["changed"] = changed
    structured = encode(content)
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (
        encode(structured.decode()),
        structured,
        b',"isError":true' if len(failures) == len(entries) else b"",
    )


def _server_instructions(entries: dict[str, ServerEntry], failures: dict[str, WorkbenchError]) -> dict[str, str]:
    return {
        name: entry.offer.profile.instructions
        for name, entry in entries.items()
        if name not in failures and entry.offer is not None and entry.offer.profile.instructions
    }
