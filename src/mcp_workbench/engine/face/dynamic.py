"""The face `dynamic`: opening a toolbox registers its tools as `{toolbox}__{server}_{tool}`.

Names do not depend on which toolboxes are open. A toolbox stays open until the session ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import NameTable, Target, describe_collision
from mcp_workbench.engine.catalog.offer import KINDS
from mcp_workbench.engine.face.base import Face, FaceSettings, Params, available, begins_unknown
from mcp_workbench.engine.face.decisions import Answer, Decision, Forward, Open, Reject, learn, withheld
from mcp_workbench.engine.face.open_request import BadRequest, OpenRequest, read_open_request
from mcp_workbench.engine.face.opening import Failures, left_out, unavailable
from mcp_workbench.engine.face.proxy import call_body, toolbox_lines
from mcp_workbench.engine.face.renamed import with_members
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import REVIEW, error_result, no_such
from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, decode_string, encode
from mcp_workbench.engine.protocol.constants import TOOLS_CALL

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan

# The member with the origin of a registered tool: its names, server and toolbox.
REGISTERED_META: Final = "mcp-workbench/tool"


class DynamicFace(Face):
    """Tools are registered toolbox by toolbox."""

    name = "dynamic"
    names_failed_tools = True

    def entries(self, view: View) -> list[ServerEntry]:
        """The servers of opened toolboxes."""
        return available(self.needed(view, "tools"))

    def needed(self, view: View, kind: str) -> Iterable[ServerEntry]:
        return (entry for name in view.opened for entry in self.catalog.toolboxes.get(name, {}).values())

    def awaited(self, view: View) -> list[ServerEntry]:
        """Servers that were added to a toolbox after it was opened; opening it started all others."""
        return [entry for entry in self.needed(view, "tools") if entry.offer is None and entry.trouble is None]

    def shows(self, view: View, entry: ServerEntry) -> bool:
        """Only servers of opened toolboxes."""
        return entry.toolbox in view.opened

    def announces_opening(self, view: View, toolbox: str) -> frozenset[str]:
        entries = self.catalog.toolboxes[toolbox].values()
        # Templates are announced with resources, because MCP has no separate notification for them.
        found = {kind for kind in KINDS if any(entry.definitions(kind) for entry in entries)}
        return frozenset("resources" if kind == "resourceTemplates" else kind for kind in found)

    def announces_toolboxes(self, plan: Plan) -> frozenset[str]:
        """The description of `open_toolbox` names all toolboxes."""
        toolboxes = plan.difference.toolboxes
        return frozenset({"tools"} if toolboxes.added or toolboxes.removed or begins_unknown(plan) else ())

    def exposed(self, entry: ServerEntry, name: str) -> str:
        return f"{entry.toolbox}__{entry.name}_{name}"

    def _exposed_tool(self, entry: ServerEntry, name: str) -> str:
        """The configuration may rename tools, not prompts."""
        return self.exposed(entry, entry.config.rename.get(name, name))

    def tools(self, view: View) -> Sequence[bytes]:
        """`open_toolbox`, then the registered tools."""
        return self.keep("tools", view, lambda: self._shown_tools(view))

    def _shown_tools(self, view: View) -> list[bytes]:
        purpose = "Open a toolbox: its tools are added to the list of tools. Opening again is harmless."
        own = encode(_open_toolbox_tool(f"{purpose} Toolboxes: {', '.join(self.catalog.toolboxes)}."))
        table = self._table(view)
        return [own, *(_registered(exposed, target) for exposed, target in table.targets.items())]

    def own_names(self) -> list[str]:
        return ["open_toolbox"]

    def definition_of(self, tool: str) -> Raw | None:
        """Looked up among all tools, because names do not depend on which toolboxes are open."""
        target = self._table(self._everything()).targets.get(tool)
        return None if target is None else target.definition

    def _everything(self) -> View:
        view = View("")
        view.opened.update(dict.fromkeys(self.catalog.toolboxes))
        return view

    def remarks(self) -> list[str]:
        """Also reports names that two tools share."""
        collisions = self._table(self._everything()).collisions
        return [*(self._describe(exposed, rivals) for exposed, rivals in collisions.items()), *super().remarks()]

    def collision_remedy(self, kind: str) -> str:
        return "Use `rename`" if kind == "tools" else super().collision_remedy(kind)

    def _describe(self, exposed: str, rivals: list[Target]) -> str:
        return describe_collision(exposed, rivals, self.collision_remedy("tools"))

    def _table(self, view: View) -> NameTable:
        found = self.kept("tool table", view, lambda: self.table("tools", self.entries(view), self._exposed_tool))
        assert isinstance(found, NameTable)
        return found

    def settle_names(self, entries: Iterable[ServerEntry]) -> None:
        """Also for closed toolboxes, because names do not depend on which toolboxes are open."""
        known = available(entries)
        self.table("tools", known, self._exposed_tool)
        self.table("prompts", known, self.exposed)

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        try:
            name = decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`name` must be a string")
        if name == "open_toolbox":
            return self._open_toolbox(params.get("arguments"))
        table = self._table(view)
        target = table.targets.get(name)
        if target is not None:
            body = call_body(target.name, params.get("arguments"), params)
            return Forward(target.entry, target.name, TOOLS_CALL, body, True)
        if name in table.collisions:
            return Reject(INVALID_PARAMS, self._describe(name, table.collisions[name]))
        asked = [] if fresh else self._may_have(view, name)
        if asked:
            return learn({entry: self._original_name(entry, name) for entry in asked})
        for toolbox in view.opened:
            for entry in self.catalog.toolboxes[toolbox].values():
                tool = self._original_name(entry, name)
                if tool != name and tool in entry.withheld.get("tools", ()):
                    text = f"tool `{name[:200]}` is withheld: {entry.why_withheld(tool)}; {REVIEW}"
                    return Reject(INVALID_PARAMS, text, refusal=withheld(entry, tool))
        for toolbox in self.catalog.toolboxes:
            # The agent may know the name from an earlier conversation, where the toolbox was open.
            if toolbox not in view.opened and name.startswith(f"{toolbox}__"):
                if self.settings.state.is_in_doubt:
                    # Or it was opened at another instance, which cannot be found out now.
                    view.opened[toolbox] = None
                    return self.resolve_tool(view, params)
                return Reject(INVALID_PARAMS, f"tool `{name}` is not registered; open toolbox `{toolbox}` first")
        return Reject(INVALID_PARAMS, no_such("tool", name, ["open_toolbox", *table.targets]))

    def _original_name(self, entry: ServerEntry, name: str) -> str:
        """What a server would call the tool with this exposed name."""
        return entry.config.original_name(name.removeprefix(self.exposed(entry, "")))

    def _may_have(self, view: View, name: str) -> list[ServerEntry]:
        """Servers of opened toolboxes whose prefix matches: their cached tools may be out of date."""
        return [
            entry
            for toolbox in view.opened
            for entry in self.catalog.toolboxes.get(toolbox, {}).values()
            if name.startswith(self.exposed(entry, "")) and self._original_name(entry, name) not in entry.hidden
        ]

    def _open_toolbox(self, arguments: Raw | None) -> Decision:
        try:
            request = read_open_request(arguments)
        except BadRequest as error:
            return Answer(error_result(str(error)))
        name = request.toolbox_name
        if name is None:
            return Answer(error_result('`toolbox_name` is missing; expected {"toolbox_name": "<name>"}'))
        if name not in self.catalog.toolboxes:
            return self.no_such_toolbox(name)
        return Open(tuple(self.catalog.toolboxes[name].values()), request)

    def opened(self, view: View, request: OpenRequest, failures: Failures) -> bytes:
        assert request.toolbox_name is not None
        toolbox = self.catalog.described[request.toolbox_name]
        # First, because the table contains only tools of open toolboxes.
        view.opened[toolbox.name] = None
        table = self._table(view)
        tools = [
            _summary(exposed, target)
            for exposed, target in table.targets.items()
            if target.entry.toolbox == toolbox.name and (toolbox.name, target.entry.name) not in failures
        ]
        content: dict[str, object] = {
            "toolbox": toolbox.name,
            "description": toolbox.description,
            "tools": tools,
            "unavailable": unavailable({**left_out(self.catalog.toolboxes[toolbox.name].values()), **failures}),
        }
        refused = [
            self._describe(exposed, rivals)
            for exposed, rivals in table.collisions.items()
            if any(rival.entry.toolbox == toolbox.name for rival in rivals[1:])
        ]
        if refused:
            content["refused"] = refused
        structured = encode(content)
        # Both as text and structured, because clients read one or the other.
        return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (
            encode(structured.decode()),
            structured,
            b',"isError":true' if len(failures) == len(toolbox.servers) else b"",
        )

    def instructions(self, view: View) -> str:
        """How to get tools, and which toolboxes there are."""
        lines = [
            'Tools are grouped in toolboxes. open_toolbox {"toolbox_name": "<toolbox>"} adds the tools of a toolbox to '
            "the list of tools, as <toolbox>__<server>_<tool>.",
            "",
            *toolbox_lines(self.catalog),
        ]
        return "\n".join(lines)


class _OwnMeta(Struct, gc=False):
    meta: dict[str, Raw] = field(name="_meta", default_factory=dict)


class _Introduction(Struct, gc=False):
    # Of any type. All other members are skipped, which is many times faster than decoding them.
    title: object = None
    description: object = None


_decode_introduction: Final = Decoder(_Introduction).decode
_decode_own_meta: Final = Decoder(_OwnMeta).decode


def _description(target: Target, introduction: _Introduction | None = None) -> str:
    own = (introduction or _decode_introduction(target.definition)).description
    where = f"[{target.entry.toolbox}/{target.entry.name}]"
    return f"{where} {own}" if isinstance(own, str) and own else where


def _registered(exposed: str, target: Target) -> bytes:
    """The definition as registered: its origin is in the description for the agent, and in `_meta` for programs."""
    definition = bytes(target.definition)
    try:
        own = _decode_own_meta(definition).meta
    except ValidationError:
        # Not an object, which clients would refuse in any case.
        own = {}
    members = {
        "name": encode(exposed),
        "description": encode(_description(target)),
        "_meta": encode({**own, REGISTERED_META: _metadata(exposed, target)}),
    }
    return with_members(definition, members)


def _metadata(exposed: str, target: Target) -> dict[str, str]:
    return {
        "name": exposed,
        "original_name": target.name,
        "server": target.entry.name,
        "toolbox_name": target.entry.toolbox,
    }


def _summary(exposed: str, target: Target) -> dict[str, object]:
    introduction = _decode_introduction(target.definition)
    return {
        **_metadata(exposed, target),
        "description": _description(target, introduction),
        **({"title": introduction.title} if isinstance(introduction.title, str) else {}),
    }


def _open_toolbox_tool(description: str) -> dict[str, object]:
    return {
        "name": "open_toolbox",
        "title": "Open a toolbox",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {"toolbox_name": {"type": "string", "description": "Name of the toolbox."}},
            "required": ["toolbox_name"],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
    }


def make(catalog: Catalog, settings: FaceSettings) -> Face:
    """The factory for the table in `engine/faces.py`."""
    return DynamicFace(catalog, settings)
