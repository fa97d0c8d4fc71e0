"""Which lines of a log are meant: those about a server, or of a level. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.engine.nearest import nearest

LEVELS: Final = ("debug", "info", "warning", "error")
# As `engine.observe.log` writes it.
_HEAD: Final = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
# `[toolbox/server]`, as lines about a server contain it.
_LABEL: Final = re.compile(rb"\[([^\[\]\s]+/[^\[\]\s]+)\]")


class LineFilter:
    """Lines of a traceback or a longer message belong to the line that they follow."""

    def __init__(self, server: str | None, level: str | None) -> None:
        self._labels = None if server is None else (f"/{server}]".encode(), f"[{server}]".encode())
        self._least = 0 if level is None else LEVELS.index(level)
        self._takes = server is None and level is None

    def takes(self, line: bytes) -> bool:
        level = _level_of(line)
        if level is not None:
            # What is worse than an error is one, too.
            rank = LEVELS.index(level) if level in LEVELS else len(LEVELS)
            is_meant = self._labels is None or any(label in line for label in self._labels)
            self._takes = rank >= self._least and is_meant
        return self._takes


def _level_of(line: bytes) -> str | None:
    """The level of a line that begins an entry, as text or as JSON; None of one that continues it."""
    head = _HEAD.match(line)
    if head is not None:
        return head[1].decode().lower()
    if not line.startswith(b'{"time"'):
        return None
    try:
        found: Any = decode(line)
    except DecodeError:
        return None
    return str(found.get("level", ""))


def similar_servers(server: str, written: Iterable[bytes]) -> list[str]:
    """The servers in the log whose names are similar, if it has none of this name."""
    labels = {label.decode(errors="replace") for line in written for label in _LABEL.findall(line)}
    names = {label if "/" in server else label.rpartition("/")[2] for label in labels}
    return [] if server in names else nearest(server, names, 1)
