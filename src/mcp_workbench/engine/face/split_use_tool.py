"""The face `proxy` with `"useTool": "split"`: `use_tool` for tools that only read, `use_tool_that_writes` for the rest.

Clients ask their user before they call a tool that may change something, and some do not for tools that only read. With
a single tool for all calls they have to ask every time, and without a user to ask they cannot call it at all. Whether a
tool writes is decided by its annotations; a tool without any counts as writing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder
from msgspec.structs import replace

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.economy.instructions import HOW_IN_SHORT, HOW_TO_USE_TOOLS
from mcp_workbench.engine.face.base import Params
from mcp_workbench.engine.face.decisions import Answer, CallEach, Decision, Forward, Learn, Load
from mcp_workbench.engine.face.pins import ALWAYS_LOAD
from mcp_workbench.engine.face.proxy import USE_TOOL_MEMBERS, ProxyFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import error_result
from mcp_workbench.engine.jsonrpc.messages import LargeObject, decode_string, encode

READS: Final = "use_tool"
WRITES: Final = "use_tool_that_writes"
# How many tools have their annotations cached. An agent uses a few.
MAX_CACHED_ANNOTATIONS: Final = 1000
# What a model sees of the three tools (name, description and schema) is below 300 tokens, as with two. Clients do not
# show it the rest, `annotations` and `_meta`.
MAX_BYTES_OF_THREE_TOOLS: Final = 1_410


class _Annotations(Struct, rename="camel"):
    read_only_hint: object = False
    destructive_hint: object = False


class _SchemaOnly(Struct):
    annotations: _Annotations = field(default_factory=_Annotations)


_read: Final = Decoder(_SchemaOnly).decode


def only_reads(definition: bytes | Raw) -> bool:
    """Whether a tool declares that it only reads, without contradicting itself."""
    try:
        annotations = _read(definition).annotations
    except (DecodeError, ValidationError):
        return False
    # A hint that is not a boolean is ignored.
    return annotations.read_only_hint is True and annotations.destructive_hint is not True


class SplitProxyFace(ProxyFace):
    """Three tools: one to find tools, one to call those that read, and one for those that write."""

    most_bytes = MAX_BYTES_OF_THREE_TOOLS
    how = HOW_TO_USE_TOOLS + f" `{READS}` calls tools that only read, `{WRITES}` all others, with the same arguments."
    how_in_short = HOW_IN_SHORT.removesuffix(f"`{READS}`.") + f"`{READS}` to read, `{WRITES}` for all others."

    @cached_property
    def _judged(self) -> dict[tuple[ServerEntry, str], tuple[Raw, bool]]:
        return {}

    def use_tools(self) -> list[bytes]:
        return [encode(_USE_TOOL_THAT_READS), encode(_USE_TOOL_THAT_WRITES)]

    def own_names(self) -> list[str]:
        return [*super().own_names(), WRITES]

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        try:
            name = decode_string(params["name"])
        except (KeyError, DecodeError, ValidationError):
            name = ""
        if name == WRITES:
            # It may call any tool: asking the user about a tool that only reads does no harm.
            renamed = {**params, "name": Raw(encode(READS))}
            if type(params) is LargeObject:
                renamed = LargeObject(renamed, params.inner)
            decision = super().resolve_tool(view, renamed, fresh=fresh)
            return replace(decision, name=encode(WRITES)) if isinstance(decision, CallEach) else decision
        decision = super().resolve_tool(view, params, fresh=fresh)
        if name != READS:
            return decision
        # What asks another instance for a kept result calls no tool, and must not ask again.
        if isinstance(decision, Load) and decision.recall is None:
            return replace(decision, decide=lambda: self.resolve_tool(view, params, fresh=fresh))
        return self._unless_it_writes(decision, fresh) if isinstance(decision, Forward) else decision

    def _unless_it_writes(self, decision: Forward, fresh: bool) -> Decision:
        entry, tool = decision.entry, decision.item
        if not self._only_reads(entry, tool):
            where = f"{entry.toolbox}/{entry.name}/{tool}"
            return Answer(
                error_result(
                    f"[{where}] may change something (its annotations do not say `readOnlyHint`), so it was not "
                    f"called; call it with `{WRITES}` and the same arguments"
                )
            )
        # No user is asked about this call, so cached annotations, which may be out of date, are not enough.
        return decision if fresh or entry.is_live else Learn(entry, item=tool)

    def _only_reads(self, entry: ServerEntry, tool: str) -> bool:
        definition = entry.tools[tool]
        judged = self._judged.get((entry, tool))
        # A changed definition is a different object.
        if judged is None or judged[0] is not definition:
            if len(self._judged) >= MAX_CACHED_ANNOTATIONS:
                self._judged.clear()
            judged = self._judged[entry, tool] = (definition, only_reads(definition))
        return judged[1]


# Both accept everything that a single `use_tool` does; what a tool is, is explained once.
_USE_TOOL_THAT_READS: Final = {
    "name": READS,
    "description": "Call a tool that only reads.",
    "inputSchema": {
        "type": "object",
        "properties": USE_TOOL_MEMBERS,
    },
    "annotations": {"readOnlyHint": True},
    "_meta": {ALWAYS_LOAD: True},
}
_USE_TOOL_THAT_WRITES: Final = {
    "name": WRITES,
    "description": "Call any other tool.",
    "inputSchema": {
        "type": "object",
        "properties": {"tool": {"type": "object"}, "arguments": {"type": "object"}},
        "required": ["tool"],
    },
    "annotations": {"readOnlyHint": False},
    "_meta": {ALWAYS_LOAD: True},
}
