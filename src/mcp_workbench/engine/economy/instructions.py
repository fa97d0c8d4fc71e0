"""The `instructions` for a client: how to use the workbench, and what it contains, in at most 2,048 bytes.

Owns the text and its limit, which holds by construction: toolboxes are described in increasing detail as long as they
fit. Knows nothing about where toolboxes come from.

Claude Code truncates instructions and tool descriptions at 2 KB, so how to use the workbench comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mcp_workbench.engine.economy.prose import ELLIPSIS, clip, cut, one_line

MOST_BYTES = 2_048
HOW = (
    "MCP Workbench keeps the tools of many servers in toolboxes. "
    'Find a tool: `open_toolbox {"query": "what you need"}`. '
    'See a toolbox: `open_toolbox {"toolbox_name": "name"}`. '
    'Call a tool: `use_tool {"tool": {"toolbox": …, "server": …, "tool": …}, "arguments": {…}}`.'
)
_LIST = "`open_toolbox {}` lists them."


_FEWEST_NAMES: Final = 3


class Box(msgspec.Struct, frozen=True):
    """A toolbox to introduce. `tools` is their number, None until they are listed; `words` characterise it."""

    name: str
    description: str = ""
    tools: int | None = None
    words: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def instructions(boxes: Sequence[Box], *, most: int = MOST_BYTES, how: str = HOW) -> str:
    """How to use the workbench, then each toolbox in as much detail as fits."""
    room = most - len(how.encode()) - 2
    return how + "\n\n" + introduced(boxes, room) if room > 0 else _in_short(boxes, most)


def _in_short(boxes: Sequence[Box], most: int) -> str:
    """For clients that keep only a line or two: the toolboxes come first; usage is in the descriptions of the tools."""
    return cut("Find tools with open_toolbox. " + names(boxes, room=max(most - 30, 0)), most)


def introduced(boxes: Sequence[Box], room: int) -> str:
    """The toolboxes in at most `room` bytes: each with as much as there is room for, at least its name; where there is
    no room for all names, as many as fit and how many more there are."""
    if not boxes:
        return cut("No toolbox is configured.", room)
    lines = described_within(boxes, room - len("Toolboxes:"))
    return names(boxes, room=room) if lines is None else "\n".join(["Toolboxes:", *lines])


def described_within(boxes: Sequence[Box], room: int) -> list[str] | None:
    """A line for each toolbox, in at most `room` bytes with their line ends; None where their names alone take more."""
    everything = [_line(box, *_LEVELS[-1]) for box in boxes]
    if _size(everything) <= room:
        # The common case first: most users have few toolboxes, and every client waits for this when it connects.
        return everything
    level = 0
    lines = [_line(box, *_LEVELS[0]) for box in boxes]
    if _size(lines) > room:
        return None
    for higher in range(1, len(_LEVELS)):
        longer = [_line(box, *_LEVELS[higher]) for box in boxes]
        if _size(longer) > room:
            break
        level, lines = higher, longer
    return _filled(boxes, lines, level, room)


def _filled(boxes: Sequence[Box], lines: list[str], level: int, room: int) -> list[str]:
    """Describe as many toolboxes as possible in one level more detail: first those for which it takes least."""
    if level + 1 == len(_LEVELS):
        return lines
    left = room - _size(lines)
    longer = [_line(box, *_LEVELS[level + 1]) for box in boxes]
    more = [len(long.encode()) - len(line.encode()) for long, line in zip(longer, lines, strict=True)]
    for number in sorted(range(len(boxes)), key=more.__getitem__):
        if more[number] <= left:
            left -= more[number]
            lines[number] = longer[number]
    return lines


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


# Levels of detail for a toolbox, lowest first: how many distinctive words to add, the maximum length of its
# description, and whether to count its tools and name its servers. Words distinguish toolboxes better than descriptions
# and cost less; a number of tools distinguishes nothing. Without a description there are more words, because they are
# all there is.
_LEVELS: Final = (
    *((words, 0, False, False) for words in (0, 1, 2, 3)),
    *((3, longest, False, False) for longest in range(24, 81, 8)),
    *((words, 80, False, False) for words in (4, 5, 6)),
    *((6, longest, False, False) for longest in range(90, 161, 10)),
    *((words, 160, False, False) for words in (7, 8)),
    *((8, longest, True, False) for longest in (160, 240)),
    *((8, longest, True, True) for longest in (240, 400, 2_000)),
)
_WORDS_INSTEAD_OF_DESCRIPTION: Final = 10


def _line(box: Box, words: int, longest: int, counted: bool, with_servers: bool) -> str:
    description = clip(one_line(box.description), longest) if longest else ""
    if longest and not description:
        words += longest // _WORDS_INSTEAD_OF_DESCRIPTION
    said = [description] if description else []
    # What the description says in the words that are left of it is not repeated.
    new = [word for word in box.words if word.lower() not in description.lower()][:words]
    if new:
        # Brackets tell words from the description. Without one they are left out, for more words.
        said.append(f"[{', '.join(new)}]" if description else " ".join(new))
    served = f" (servers: {', '.join(box.servers)})" if with_servers and box.servers else ""
    return f"- {box.name}{_counted(box) if counted else ''}" + (": " + " ".join(said) if said else "") + served


def _counted(box: Box) -> str:
    return "" if box.tools is None else f" ({box.tools} tool{'' if box.tools == 1 else 's'})"


def names(boxes: Sequence[Box], *, room: int | None = None) -> str:
    """The names on one line, for the description of `open_toolbox` and where nothing else fits: as many as possible,
    and the number of those left out."""
    every = [box.name for box in boxes]
    if room is None or len(_names(every, len(every)).encode()) <= room:
        return _names(every, len(every))
    # Reserve space for the longest possible note, that all of them are missing.
    left = room - len(_names([], 0, len(every)).encode()) - len("Toolboxes: ")
    shown = 0
    for name in every:
        left -= len(name.encode()) + 2
        if left < 0:
            break
        shown += 1
    # One or two names of many say nothing about the others; their number says that there is more to find.
    return cut(_names(every, shown if shown >= _FEWEST_NAMES else 0), room)


def _names(every: Sequence[str], shown: int, missing: int | None = None) -> str:
    if missing is None:
        missing = len(every) - shown
    if not shown:
        return f"{missing} toolboxes. {_LIST}"
    more = f", {ELLIPSIS} {missing} more. {_LIST}" if missing else ""
    return "Toolboxes: " + ", ".join(every[:shown]) + more
