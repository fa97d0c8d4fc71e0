"""Exposed names: a table built when tools are listed, and looked up when they are called. Names are never parsed.

`my_srv` + `tool` and `my` + `srv_tool` may result in the same exposed name. The tool that had it first keeps it,
because otherwise any server could hide another's tool; the other one is not exposed, and the collision is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.entry import ServerEntry

# The longest tool name that the strictest clients accept.
MAX_TOOL_NAME_LENGTH: Final = 64
ACCEPTED_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")


def path_of(entry: ServerEntry, tool: str) -> str:
    """`toolbox/server/tool`, the unique path of a tool."""
    return f"{entry.toolbox}/{entry.name}/{tool}"


class Target(Struct, frozen=True, gc=False):
    """What an exposed name refers to."""

    entry: ServerEntry
    # The server's own name for it.
    name: str
    definition: Raw

    @property
    def label(self) -> str:
        """`toolbox/server/name`."""
        return path_of(self.entry, self.name)

    def is_same(self, other: Target) -> bool:
        """Whether both are the same tool of the same server, even if its definition has changed."""
        return self.entry is other.entry and self.name == other.name


# By exposed name, the target that holds it and keeps it as long as it is offered, whatever else gets the same name.
Holders = dict[str, Target]


class NameTable:
    """Targets by exposed name. In `collisions`, the first of those with the same name holds it."""

    __slots__ = ("collisions", "targets")

    def __init__(self, targets: dict[str, Target], collisions: dict[str, list[Target]]) -> None:
        self.targets = targets
        self.collisions = collisions


def build(
    entries: Iterable[ServerEntry], kind: str, expose: Callable[[ServerEntry, str], str], holders: Holders
) -> NameTable:
    """Name all items of one kind, and record new names in `holders`."""
    for exposed in [
        name
        for name, held in holders.items()
        # The names of a server that is not listed yet wait for it.
        if held.entry.offer is not None and held.name not in held.entry.definitions(kind)
    ]:
        del holders[exposed]
    wanted: dict[str, Target] = {}
    rivals: dict[str, list[Target]] = {}
    for entry in entries:
        for name, definition in entry.definitions(kind).items():
            exposed, target = expose(entry, name), Target(entry, name, definition)
            first = wanted.setdefault(exposed, target)
            if first is not target:
                rivals.setdefault(exposed, [first]).append(target)
    collisions: dict[str, list[Target]] = {}
    # Almost always all of them, because names are usually unique.
    targets = {
        exposed: target for exposed, target in wanted.items() if _is_undisputed(exposed, target, rivals, holders)
    }
    for exposed in wanted.keys() - targets.keys() if len(targets) < len(wanted) else ():
        _settle(exposed, rivals.get(exposed, [wanted[exposed]]), holders, targets, collisions)
    if collisions:
        # Restore the original order.
        targets = {exposed: targets[exposed] for exposed in wanted if exposed in targets}
        collisions = {exposed: collisions[exposed] for exposed in wanted if exposed in collisions}
    holders.update(targets)
    return NameTable(targets, collisions)


def _is_undisputed(exposed: str, target: Target, rivals: dict[str, list[Target]], holders: Holders) -> bool:
    holder = holders.get(exposed)
    return exposed not in rivals and (holder is None or holder.is_same(target))


def _settle(
    exposed: str,
    rivals: list[Target],
    holders: Holders,
    targets: dict[str, Target],
    collisions: dict[str, list[Target]],
) -> None:
    """Decide which of several targets holds a name."""
    holder = holders.get(exposed, rivals[0])
    others = [each for each in rivals if not each.is_same(holder)]
    if len(others) < len(rivals):
        holder = next(each for each in rivals if each.is_same(holder))
        targets[exposed] = holder
    # Otherwise the holder is not visible at the moment, but the name is still taken.
    if others:
        collisions[exposed] = [holder, *others]


def describe_collision(exposed: str, targets: list[Target], remedy: str) -> str:
    """The message for the user about a name collision. `remedy`: what to do about it, where this name is shown."""
    first, *others = (f"`{target.label}`" for target in targets)
    return f"{' and '.join(others)} would be shown as `{exposed}`, which is {first}. {remedy}"


def accepted_characters(name: str) -> str:
    """The name with `_` for each character that some client rejects."""
    return _REFUSED_CHARACTER.sub("_", name)


def accepted(wanted: str, longest: int = MAX_TOOL_NAME_LENGTH) -> str:
    """The name if every client accepts it, else a similar one with a checksum, so that different names stay
    different."""
    name = accepted_characters(wanted)
    if name == wanted and len(name) <= longest:
        return name
    mark = f"_{crc32(wanted.encode()):08x}"
    return name[: longest - len(mark)] + mark


def is_accepted_by_clients(name: str) -> bool:
    """Whether clients with the strictest rule accept this name."""
    return ACCEPTED_NAME.fullmatch(name) is not None
