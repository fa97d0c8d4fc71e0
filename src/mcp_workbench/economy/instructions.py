"""The `instructions` a client is given: how to use the workbench, and what lies behind it, in at most 2,048 bytes.

Owns the text and its limit, which holds by construction: shorter and shorter ways of naming the toolboxes are tried,
and the last one does not name any. Refuses to know where toolboxes come from.

Claude Code cuts instructions and tool descriptions at 2 KB; how to use the thing therefore stands first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mcp_workbench.economy.prose import ELLIPSIS, clip, cut, one_line

MOST_BYTES = 2_048
HOW = (
    "MCP Workbench keeps the tools of many servers in toolboxes. "
    'Find a tool: `open_toolbox {"query": "what you need"}`. '
    'See a toolbox: `open_toolbox {"toolbox_name": "name"}`. '
    'Call a tool: `use_tool {"tool": "toolbox/server/tool", "arguments": {…}}`.'
)
_LIST = "`open_toolbox` without arguments lists them."


class Box(msgspec.Struct, frozen=True):
    """A toolbox as it is introduced. `tools` is None while nobody has counted them; `words` tell it apart."""

    name: str
    description: str = ""
    tools: int | None = None
    words: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def instructions(boxes: Sequence[Box], *, most: int = MOST_BYTES, how: str = HOW) -> str:
    """How to use the workbench, then each toolbox in as many words as there is room for."""
    room = most - len(how.encode()) - 2
    return how + "\n\n" + introduced(boxes, room) if room > 0 else cut(how, most)


def introduced(boxes: Sequence[Box], room: int) -> str:
    """The toolboxes in at most `room` bytes: with description and words, then shorter, then names, then a number."""
    if not boxes:
        return cut("No toolbox is configured.", room)
    for text in _attempts(boxes):
        if len(text.encode()) <= room:
            return text
    return cut(f"{len(boxes)} toolboxes. {_LIST}", room)


def _attempts(boxes: Sequence[Box]) -> Iterable[str]:
    for longest, words in ((400, 8), (160, 8)):
        yield "Toolboxes:\n" + "\n".join(_line(box, longest, words) + _served(box) for box in boxes)
    for longest, words in ((160, 8), (100, 6), (60, 5), (40, 3), (0, 4), (0, 3), (0, 2), (0, 0)):
        yield "Toolboxes:\n" + "\n".join(_line(box, longest, words) for box in boxes)
    yield "Toolboxes: " + ", ".join(f"{box.name}{_counted(box)}" for box in boxes)
    yield names(boxes)


def _line(box: Box, longest: int, words: int) -> str:
    said = [clip(one_line(box.description), longest)] if longest and box.description else []
    if box.words and words:
        said.append(f"[{', '.join(box.words[:words])}]")
    return f"- {box.name}{_counted(box)}" + (": " + " ".join(said) if said else "")


def _served(box: Box) -> str:
    return f" (servers: {', '.join(box.servers)})" if box.servers else ""


def _counted(box: Box) -> str:
    return "" if box.tools is None else f" ({box.tools} tool{'' if box.tools == 1 else 's'})"


def names(boxes: Sequence[Box], *, room: int | None = None) -> str:
    """The bare names on one line, for the description of `open_toolbox`; as many as fit, and how many more."""
    every = [box.name for box in boxes]
    return _fitting(every, lambda shown: _names(every, shown), room)


def _names(every: Sequence[str], shown: int) -> str:
    if not shown:
        return f"{len(every)} toolboxes. {_LIST}"
    more = f", {ELLIPSIS} {len(every) - shown} more. {_LIST}" if shown < len(every) else ""
    return "Toolboxes: " + ", ".join(every[:shown]) + more


def _fitting(every: Sequence[str], written: Callable[[int], str], room: int | None) -> str:
    if room is None:
        return written(len(every))
    for shown in (len(every), *range(len(every) - 1, -1, -1)):
        if len(text := written(shown)) <= room and len(text.encode()) <= room:
            return text
    return cut(written(0), room)
