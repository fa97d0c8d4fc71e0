"""What a new configuration changes, and the plan for applying it. Pure: nothing here touches running servers.

Servers and toolboxes are compared by content, not by their position in the file. A server is the same as long as its
identity is (`manifests.identity_of`): a new time limit or filter needs no new process, but a new command, argument,
variable or address is a different server under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import identity_of
from mcp_workbench.engine.config.model import ServerConfig, ServerContext, ToolboxConfig, WorkbenchConfig

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog

# A toolbox and a server in it. Not joined into one string, because names may contain slashes.
ServerPlace = tuple[str, str]
Name = TypeVar("Name", str, ServerPlace)
Value = TypeVar("Value", ServerConfig, ToolboxConfig)
Toolboxes = dict[str, dict[str, ServerEntry]]


class Changes(Struct, Generic[Name], frozen=True):
    """Toolboxes by name, or servers by place, in the order of the file."""

    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()
    changed: tuple[Name, ...] = ()
    untouched: tuple[Name, ...] = ()
    # Servers only: the same server with different settings. It keeps its process and its calls.
    adjusted: tuple[Name, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.adjusted)


class Difference(Struct, frozen=True):
    """The difference between two configurations."""

    servers: Changes[ServerPlace]
    toolboxes: Changes[str]
    # Top-level settings, by field name.
    settings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.toolboxes or self.settings)


class Plan(Struct, frozen=True):
    """Everything that a new configuration requires, decided before anything is done."""

    config: WorkbenchConfig
    difference: Difference
    # The future catalogue. Entries of untouched and adjusted servers are the same objects as before.
    toolboxes: Toolboxes
    # Removed, or replaced by a server of the same name. They accept no new calls and end after the running ones.
    ending: tuple[ServerEntry, ...]
    # New, or replacing a server of the same name.
    beginning: tuple[ServerEntry, ...]
    adjusted: Mapping[ServerEntry, ServerConfig]
    context: ServerContext


# Compared separately, or not settings at all.
_NO_SETTINGS = frozenset("path toolboxes modified_at secrets disabled ignored_keys project_servers references".split())


def compare(before: WorkbenchConfig, after: WorkbenchConfig) -> Difference:
    fields = (name for name in before.__struct_fields__ if name not in _NO_SETTINGS)
    return Difference(
        _compared(_servers(before), _servers(after), _is_same_server),
        _compared(before.toolboxes, after.toolboxes),
        tuple(name for name in fields if getattr(before, name) != getattr(after, name)),
    )


def plan(catalog: Catalog, before: WorkbenchConfig, after: WorkbenchConfig, context: ServerContext) -> Plan:
    """Plan the change from `before` to `after`, whose servers run in `context`."""
    difference = compare(before, after)
    servers, wanted = catalog.servers, _servers(after)
    present = {
        (name, server): entry for name, entries in catalog.toolboxes.items() for server, entry in entries.items()
    }
    adjusted = [place for place in difference.servers.adjusted if servers.may_adjust(present[place])]
    keeps = {*difference.servers.untouched, *adjusted}
    entries = {
        place: present[place] if place in keeps else catalog.entry_for(place[0], server, context)
        for place, server in wanted.items()
    }
    return Plan(
        after,
        difference,
        {box.name: {name: entries[box.name, name] for name in box.servers} for box in after.toolboxes.values()},
        ending=tuple(entry for place, entry in present.items() if place not in keeps),
        beginning=tuple(entry for place, entry in entries.items() if place not in keeps),
        adjusted={present[place]: wanted[place] for place in adjusted},
        context=context,
    )


def _servers(config: WorkbenchConfig) -> dict[ServerPlace, ServerConfig]:
    return {(box.name, name): server for box in config.toolboxes.values() for name, server in box.servers.items()}


def _compared(
    before: Mapping[Name, Value], after: Mapping[Name, Value], is_adjusted: Callable[[Value, Value], bool] | None = None
) -> Changes[Name]:
    both = [name for name in after if name in before]
    differing = {name for name in both if before[name] != after[name]}
    adjusted = {name for name in differing if is_adjusted is not None and is_adjusted(before[name], after[name])}
    return Changes(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name in both if name in differing and name not in adjusted),
        untouched=tuple(name for name in both if name not in differing),
        adjusted=tuple(name for name in both if name in adjusted),
    )


def _is_same_server(before: ServerConfig, after: ServerConfig) -> bool:
    return (
        # Its files are read when it starts, so only a restart picks up changes.
        before.env_file_times == after.env_file_times
        # State of one user must not reach others.
        and (before.share == "everyone") == (after.share == "everyone")
        # A server with a missing variable was never started.
        and not before.unresolved
        and not after.unresolved
        and identity_of(before) == identity_of(after)
    )
