"""The face `proxy`: exactly two tools, `open_toolbox` and `use_tool`. Nothing is ever registered.

The list of tools is the same bytes every time: prompt caches live on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import decode

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.model import DEFAULT_RESULT_BUDGET
from mcp_workbench.engine.economy.instructions import HOW_IN_SHORT, HOW_TO_USE_TOOLS, Box, instructions, names
from mcp_workbench.engine.face.base import Face, FaceSettings, Params, available, not_found, string_of
from mcp_workbench.engine.face.decisions import (
    Answer,
    CallEach,
    Decision,
    Forward,
    Learn,
    Load,
    Open,
    Reject,
    RunProgram,
    withheld,
)
from mcp_workbench.engine.face.identifier import (
    NO_ARGUMENTS,
    RESULTS,
    BadIdentifier,
    ToolIdentifier,
    UseTool,
    read_calls,
    read_large_use_tool,
    read_use_tool,
)
from mcp_workbench.engine.face.open_request import BadRequest, OpenRequest, read_open_request
from mcp_workbench.engine.face.paths import ToolPlace, named
from mcp_workbench.engine.face.pins import ALWAYS_LOAD, Pins
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import REVIEW, error_result, no_such
from mcp_workbench.engine.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Body,
    LargeObject,
    decode_string,
    encode,
    open_object,
)
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.face.app_tools import AppTools
    from mcp_workbench.engine.face.argument_check import ArgumentChecker
    from mcp_workbench.engine.face.kept_results import KeptResults, Shortening
    from mcp_workbench.engine.face.opening import Failures
    from mcp_workbench.engine.face.use import ViewUse

# What the two tools take together, written without spaces: below 300 tokens, by bytes as by tokenizers. What is left
# of it goes to the names of toolboxes in the description of `open_toolbox`, for clients that ignore instructions.
MAX_BYTES_OF_TWO_TOOLS: Final = 1_140
# The budget of a result of which a part is wanted, but whose length is not limited.
NO_LIMIT: Final = 1 << 40


class ProxyFace(Face):
    """Two meta-tools in front of everything."""

    name = "proxy"
    names_failed_tools = True
    tools_follow_servers = False
    relays_announcements = False
    opens_in_thread = True
    # What instructions begin with.
    how = HOW_TO_USE_TOOLS
    how_in_short = HOW_IN_SHORT
    most_bytes = MAX_BYTES_OF_TWO_TOOLS

    def __init__(self, catalog: Catalog, settings: FaceSettings, tool_index: ToolIndex) -> None:
        super().__init__(catalog, settings)
        self.tool_index: ToolIndex = tool_index
        self._own_tools_differ = False
        self._pins = Pins(catalog, lambda: self.settings.pin, self.report)
        self.tools_follow_servers = bool(self._pins)

    @cached_property
    def _checker(self) -> ArgumentChecker:
        # Loaded with the first call: starting does not need it.
        from mcp_workbench.engine.face.argument_check import ArgumentChecker

        return ArgumentChecker()

    @cached_property
    def _apps(self) -> AppTools:
        # Loaded with the first client that shows user interfaces of tools.
        from mcp_workbench.engine.face.app_tools import AppTools

        return AppTools(self.catalog)

    @cached_property
    def results(self) -> KeptResults:
        """Results that were too large."""
        from mcp_workbench.engine.face.kept_results import KeptResults

        return KeptResults(self.settings.state)

    def kept_results(self) -> KeptResults:
        return self.results

    def share_state_of(self, whole: Face) -> None:
        super().share_state_of(whole)
        results = whole.kept_results()
        if results is not None:
            self.results = results

    def on_replaced(self, plan: Plan) -> None:
        """The names of toolboxes may be others."""
        super().on_replaced(plan)
        shown = self.__dict__.pop("two_tools", None)
        self._own_tools_differ = shown is not None and shown != self.two_tools
        self.tools_follow_servers = bool(self._pins)

    def entries(self, view: View) -> list[ServerEntry]:
        """Toolboxes that have been opened, and those whose manifest is known."""
        return available(self.catalog.entries())

    def needed(self, view: View, kind: str) -> Iterable[ServerEntry]:
        """Of the tools only those that are pinned are listed."""
        return self._pins.servers() if kind == "tools" else self.catalog.entries()

    def exposed(self, entry: ServerEntry, name: str) -> str:
        """Prompts carry the three parts of a tool's identity."""
        return f"{entry.toolbox}/{entry.name}/{name}"

    def tools(self, view: View) -> Sequence[bytes]:
        """The two tools, and those that the user pinned."""
        return [*self.two_tools, *self._pins.definitions()] if self._pins else self.two_tools

    def app_tools(self, view: View) -> Sequence[bytes]:
        """Those with a user interface. No server is started for them: they are listed once they are known."""
        return self._apps.definitions(self._pins.targets() if self._pins else ())

    def awaited(self, view: View) -> list[ServerEntry]:
        """The servers of pinned tools that have not been listed yet. The others are not started for a list."""
        return self._pins.not_listed()

    def listed(self, view: View, kind: str) -> list[ServerEntry]:
        """Of the tools only those that are pinned are listed."""
        return self._pins.servers() if kind == "tools" else super().listed(view, kind)

    def definition_of(self, tool: str) -> Raw | None:
        target = self._pins.targets().get(tool) if self._pins else None
        return None if target is None else target.definition

    @cached_property
    def two_tools(self) -> list[bytes]:
        """The definitions of `open_toolbox` and `use_tool`."""
        # Kept as bytes: the prompt caches of clients depend on them staying the same.
        boxes = [Box(name) for name in self.catalog.toolboxes]
        use_tools = self.use_tools()
        room = self.most_bytes - sum(map(len, use_tools)) - len(encode(_open_toolbox_tool("")))
        # What JSON escapes takes more room than it has characters.
        assert room > 0
        while len(written := encode(named := names(boxes, room=room))) - 2 > room:
            room -= max(len(written) - 2 - len(named.encode()), 1)
        programs = [encode(_RUN_PROGRAM)] if self.settings.programs else []
        return [encode(_open_toolbox_tool(named)), *use_tools, *programs]

    def use_tools(self) -> list[bytes]:
        """The definitions of the tools for making calls."""
        return [encode(_USE_TOOL_DEFINITION)]

    def own_names(self) -> list[str]:
        return ["open_toolbox", "use_tool", *(["run_program"] if self.settings.programs else ())]

    def instructions(self, view: View) -> str:
        """How to call tools, and which toolboxes there are."""
        boxes = self.tool_index.boxes()
        return self.within_room(
            view, lambda most: instructions(boxes, most=most, how=self.how, how_in_short=self.how_in_short)
        )

    def announces(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        """Of the tools only those that are pinned are listed."""
        changed = super().announces(view, entry, kinds)
        if "tools" not in changed or entry in self._pins.servers():
            return changed
        return changed if view.shows_apps and self._apps.concern(entry) else changed - {"tools"}

    def take_note(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """The list of tools never changes. A changed toolbox is announced with the next result instead."""
        if "tools" not in kinds or entry.toolbox not in view.opened:
            return
        is_back = entry.failure is None and entry in view.missing
        if is_back:
            view.missing.discard(entry)
        if is_back or entry.tools_differ:
            # A new toolbox stays new.
            view.changed.setdefault(entry.toolbox, "changed")

    def announces_toolboxes(self, plan: Plan) -> frozenset[str]:
        """The descriptions of the two tools name as many toolboxes as fit; pins are settings."""
        return frozenset({"tools"} if self._own_tools_differ or "pin" in plan.difference.settings else ())

    def take_note_of_toolboxes(self, view: View, added: Iterable[str], removed: Iterable[str]) -> None:
        """Announced with the next result, because most clients read tools and instructions only once."""
        for name in removed:
            view.changed[name] = "removed"
        for name in added:
            view.changed[name] = "new"

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        """Handle one of the two tools, a pinned one, or one that an app calls."""
        try:
            name = decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if name == "use_tool":
            return self._use_tool(view, params, fresh)
        if name == "open_toolbox":
            return self._open_toolbox(view, params, fresh)
        if name == "run_program" and self.settings.programs:
            return _run_program(params)
        return self._use_pinned(view, name, params, fresh)

    def _load_first(self, entries: Iterable[ServerEntry], view: View, params: Params, fresh: bool) -> Load | None:
        """If the manifests of these servers have not been read, read them and decide again."""
        unread = self.catalog.unread(entries)
        return Load(tuple(unread), partial(self.resolve_tool, view, params, fresh=fresh)) if unread else None

    def _use_pinned(self, view: View, name: str, params: Params, fresh: bool) -> Decision:
        pinned = self._pins.targets()
        if name not in pinned and self._pins:
            # The client may know the name from an earlier connection.
            if load := self._load_first(self._pins.servers(), view, params, fresh):
                return load
            not_listed = self._pins.not_listed()
            if not_listed and not fresh:
                return Learn(not_listed[0], tuple(not_listed[1:]), name)
        target = pinned.get(name)
        if target is None:
            if load := self._load_first(self.catalog.entries(), view, params, fresh):
                return load
            app = self._apps.find(name)
            if isinstance(app, Reject):
                return app
            if app is None:
                return Reject(INVALID_PARAMS, no_such("tool", name, [*self.own_names(), *pinned]))
            target = app
        # Without a default: clients that know the schema of its result need all of it.
        budget = target.entry.config.result_budget or 0
        return self._call(target.entry, target.name, params.get("arguments"), budget, params, fresh)

    def _open_toolbox(self, view: View, params: Params, fresh: bool) -> Decision:
        try:
            request = read_open_request(params.get("arguments"))
        except BadRequest as error:
            return Answer(error_result(str(error)))
        name = request.toolbox_name
        if name is not None and name not in self.catalog.toolboxes:
            return self.no_such_toolbox(name)
        if request.tools:
            from mcp_workbench.engine.face.toolbox_search import concerned, named_entries

            if load := self._load_first(concerned(self.catalog, request), view, params, fresh):
                return load
            return Open(tuple(named_entries(self.catalog, request)), request, starts_known=False)
        if name is not None:
            return Open(tuple(self.catalog.toolboxes[name].values()), request)
        if request.query is not None:
            return Open(tuple(self.catalog.entries()), request, starts_known=False)
        from mcp_workbench.engine.face.opening import budget_of, index_result, why_not

        broken = {
            name: why for name, box in self.catalog.toolboxes.items() if (why := why_not(box.values())) is not None
        }
        budget = budget_of(self.catalog, request)
        return Answer(index_result(self.tool_index.boxes(), budget, request.cursor, broken, self.notice))

    def _use_tool(self, view: View, params: Params, fresh: bool) -> Decision:
        try:
            if type(params) is not LargeObject:
                call = read_use_tool(params.get("arguments"))
            else:
                call = read_large_use_tool(params.members_of("arguments"))
            if call.calls or call.select:
                _check_select(call)
                if call.calls:
                    return self._call_each(call)
            wanted = call.tool
            if isinstance(wanted, str):
                if wanted.startswith(RESULTS):
                    return self.results.read_on(view, wanted, call)
                places = named(self.catalog, wanted)
                if len(places) != 1:
                    return self._refuse_identity(wanted, places, view, params, fresh)
                entry, tool = places[0]
            elif not (wanted.toolbox and wanted.server and wanted.tool):
                return self._refuse_identity(wanted, (), view, params, fresh)
            else:
                servers = self.catalog.toolboxes.get(wanted.toolbox)
                if servers is None:
                    return self.no_such_toolbox(wanted.toolbox)
                if wanted.server not in servers:
                    where = f" in toolbox `{wanted.toolbox}`"
                    raise BadIdentifier(no_such("server", wanted.server, servers, where))
                entry, tool = servers[wanted.server], wanted.tool
        except BadIdentifier as error:
            return Answer(error_result(str(error)))
        if tool not in entry.tools:
            return self._load_first((entry,), view, params, fresh) or _unknown_tool(entry, tool, fresh)
        # As `_budget_of`, inlined because it is on the path of every call.
        own = entry.config.result_budget
        budget = call.max_tokens or (DEFAULT_RESULT_BUDGET if own is None else own) or (NO_LIMIT if call.select else 0)
        return self._call(entry, tool, call.arguments, budget, params, fresh, call.select)

    def _call_each(self, call: UseTool) -> CallEach:
        """Raises `BadIdentifier`."""
        calls = read_calls(call)
        servers = tuple(map(self._server_of, calls))
        # Of all servers that are called, the one whose results may be longest.
        budgets = {_budget_of(entry) or NO_LIMIT for entry in servers if entry is not None}
        budget = call.max_tokens or max(budgets, default=DEFAULT_RESULT_BUDGET)
        return CallEach(calls, servers, call.select, budget)

    def _server_of(self, call: Raw) -> ServerEntry | None:
        """The server that a call of a list is for, if it names one."""
        wanted = read_use_tool(call).tool
        if isinstance(wanted, str):
            places = named(self.catalog, wanted)
            return places[0][0] if len(places) == 1 else None
        return self.catalog.toolboxes.get(wanted.toolbox, {}).get(wanted.server)

    def _refuse_identity(
        self, wanted: ToolIdentifier | str, places: Sequence[ToolPlace], view: View, params: Params, fresh: bool
    ) -> Decision:
        """Refuse a call that does not name one tool. The manifests are only read to suggest full paths."""
        # Only a mistake needs it.
        from mcp_workbench.engine.face.suggestions import about_parts, about_path, about_slashes

        if isinstance(wanted, str) and places:
            return Answer(error_result(about_slashes(wanted, places)))
        if load := self._load_first(self.catalog.entries(), view, params, fresh):
            return load
        if isinstance(wanted, str):
            text = about_path(self.catalog, wanted)
        else:
            text = about_parts(self.catalog, (wanted.toolbox, wanted.server, wanted.tool))
        return Answer(error_result(text))

    def _call(
        self,
        entry: ServerEntry,
        tool: str,
        arguments: Raw | None,
        budget: int,
        params: Params,
        fresh: bool,
        select: str = "",
    ) -> Decision:
        if self.settings.check_arguments:
            complaint = self._checker.complaint(entry, tool, NO_ARGUMENTS if arguments is None else arguments)
            if complaint is not None:
                # The cached schema may be out of date; only a current one may reject a call.
                return Answer(error_result(complaint)) if fresh or entry.is_live else Learn(entry, item=tool)
        return Forward(entry, tool, TOOLS_CALL, call_body(tool, arguments, params), True, budget, select)

    def shortening(self, view: View, decision: Forward, result: Raw, client_info: bytes) -> Shortening | None:
        """Keep large results, and return their start, or the part that was asked for."""
        origin = decision.entry.toolbox, decision.entry.name, decision.item
        reads = self.recognise(client_info).structured
        return self.results.shortening(view, result, decision.result_budget, (origin,), decision.select, reads)

    def resource_owner(self, view: View, params: Params, client: Revision) -> tuple[ServerEntry, str] | Reject:
        """Requests for results that are no longer kept never go to a server."""
        found = super().resource_owner(view, params, client)
        if isinstance(found, Reject) or not found[1].startswith(RESULTS):
            return found
        return not_found(found[1], client)

    def resolve_resource(self, view: View, params: Params, client: Revision) -> Decision:
        """A result that is not kept here may be kept by another instance."""
        decision = super().resolve_resource(view, params, client)
        if not self.settings.state.is_shared:
            return decision
        uri = string_of(params, "uri") or ""
        recall = self.results.recall_of(view, uri) if uri.startswith(RESULTS) else None
        if recall is None:
            return decision

        def decide() -> Decision:
            result = self.results.resource(view, uri)
            if result is None and self.results.is_in_doubt:
                what = f"`{uri[:100]}` cannot be looked up now, because the cluster's state is away; try again later"
                return Reject(INTERNAL_ERROR, what)
            return decision if result is None else Answer(result)

        return Load((), decide, recall)

    def own_resource(self, view: View, uri: str) -> bytes | None:
        return self.results.resource(view, uri) if uri.startswith(RESULTS) else None

    def preparation(
        self, view: View, request: OpenRequest, failures: Failures
    ) -> Callable[[], Sequence[ServerEntry]] | None:
        """For a search, the index, and the servers of what is found."""
        if request.query is None or request.tools:
            return None
        if self.tool_index.is_indexed and not self.catalog.unread(self.catalog.entries()):
            return None
        from mcp_workbench.engine.face.toolbox_search import unread

        find = partial(unread, self.catalog, self.tool_index, request, failures, self._use_of(view))
        return partial(self.tool_index.prepare, find)

    def _use_of(self, view: View) -> ViewUse | None:
        if view.use is None and self.settings.use is not None:
            # Nobody searches before the first answer.
            from mcp_workbench.engine.face.use import ViewUse

            view.use = ViewUse(self.settings.use(), view.principal)
        return view.use

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        """The requested definitions, the best tools for a query, or a toolbox."""
        use = self._use_of(view)
        if request.tools or request.query is not None:
            from mcp_workbench.engine.face.toolbox_search import definitions_result, found_result

            if request.tools:
                return definitions_result(self.catalog, request, failures)
            return found_result(self.catalog, self.tool_index, request, failures, use)
        assert request.toolbox_name is not None
        view.opened[request.toolbox_name] = None
        view.changed.pop(request.toolbox_name, None)
        shown = self.catalog.toolboxes[request.toolbox_name].values()
        view.missing.difference_update(shown)
        # The agent is notified when one of these works again, because it has not seen what they offer.
        view.missing.update(entry for entry in shown if entry.failure is not None)
        # Nobody opens a toolbox before the first answer.
        from mcp_workbench.engine.face.opening import opened_result

        return opened_result(self.catalog, self.tool_index, request, failures, _take_changed(view))


def _check_select(call: UseTool) -> None:
    """Refuse what can never select anything before something is called. Raises `BadIdentifier`."""
    from mcp_workbench.engine.economy.select import BadExpression, check_expression

    try:
        check_expression(call.select)
    except BadExpression as error:
        raise BadIdentifier(f"`select`: {error}; nothing was called") from None


class _Program(Struct):
    code: str
    max_tokens: int = 0


def _run_program(params: Params) -> Decision:
    try:
        read = decode(params.get("arguments", b"{}"), type=_Program)
    except (DecodeError, ValidationError, RecursionError):
        return Answer(error_result('the arguments of run_program are {"code": "…", "max_tokens"?: …}; nothing was run'))
    return RunProgram(read.code, max(read.max_tokens, 0))


def call_body(tool: str, arguments: Raw | None, params: Params) -> Body:
    """The params of a call with the tool's own name, without the closing brace; other members are kept."""
    if type(params) is LargeObject:
        given = {} if arguments is None else {"arguments": arguments}
        return open_object({**params, "name": Raw(encode(tool)), **given})
    body = b'{"name":' + encode(tool)
    if arguments is not None:
        body = b"".join((body, b',"arguments":', arguments))
    if len(params) <= 2:
        return body
    others = {key: value for key, value in params.items() if key not in ("name", "arguments")}
    return body + b"," + encode(others)[1:-1] if others else body


def toolbox_lines(catalog: Catalog) -> list[str]:
    """Every toolbox with its description and servers."""
    toolboxes = catalog.described.values()
    return [
        "Toolboxes:",
        *(f"- {each.name}: {each.description} (servers: {', '.join(each.servers)})" for each in toolboxes),
    ]


def _take_changed(view: View) -> list[str]:
    changed = [name if how == "changed" else f"{name} ({how})" for name, how in view.changed.items()]
    view.changed.clear()
    return changed


def _unknown_tool(entry: ServerEntry, tool: str, fresh: bool) -> Decision:
    # The cached lists may be out of date; only the server itself can say that it has no such tool.
    if not fresh and not (entry.is_live and tool in entry.hidden):
        return Learn(entry, item=tool)
    where = f" on server `{entry.name}` of toolbox `{entry.toolbox}`"
    if (reason := entry.why_withheld(tool)) is not None:
        return Answer(error_result(f"tool `{tool}`{where} is withheld: {reason}; {REVIEW}"), withheld(entry, tool))
    if tool in entry.hidden:
        return Answer(error_result(f"tool `{tool}`{where} is excluded by `toolFilters` in the configuration"))
    size = None if entry.offer is None else entry.offer.oversized.get("tools", {}).get(tool)
    if size is not None:
        return Answer(
            error_result(
                f"tool `{tool}`{where} is left out: its definition has {size} bytes, more than `maxDefinitionBytes`"
            )
        )
    return Answer(error_result(no_such("tool", tool, entry.tools, where)))


def _open_toolbox_tool(names: str) -> dict[str, object]:
    return {
        "name": "open_toolbox",
        "description": f"Find tools by a query like: create an issue; list a toolbox; or get definitions. {names}",
        "inputSchema": {
            "type": "object",
            "properties": {
                "toolbox_name": {"type": "string"},
                "query": {"type": "string"},
                "tools": {"type": "array", "items": {"type": "string"}},
                # The other forms are accepted too.
                "detail": {"enum": ["full", "text", "names"]},
                "limit": {"type": "integer"},
                "cursor": {"type": "string"},
            },
        },
        "annotations": {"readOnlyHint": True},
        "_meta": {ALWAYS_LOAD: True},
    }


def _budget_of(entry: ServerEntry) -> int:
    """How many tokens a result of this server may have; 0: any number."""
    own = entry.config.result_budget
    return DEFAULT_RESULT_BUDGET if own is None else own


_NAME_SCHEMA: Final = {"type": "string", "minLength": 1}
# The three parts of an identity. The full path as one string is accepted too, and so are the addresses of kept results.
TOOL_SCHEMA: Final = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"toolbox": _NAME_SCHEMA, "server": _NAME_SCHEMA, "tool": _NAME_SCHEMA},
            "required": ["toolbox", "server", "tool"],
        },
        {"type": "string"},
    ]
}
# What is common to all tools that call others. `tool` is not required, because `calls` stands in its place; a top-level
# `anyOf` would say so, and some clients leave out tools that have one.
USE_TOOL_MEMBERS: Final = {
    "tool": TOOL_SCHEMA,
    "arguments": {"type": "object"},
    "select": {"type": "string"},
    "calls": {"type": "array", "items": {"type": "object"}},
    "max_tokens": {"type": "integer"},
}
_USE_TOOL_DEFINITION: Final = {
    "name": "use_tool",
    "description": 'Call a tool: {"tool": {"toolbox": …, "server": …, "tool": …}, "arguments": {…}}; several: calls: '
    "[{tool, arguments}]. select: JMESPath",
    "inputSchema": {"type": "object", "properties": USE_TOOL_MEMBERS},
    "_meta": {ALWAYS_LOAD: True},
}


_RUN_PROGRAM: Final = {
    "name": "run_program",
    "description": 'Run Python that calls many tools: call("toolbox/server/tool", arg=…) returns plain values, '
    'find("need") finds tools. The last expression is the answer.',
    "inputSchema": {
        "type": "object",
        "properties": {"code": {"type": "string"}, "max_tokens": {"type": "integer"}},
        "required": ["code"],
    },
    "_meta": {ALWAYS_LOAD: True},
}


def make(catalog: Catalog, settings: FaceSettings) -> ProxyFace:
    """The factory for the table in `engine/faces.py`."""
    tool_index = ToolIndex(catalog, catalog.store)
    if settings.splits_use_tool:
        from mcp_workbench.engine.face.split_use_tool import SplitProxyFace

        return SplitProxyFace(catalog, settings, tool_index)
    return ProxyFace(catalog, settings, tool_index)
