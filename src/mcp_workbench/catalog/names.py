"""Exposed names: a table built when tools are registered, and looked up when they are called. Never parsed.

`my_srv` + `tool` and `my` + `srv_tool` may give the same exposed name. The one that had it first keeps it, or else any
server could make another's tool vanish; the other one is not exposed, and it is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from msgspec import Raw, Struct

from mcp_workbench.catalog.entry import ServerEntry

# What the strictest clients accept as the name of a tool.
LONGEST_NAME: Final = 64
CLIENT_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")


def path_of(entry: ServerEntry, tool: str) -> str:
    """`toolbox/server/tool`, which names one tool among all."""
    return f"{entry.toolbox}/{entry.name}/{tool}"


class Target(Struct, frozen=True, gc=False):
    """Where an exposed name leads."""

    entry: ServerEntry
    # The name that the server itself uses.
    name: str
    definition: Raw

    @property
    def label(self) -> str:
        """`toolbox/server/name`."""
        return path_of(self.entry, self.name)

    def is_same(self, other: Target) -> bool:
        """Whether both are the same tool of the same server, whatever is said of it by now."""
        return self.entry is other.entry and self.name == other.name


# By exposed name, who was given it: whatever else comes to want that name, it stays theirs while they offer it.
Holders = dict[str, Target]


class NameTable:
    """Exposed name to target. Of those that want the same name, the first one in `collisions` has it."""

    __slots__ = ("collisions", "targets")

    def __init__(self, targets: dict[str, Target], collisions: dict[str, list[Target]]) -> None:
        self.targets = targets
        self.collisions = collisions


def build(
    entries: Iterable[ServerEntry], kind: str, expose: Callable[[ServerEntry, str], str], holders: Holders
) -> NameTable:
    """Name everything of one kind; one that gets a free name is entered in `holders`."""
    for exposed in [name for name, held in holders.items() if held.name not in held.entry.definitions(kind)]:
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
    # Nearly always all of them: their names are unique.
    targets = {
        exposed: target for exposed, target in wanted.items() if _is_undisputed(exposed, target, rivals, holders)
    }
    for exposed in wanted.keys() - targets.keys() if len(targets) < len(wanted) else ():
        _settle(exposed, rivals.get(exposed, [wanted[exposed]]), holders, targets, collisions)
    if collisions:
        # In the order in which they come.
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
    """Who of those that want a name has it."""
    holder = holders.get(exposed, rivals[0])
    others = [each for each in rivals if not each.is_same(holder)]
    if len(others) < len(rivals):
        holder = next(each for each in rivals if each.is_same(holder))
        targets[exposed] = holder
    # Otherwise its holder is out of view at the moment; the name is not free for all that.
    if others:
        collisions[exposed] = [holder, *others]


def describe_collision(exposed: str, targets: list[Target]) -> str:
    """What to tell the user about several that want the same name."""
    first, *others = (f"`{target.label}`" for target in targets)
    return f"{' and '.join(others)} would be shown as `{exposed}`, which is {first}. Use `rename`, or another separator"


def accepted_characters(name: str) -> str:
    """The name with `_` for each character that some client refuses."""
    return _REFUSED.sub("_", name)


def accepted(wanted: str, longest: int = LONGEST_NAME) -> str:
    """The same name where every client accepts it, else something near to it with a checksum, so that two stay two."""
    name = accepted_characters(wanted)
    if name == wanted and len(name) <= longest:
        return name
    mark = f"_{crc32(wanted.encode()):08x}"
    return name[: longest - len(mark)] + mark


def is_accepted_by_clients(name: str) -> bool:
    """Whether clients with the strictest rule accept this name."""
    return CLIENT_NAME.fullmatch(name) is not None
