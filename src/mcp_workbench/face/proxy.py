"""The face `proxy`: exactly two tools, `open_toolbox` and `use_tool`. Nothing is ever registered.

The list of tools is the same bytes every time: prompt caches live on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.base import Face, Params
from mcp_workbench.face.decisions import Answer, Decision, Forward, Learn, Reject
from mcp_workbench.face.identifier import BadIdentifier, read_use_tool
from mcp_workbench.face.opening import open_toolbox_tool, opened_result, resolve_open
from mcp_workbench.face.view import View
from mcp_workbench.face.wording import error_result, no_such
from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, encode
from mcp_workbench.protocol.results import with_first_member

CALL: Final = b'"tools/call"'
_decode_string: Final = Decoder(str).decode


class ProxyFace(Face):
    """Two meta-tools in front of everything."""

    name = "proxy"
    tools_change = False

    def entries(self, view: View) -> list[ServerEntry]:
        """Toolboxes that have been opened, and those whose manifest is known."""
        return self.recalled(self.catalog.entries())

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """Prompts carry the three parts of a tool's identity."""
        return f"{entry.toolbox}/{entry.name}/{name}"

    def tools(self, view: View) -> Sequence[bytes]:
        """The two tools."""
        return self._two_tools

    @cached_property
    def _two_tools(self) -> list[bytes]:
        purpose = (
            "Open a toolbox and get its tools with their input schemas. Needed once per toolbox to learn what use_tool "
            "can call; opening again is harmless."
        )
        return [encode(open_toolbox_tool(self.catalog, purpose)), encode(_USE_TOOL)]

    def instructions(self, view: View) -> str:
        """How to call, and what there is."""
        lines = [
            "Tools are grouped in toolboxes. To use one:",
            '1. open_toolbox {"toolbox_name": "<toolbox>"} lists the tools of a toolbox with their input schemas.',
            '2. use_tool {"tool": {"toolbox": "<toolbox>", "server": "<source_server>", "tool": "<name>"}, '
            '"arguments": {…}} calls one of them.',
            "Servers start when they are needed.",
            "",
            *toolbox_lines(self.catalog),
        ]
        return "\n".join(lines)

    def announces(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        """The list of tools never changes. A changed toolbox is told with the next result instead."""
        if "tools" in kinds and entry.toolbox in view.opened:
            view.changed[entry.toolbox] = None
        return super().announces(view, entry, kinds)

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """One of the two tools, or none."""
        try:
            name = _decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if name == "use_tool":
            return self._use_tool(params, fresh)
        if name == "open_toolbox":
            return resolve_open(self.catalog, params.get("arguments"))
        return Reject(INVALID_PARAMS, no_such("tool", name, ["open_toolbox", "use_tool"]))

    def _use_tool(self, params: Params, fresh: bool) -> Decision:
        try:
            call = read_use_tool(params.get("arguments"))
        except BadIdentifier as error:
            return Answer(error_result(str(error)))
        wanted = call.tool
        servers = self.catalog.toolboxes.get(wanted.toolbox)
        if servers is None:
            return Answer(error_result(no_such("toolbox", wanted.toolbox, self.catalog.toolboxes)))
        entry = servers.get(wanted.server)
        if entry is None:
            where = f" in toolbox `{wanted.toolbox}`"
            return Answer(error_result(no_such("server", wanted.server, servers, where)))
        if entry.offer is None:
            self.recalled((entry,))
        if wanted.tool not in entry.tools:
            return _unknown_tool(entry, wanted.tool, fresh)
        return Forward(entry, wanted.tool, CALL, call_body(wanted.tool, call.arguments, params), True)

    def opened(self, view: View, toolbox: str, failures: dict[str, WorkbenchError]) -> bytes:
        """All tools with full schemas, each with where it is found."""
        view.opened[toolbox] = None
        view.changed.pop(toolbox, None)
        tools = [
            Raw(_located(tool, toolbox, entry.name))
            for entry in self.catalog.toolboxes[toolbox].values()
            if entry.name not in failures
            for tool in entry.tools.values()
        ]
        return opened_result(self.catalog, toolbox, tools, failures, _take_changed(view))


def call_body(tool: str, arguments: Raw | None, params: Params) -> bytes:
    """The params of a call under the tool's own name, still open; other members that the client sent stay."""
    body = b'{"name":' + encode(tool)
    if arguments is not None:
        body = b"".join((body, b',"arguments":', arguments))
    if len(params) <= 2:
        return body
    others = {key: value for key, value in params.items() if key not in ("name", "arguments")}
    return body + b"," + encode(others)[1:-1] if others else body


def toolbox_lines(catalog: Catalog) -> list[str]:
    """Every toolbox with its description and servers."""
    toolboxes = catalog.config.toolboxes.values()
    return [
        "Toolboxes:",
        *(f"- {each.name}: {each.description} (servers: {', '.join(each.servers)})" for each in toolboxes),
    ]


def _take_changed(view: View) -> list[str]:
    changed = list(view.changed)
    view.changed.clear()
    return changed


def _unknown_tool(entry: ServerEntry, tool: str, fresh: bool) -> Decision:
    # What is remembered may be out of date; only the server itself can say no.
    if not fresh and not entry.is_live:
        return Learn(entry)
    where = f" on server `{entry.name}` of toolbox `{entry.toolbox}`"
    if tool in entry.hidden:
        return Answer(error_result(f"tool `{tool}`{where} is excluded by `toolFilters` in the configuration"))
    return Answer(error_result(no_such("tool", tool, entry.tools, where)))


def _located(tool: Raw, toolbox: str, server: str) -> bytes:
    where = b'"toolbox_name":%b,"source_server":%b' % (encode(toolbox), encode(server))
    return with_first_member(bytes(tool), where)


_USE_TOOL: Final = {
    "name": "use_tool",
    "title": "Use a tool",
    "description": "Call a tool of a toolbox. `tool` names it by `toolbox`, `server` and `tool` as open_toolbox lists "
    "them; `arguments` follow that tool's input schema.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool": {
                "type": "object",
                "properties": {
                    "toolbox": {"type": "string", "description": "Name of the toolbox."},
                    "server": {"type": "string", "description": "`source_server` of the tool."},
                    "tool": {"type": "string", "description": "`name` of the tool."},
                },
                "required": ["toolbox", "server", "tool"],
            },
            "arguments": {"type": "object", "description": "Arguments of the tool."},
        },
        "required": ["tool"],
    },
}
