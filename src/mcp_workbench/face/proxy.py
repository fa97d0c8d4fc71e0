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
from mcp_workbench.catalog.names import Target
from mcp_workbench.economy.instructions import Box, instructions, names
from mcp_workbench.face.base import Face, Params, renamed
from mcp_workbench.face.checking import ArgumentChecker
from mcp_workbench.face.decisions import Answer, Decision, Forward, Learn, Open, Reject
from mcp_workbench.face.identifier import BadIdentifier, UseTool, read_use_tool
from mcp_workbench.face.opening import (
    Failures,
    definitions_result,
    found_result,
    index_result,
    named_entries,
    opened_result,
)
from mcp_workbench.face.paths import candidates, path_of
from mcp_workbench.face.request import DETAILS, BadRequest, OpenRequest, read_open_request
from mcp_workbench.face.results import PATH as RESULT_PATH
from mcp_workbench.face.results import SCHEME as RESULTS
from mcp_workbench.face.results import Results
from mcp_workbench.face.shelves import Shelves
from mcp_workbench.face.view import View
from mcp_workbench.face.wording import error_result, no_such
from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, encode

CALL: Final = b'"tools/call"'
_decode_string: Final = Decoder(str).decode


class ProxyFace(Face):
    """Two meta-tools in front of everything."""

    name = "proxy"
    tools_change = False

    def __init__(self, catalog: Catalog, shelves: Shelves) -> None:
        super().__init__(catalog)
        self.shelves = shelves
        self.tools_change = bool(catalog.config.pin)
        self._checker = ArgumentChecker()
        self.results = Results()

    def entries(self, view: View) -> list[ServerEntry]:
        """Toolboxes that have been opened, and those whose manifest is known."""
        return self.recalled(self.catalog.entries())

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """Prompts carry the three parts of a tool's identity."""
        return f"{entry.toolbox}/{entry.name}/{name}"

    def tools(self, view: View) -> Sequence[bytes]:
        """The two tools, and those that the user pinned."""
        return self.keep("tools", view, self._shown_tools) if self.catalog.config.pin else self._two_tools

    def awaited(self) -> list[ServerEntry]:
        """The servers of pinned tools."""
        return [entry for path in self.catalog.config.pin for entry, _ in list(candidates(self.catalog, path))[:1]]

    def _shown_tools(self) -> list[bytes]:
        pinned = self._pinned().items()
        return [*self._two_tools, *(renamed(target.definition, exposed) for exposed, target in pinned)]

    def _pinned(self) -> dict[str, Target]:
        """Pinned tools by the name they are shown under, as far as their servers are known."""
        found: dict[str, Target] = {}
        for path in self.catalog.config.pin:
            for entry, tool in candidates(self.catalog, path):
                if tool in entry.tools and entry.failure is None:
                    found[f"{entry.toolbox}__{entry.name}_{tool}"] = Target(entry, tool, entry.tools[tool])
                    break
            else:
                if all(entry.is_live for entry, _ in candidates(self.catalog, path)):
                    self.report(f"pinned tool `{path}` does not exist; correct `pin` in the configuration")
        return found

    @cached_property
    def _two_tools(self) -> list[bytes]:
        boxes = [Box(name) for name in self.catalog.toolboxes]
        return [encode(_open_toolbox_tool(names(boxes, room=ROOM_FOR_NAMES))), encode(_USE_TOOL)]

    def instructions(self, view: View) -> str:
        """How to call, and what there is."""
        return instructions(self.shelves.boxes())

    def take_note(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """The list of tools never changes. A changed toolbox is told with the next result instead."""
        if "tools" in kinds and entry.toolbox in view.opened:
            view.changed[entry.toolbox] = None

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """One of the two tools, or none."""
        try:
            name = _decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if name == "use_tool":
            return self._use_tool(view, params, fresh)
        if name == "open_toolbox":
            return self._open_toolbox(params.get("arguments"))
        pinned = self._pinned()
        if name in pinned:
            target = pinned[name]
            body = call_body(target.name, params.get("arguments"), params)
            return Forward(target.entry, target.name, CALL, body, True, target.entry.config.result_budget)
        return Reject(INVALID_PARAMS, no_such("tool", name, ["open_toolbox", "use_tool", *pinned]))

    def _open_toolbox(self, arguments: Raw | None) -> Decision:
        try:
            request = read_open_request(arguments)
        except BadRequest as error:
            return Answer(error_result(str(error)))
        name = request.toolbox_name
        if name is not None and name not in self.catalog.toolboxes:
            return Answer(error_result(no_such("toolbox", name, self.catalog.toolboxes)))
        if request.tools:
            entries = named_entries(self.catalog, request)
            return Open(tuple(entries), request, starts_known=False)
        if name is not None:
            return Open(tuple(self.catalog.toolboxes[name].values()), request)
        if request.query is not None:
            return Open(tuple(self.catalog.entries()), request, starts_known=False)
        return Answer(index_result(self.shelves.boxes()))

    def _use_tool(self, view: View, params: Params, fresh: bool) -> Decision:
        try:
            call = read_use_tool(params.get("arguments"))
            if call.tool == RESULT_PATH:
                return Answer(self.results.read_on(view, call.arguments))
            entry, tool = self._meant(call)
        except BadIdentifier as error:
            return Answer(error_result(str(error)))
        if tool not in entry.tools:
            return _unknown_tool(entry, tool, fresh)
        if self.catalog.config.check_arguments:
            complaint = self._checker.complaint(entry, tool, call.arguments)
            if complaint is not None:
                # What is remembered may be out of date; only what the server says now can stop a call.
                return Answer(error_result(complaint)) if fresh or entry.is_live else Learn(entry)
        budget = call.max_tokens or entry.config.result_budget
        return Forward(entry, tool, CALL, call_body(tool, call.arguments, params), True, budget)

    def _meant(self, call: UseTool) -> tuple[ServerEntry, str]:
        """The server and the tool that were named. Raises `BadIdentifier`."""
        wanted = call.tool
        if isinstance(wanted, str):
            self.recalled(self.catalog.entries())
            for entry, tool in candidates(self.catalog, wanted):
                return entry, tool
            known = [path_of(entry, tool) for entry in self.catalog.entries() for tool in entry.tools]
            raise BadIdentifier(no_such("tool", wanted, known))
        servers = self.catalog.toolboxes.get(wanted.toolbox)
        if servers is None:
            raise BadIdentifier(no_such("toolbox", wanted.toolbox, self.catalog.toolboxes))
        found = servers.get(wanted.server)
        if found is None:
            raise BadIdentifier(no_such("server", wanted.server, servers, f" in toolbox `{wanted.toolbox}`"))
        if found.offer is None:
            self.recalled((found,))
        return found, wanted.tool

    def shorten(self, view: View, decision: Forward, result: Raw) -> Raw | bytes:
        """Large results are kept, and answered with their head."""
        return self.results.shorten(view, result, decision.result_budget) if decision.result_budget else result

    def own_resource(self, view: View, uri: str) -> bytes | None:
        """Kept results."""
        return self.results.resource(view, uri) if uri.startswith(RESULTS) else None

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        """What was asked for: definitions, the best tools for a need, or a toolbox."""
        if request.tools:
            return definitions_result(self.catalog, request, failures)
        if request.query is not None:
            return found_result(self.catalog, self.shelves, request, failures)
        assert request.toolbox_name is not None
        view.opened[request.toolbox_name] = None
        view.changed.pop(request.toolbox_name, None)
        return opened_result(self.catalog, self.shelves, request, failures, _take_changed(view))


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


def _open_toolbox_tool(names: str) -> dict[str, object]:
    return {
        "name": "open_toolbox",
        "description": "Find tools: `query` for a need in words, `toolbox_name` for a toolbox, `tools` for whole "
        f"definitions. {names}",
        "inputSchema": {
            "type": "object",
            "properties": {
                "toolbox_name": {"type": "string"},
                "query": {"type": "string"},
                "tools": {"type": "array", "items": {"type": "string"}},
                "detail": {"enum": list(DETAILS)},
                "limit": {"type": "integer"},
                "cursor": {"type": "string"},
            },
        },
        "annotations": {"readOnlyHint": True},
        "_meta": ALWAYS_LOAD,
    }


# Claude Code puts tools behind a search of its own unless they carry this.
ALWAYS_LOAD: Final = {"anthropic/alwaysLoad": True}
# For the names of toolboxes in the description of `open_toolbox`: some clients ignore instructions.
ROOM_FOR_NAMES: Final = 400

_USE_TOOL: Final = {
    "name": "use_tool",
    "description": "Call a tool that open_toolbox shows: `toolbox/server/tool`, or an object of these three.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {
                            "toolbox": {"type": "string"},
                            "server": {"type": "string"},
                            "tool": {"type": "string"},
                        },
                        "required": ["toolbox", "server", "tool"],
                    },
                ]
            },
            "arguments": {"type": "object"},
            "max_tokens": {"type": "integer"},
        },
        "required": ["tool"],
    },
    "_meta": ALWAYS_LOAD,
}
