"""Exposed names: a table built when tools are registered, and looked up when they are called. Never parsed.

`my_srv` + `tool` and `my` + `srv_tool` may give the same exposed name. Then neither is exposed, and it is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Raw, Struct

from mcp_workbench.catalog.entry import ServerEntry

# What several clients accept as the name of a tool.
CLIENT_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Target(Struct, frozen=True, gc=False):
    """Where an exposed name leads."""

    entry: ServerEntry
    # The name that the server itself uses.
    name: str
    definition: Raw

    @property
    def label(self) -> str:
        """`toolbox/server/name`."""
        return f"{self.entry.toolbox}/{self.entry.name}/{self.name}"


class NameTable:
    """Exposed name to target, without collisions."""

    __slots__ = ("collisions", "targets")

    def __init__(self, targets: dict[str, Target], collisions: dict[str, list[Target]]) -> None:
        self.targets = targets
        self.collisions = collisions


def build(entries: Iterable[ServerEntry], kind: str, expose: Callable[[ServerEntry, str], str]) -> NameTable:
    """Name everything of one kind. Names that two would get are given to neither."""
    targets: dict[str, Target] = {}
    collisions: dict[str, list[Target]] = {}
    for entry in entries:
        for name, definition in entry.definitions(kind).items():
            exposed = expose(entry, name)
            target = Target(entry, name, definition)
            first = targets.setdefault(exposed, target)
            if first is not target:
                collisions.setdefault(exposed, [first]).append(target)
    for exposed in collisions:
        del targets[exposed]
    return NameTable(targets, collisions)


def describe_collision(exposed: str, targets: list[Target]) -> str:
    """What to tell the user about two that want the same name."""
    rivals = " and ".join(f"`{target.label}`" for target in targets)
    return f"{rivals} would both be shown as `{exposed}`; neither is. Use `rename`, or another separator"


def is_accepted_by_clients(name: str) -> bool:
    """Whether clients with the strictest rule accept this name."""
    return CLIENT_NAME.fullmatch(name) is not None
