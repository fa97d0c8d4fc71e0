"""Decide whether an entry of another file is a server that our configuration has. Reads links of folders only.

Servers are removed from a client's file because of this, so anything uncertain counts as different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from os.path import basename, dirname, realpath
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.setup.clients.remote_wrappers import unwrapped

# Returns where a program is; None if it is not found.
Find = Callable[[str], str | None]
_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")


def _nowhere(program: str) -> None:
    """Find nothing: then `npx` and `/usr/bin/npx` are two programs."""


def is_same_program(one: str, other: str, find: Find) -> bool:
    """Whether they are the same program: some clients use only the name, others, with a short `PATH`, the whole
    path."""
    if one == other or other == find(one) or one == find(other):
        return True
    # A folder may have two paths, as `/bin` and `/usr/bin` have. The program is not resolved: a link to Python in each
    # of two virtual environments starts two programs.
    paths = [found for each in (one, other) if (found := find(each)) is not None]
    return len(paths) == 2 and len({(realpath(dirname(path)), basename(path)) for path in paths}) == 1


class Served(Struct, frozen=True):
    """A server of our configuration: its entry as written, and with its variables filled in."""

    name: str
    written: Mapping[str, Any]
    resolved: Mapping[str, Any]


def is_served(
    name: str, entry: Mapping[str, Any], served: Iterable[Served], find: Find = _nowhere, *, is_certain: bool = False
) -> bool:
    """Whether one of our servers is this one: the same program and arguments, or the same address, with the same
    variables and headers. A wrapper around an address counts as that address. With `is_certain`, a reference to
    something that is not fetched here stands for nothing; else, for anything under the same name."""
    entry = unwrapped(entry)[0]
    return any(_is_same(name, entry, each, find, is_certain=is_certain) for each in served)


def _is_same(name: str, entry: Mapping[str, Any], ours: Served, find: Find, *, is_certain: bool) -> bool:
    written, resolved = unwrapped(ours.written)[0], unwrapped(ours.resolved)[0]
    program = _program(entry)
    if not any(is_same_program(program, _program(each), find) for each in (resolved, written)) and not (
        # `init` may have moved a secret out of the address. A reference alone would match any address.
        "url" in entry
        and not is_certain
        and not _program(written).startswith("${")
        and _may_replace(_program(written), program)
    ):
        return False
    theirs, as_written, as_resolved = ([*map(str, each.get("args", ()))] for each in (entry, written, resolved))
    if len(theirs) != len(as_written):
        return False
    values = [*zip(theirs, as_written, as_resolved if len(as_resolved) == len(theirs) else as_written, strict=True)]
    for kind in ("env", "headers"):
        for key, value in entry.get(kind, {}).items():
            # A variable may be in an `envFile` of ours, and is then only among the resolved ones.
            ours_resolved = resolved.get(kind, {}).get(key, written.get(kind, {}).get(key))
            if ours_resolved is None:
                return False
            ours_written = written.get(kind, {}).get(key, ours_resolved)
            values.append((str(value), str(ours_written), str(ours_resolved)))
    doubtful = [pair for pair in values if pair[0] not in pair[1:]]
    # A secret that has been moved cannot be compared, so the name has to agree as well.
    return not doubtful or (
        not is_certain
        and name.casefold() == ours.name.casefold()
        and all(_may_replace(each[1], each[0]) for each in doubtful)
    )


def _program(entry: Mapping[str, Any]) -> str:
    return str(entry["command"]) if entry.get("command") else str(entry.get("url", "")).rstrip("/")


def _may_replace(ours: str, theirs: str) -> bool:
    """Whether `init` may have made `ours` from `theirs`: the text around the references is the same."""
    pieces = _REFERENCE.split(ours)
    return len(pieces) > 1 and re.fullmatch(".+".join(map(re.escape, pieces)), theirs, re.DOTALL) is not None
