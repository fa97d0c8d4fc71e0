"""Validates the arguments of `use_tool` against the tool's schema before the call.

The error says where the mistake is, what was probably meant, and shows the schema in short, so that a model can correct
itself without another request. In doubt, the call is made, and errors of the server are passed on unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc.messages import encode

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.quick_check import Accepts

# How many tools have their validator cached. An agent uses a few.
MAX_CACHED_VALIDATORS: Final = 1000
MAX_ARGUMENT_PROBLEMS: Final = 5
# Larger arguments and schemas are left to the server: validating them would take longer than a call.
MAX_CHECKED_BYTES: Final = 1 << 20
# The error includes the tool's schema up to this size, otherwise its signature.
MAX_ERROR_SCHEMA_LENGTH: Final = 8_000


class _Ready(Struct):
    """The cached validator of a tool: its definition, a quick check if there is one, and its schema."""

    definition: Raw
    accepts: Accepts | None
    schema: object


class ArgumentChecker:
    """Caches a validator for each tool that is used."""

    def __init__(self) -> None:
        self._ready: OrderedDict[tuple[str, str, str], _Ready] = OrderedDict()

    def complaint(self, entry: ServerEntry, tool: str, arguments: Raw) -> str | None:
        """What is wrong with these arguments, for a model to read; None if nothing is, or if it cannot be checked."""
        definition = entry.tools[tool]
        if len(memoryview(arguments)) > MAX_CHECKED_BYTES:
            return None
        ready = self._ready.get((entry.toolbox, entry.config.name, tool))
        # A changed definition is a different object.
        if ready is None or ready.definition is not definition:
            if len(memoryview(definition)) > MAX_CHECKED_BYTES:
                return None
            ready = self._made_ready(entry, tool, definition)
        if ready.accepts is not None and ready.accepts(arguments):
            return None
        return _thorough(entry, tool, ready.schema, arguments)

    def _made_ready(self, entry: ServerEntry, tool: str, definition: Raw) -> _Ready:
        from mcp_workbench.engine.economy.quick_check import compiled
        from mcp_workbench.engine.economy.tool import parts

        schema = parts(bytes(definition)).schema()
        ready = _Ready(definition, compiled(schema), schema)
        self._ready[entry.toolbox, entry.config.name, tool] = ready
        if len(self._ready) > MAX_CACHED_VALIDATORS:
            self._ready.popitem(last=False)
        return ready


def _thorough(entry: ServerEntry, tool: str, schema: object, arguments: Raw) -> str | None:
    from mcp_workbench.engine.economy.arguments import check

    try:
        checked = check(decode(arguments), schema)
    # What we cannot read, the server may: only what is certainly wrong stops a call.
    except (DecodeError, RecursionError):
        return None
    if not checked.problems:
        return None
    said = "\n".join(f"- {problem}" for problem in checked.problems[:MAX_ARGUMENT_PROBLEMS])
    return (
        f"[{entry.toolbox}/{entry.name}/{tool}] the arguments are invalid, so it was not called:\n{said}\n"
        f"{_described(entry, tool, schema)}"
    )


def _described(entry: ServerEntry, tool: str, schema: object) -> str:
    from mcp_workbench.engine.economy.lean_schema import lean
    from mcp_workbench.engine.economy.signature import signature

    written = encode(lean(schema)).decode()
    if len(written) <= MAX_ERROR_SCHEMA_LENGTH:
        return f"Its schema: {written}"
    path = f"{entry.toolbox}/{entry.name}/{tool}"
    return f"{signature(tool, schema).text}\nIts full schema: open_toolbox with `tools`: `{path}`"
