"""When an entry of another file means a server that our configuration has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_workbench.clients.remote_wrappers import unwrapped

_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")


def is_served(entry: Mapping[str, Any], served: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the servers, as they are written in our configuration, is this one: the same program and
    arguments, or the same address. A wrapper around an address is that address."""
    words = _words(unwrapped(entry)[0])
    return any(_match(_words(unwrapped(each)[0]), words) for each in served)


def _words(entry: Mapping[str, Any]) -> list[str]:
    if entry.get("command"):
        return [str(entry["command"]), *map(str, entry.get("args", ()))]
    return [str(entry.get("url", "")).rstrip("/")]


def _match(ours: list[str], theirs: list[str]) -> bool:
    """What `init` made a reference of still stands in the other file as it was."""
    if len(ours) != len(theirs):
        return False
    return all(one == other or _pattern(one).fullmatch(other) for one, other in zip(ours, theirs, strict=True))


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, _REFERENCE.split(word))), re.DOTALL)
