"""The face `proxy`: exactly two tools, `open_toolbox` and `use_tool`. Nothing is ever registered.

The list of tools is the same bytes every time: prompt caches live on it.
"""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.catalog import Catalog, ServerEntry
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.decisions import Answer, Decision, Forward, Learn, Open, Reject
from mcp_workbench.face.identifier import BadIdentifier, read_use_tool
from mcp_workbench.face.wording import error_result, no_such
from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, encode
from mcp_workbench.protocol.results import with_first_member

CALL: Final = b'"tools/call"'


class _OpenToolbox(Struct):
    toolbox_name: str


_decode_open: Final = Decoder(_OpenToolbox).decode


class ProxyFace:
    """Two meta-tools in front of everything."""

    name = "proxy"

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def tools(self) -> list[dict[str, object]]:
        """The definitions of the two tools."""
        names = ", ".join(self._catalog.toolboxes)
        toolbox_name: dict[str, object] = {"type": "string", "description": "Name of the toolbox."}
        identity = {
            part: {"type": "string", "description": description}
            for part, description in (
                ("toolbox", "Name of the toolbox."),
                ("server", "`source_server` of the tool."),
                ("tool", "`name` of the tool."),
            )
        }
        return [
            {
                "name": "open_toolbox",
                "title": "Open a toolbox",
                "description": "Open a toolbox and get its tools with their input schemas. Needed once per toolbox to "
                f"learn what use_tool can call; opening again is harmless. Toolboxes: {names}.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"toolbox_name": toolbox_name},
                    "required": ["toolbox_name"],
                },
                "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
            },
            {
                "name": "use_tool",
                "title": "Use a tool",
                "description": "Call a tool of a toolbox. `tool` names it by `toolbox`, `server` and `tool` as "
                "open_toolbox lists them; `arguments` follow that tool's input schema.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "tool": {
                            "type": "object",
                            "properties": identity,
                            "required": ["toolbox", "server", "tool"],
                        },
                        "arguments": {"type": "object", "description": "Arguments of the tool."},
                    },
                    "required": ["tool"],
                },
            },
        ]

    def instructions(self) -> str:
        """What an agent has to know first: how to call, and what there is."""
        lines = [
            "Tools are grouped in toolboxes. To use one:",
            '1. open_toolbox {"toolbox_name": "<toolbox>"} lists the tools of a toolbox with their input schemas.',
            '2. use_tool {"tool": {"toolbox": "<toolbox>", "server": "<source_server>", "tool": "<name>"}, '
            '"arguments": {…}} calls one of them.',
            "Servers start when they are needed.",
            "",
            "Toolboxes:",
        ]
        for toolbox in self._catalog.config.toolboxes.values():
            lines.append(f"- {toolbox.name}: {toolbox.description} (servers: {', '.join(toolbox.servers)})")
        return "\n".join(lines)

    def resolve(self, name: str, arguments: Raw | None, extras: dict[str, Raw], *, fresh: bool = False) -> Decision:
        """What to do with a `tools/call`. `fresh`: the server in question has just said what it offers."""
        if name == "use_tool":
            return self._use_tool(arguments, extras, fresh)
        if name == "open_toolbox":
            return self._open_toolbox(arguments)
        return Reject(INVALID_PARAMS, no_such("tool", name, ["open_toolbox", "use_tool"]))

    def _open_toolbox(self, arguments: Raw | None) -> Decision:
        try:
            toolbox = _decode_open(b"{}" if arguments is None else arguments).toolbox_name
        except (DecodeError, ValidationError, RecursionError) as error:
            return Answer(error_result(f'{error}; expected {{"toolbox_name": "<name>"}}'))
        if toolbox not in self._catalog.toolboxes:
            return Answer(error_result(no_such("toolbox", toolbox, self._catalog.toolboxes)))
        return Open(toolbox)

    def _use_tool(self, arguments: Raw | None, extras: dict[str, Raw], fresh: bool) -> Decision:
        try:
            call = read_use_tool(arguments)
        except BadIdentifier as error:
            return Answer(error_result(str(error)))
        wanted = call.tool
        servers = self._catalog.toolboxes.get(wanted.toolbox)
        if servers is None:
            return Answer(error_result(no_such("toolbox", wanted.toolbox, self._catalog.toolboxes)))
        entry = servers.get(wanted.server)
        if entry is None:
            where = f" in toolbox `{wanted.toolbox}`"
            return Answer(error_result(no_such("server", wanted.server, servers, where)))
        if wanted.tool not in entry.tools and wanted.tool not in _remembered(entry):
            return self._unknown_tool(entry, wanted.tool, fresh)
        return Forward(entry, wanted.tool, CALL, call_body(wanted.tool, call.arguments, extras))

    def _unknown_tool(self, entry: ServerEntry, tool: str, fresh: bool) -> Decision:
        # What is remembered may be out of date; only the server itself can say no.
        if not fresh and not entry.is_live:
            return Learn(entry)
        where = f" on server `{entry.name}` of toolbox `{entry.toolbox}`"
        if tool in entry.hidden:
            return Answer(error_result(f"tool `{tool}`{where} is excluded by `toolFilters` in the configuration"))
        return Answer(error_result(no_such("tool", tool, entry.tools, where)))

    def opened(self, toolbox: str, failures: dict[str, WorkbenchError]) -> bytes:
        """The result of `open_toolbox`: all tools with full schemas, and what is not available."""
        entries = self._catalog.toolboxes[toolbox]
        config = self._catalog.config.toolboxes[toolbox]
        tools = [
            Raw(_located(tool, toolbox, entry.name))
            for entry in entries.values()
            if entry.name not in failures
            for tool in entry.tools.values()
        ]
        content: dict[str, object] = {"toolbox": toolbox, "description": config.description, "tools": tools}
        instructions = _server_instructions(entries, failures)
        if instructions:
            content["instructions"] = instructions
        content["unavailable"] = [
            {
                "server": server,
                "reason": error.message,
                "retry": error.hint or "call open_toolbox again to try once more",
            }
            for server, error in failures.items()
        ]
        structured = encode(content)
        return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (
            encode(structured.decode()),
            structured,
            b',"isError":true' if len(failures) == len(entries) else b"",
        )


def call_body(tool: str, arguments: Raw, extras: dict[str, Raw]) -> bytes:
    """The params of a call under the tool's own name, still open. `extras` are other members the client sent."""
    body = b'{"name":%b,"arguments":%b' % (encode(tool), bytes(arguments))
    return body if not extras else body + b"," + encode(extras)[1:-1]


def _remembered(entry: ServerEntry) -> dict[str, Raw]:
    entry.recall()
    return entry.tools


def _located(tool: Raw, toolbox: str, server: str) -> bytes:
    where = b'"toolbox_name":%b,"source_server":%b' % (encode(toolbox), encode(server))
    return with_first_member(bytes(tool), where)


def _server_instructions(entries: dict[str, ServerEntry], failures: dict[str, WorkbenchError]) -> dict[str, str]:
    return {
        name: entry.offer.profile.instructions
        for name, entry in entries.items()
        if name not in failures and entry.offer is not None and entry.offer.profile.instructions
    }
