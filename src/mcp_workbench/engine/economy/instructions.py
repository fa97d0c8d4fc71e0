"""The `instructions` for a client: how to use the workbench, and what it contains, in as many bytes as it reads.

Owns the text and its limit, which holds by construction: toolboxes are described in increasing detail as long as they
fit. Knows nothing about where toolboxes come from.

Clients truncate instructions, so how to use the workbench comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import msgspec

from mcp_workbench.engine.economy.prose import ELLIPSIS, clip, cut, one_line

MAX_INSTRUCTIONS_BYTES = 2_048
HOW_TO_USE_TOOLS = (
    "MCP Workbench keeps the tools of many servers in toolboxes. "
    'Find a tool: `open_toolbox {"query": "what you need"}`. '
    'See a toolbox: `open_toolbox {"toolbox_name": "name"}`. '
    'Call a tool: `use_tool {"tool": {"toolbox": …, "server": …, "tool": …}, "arguments": {…}}`.'
)
# Where the toolboxes take all the room: the rest is in the descriptions of the tools, which every client shows.
HOW_IN_SHORT = (
    'Find tools: `open_toolbox {"query": "what you need"}`. '
    'See a toolbox: `{"toolbox_name": "name"}`. '
    "Call: `use_tool`."
)
_LISTS_TOOLBOXES = "`open_toolbox {}` lists them."
_HEADING: Final = "Toolboxes:"
_BULLET: Final = "- "

_MIN_NAMES: Final = 3


class Box(msgspec.Struct, frozen=True):
    """A toolbox to introduce. `tools` is their number, None until they are listed; `words` characterise it, by how much
    says `worth`."""

    name: str
    description: str = ""
    tools: int | None = None
    words: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    worth: tuple[float, ...] = ()


def instructions(
    boxes: Sequence[Box],
    *,
    most: int = MAX_INSTRUCTIONS_BYTES,
    how: str = HOW_TO_USE_TOOLS,
    how_in_short: str = HOW_IN_SHORT,
) -> str:
    """How to use the workbench, then each toolbox in as much detail as fits."""
    room = most - len(how.encode()) - 2
    if room <= 0:
        return _in_short(boxes, most)
    if boxes and not _has_room_for_descriptions(boxes, room - len(_HEADING)):
        how, room = how_in_short, most - len(how_in_short.encode()) - 2
    return how + "\n\n" + introduced(boxes, room)


def _in_short(boxes: Sequence[Box], most: int) -> str:
    """For clients that keep only a line or two: the toolboxes come first; usage is in the descriptions of the tools."""
    return cut("Find tools with open_toolbox. " + names(boxes, room=max(most - 30, 0)), most)


def introduced(boxes: Sequence[Box], room: int) -> str:
    """The toolboxes in at most `room` bytes: each with as much as there is room for, at least its name; where there is
    no room for all names, as many as fit and how many more there are."""
    if not boxes:
        return cut("No toolbox is configured.", room)
    lines = described_within(boxes, room - len(_HEADING))
    return names(boxes, room=room) if lines is None else "\n".join([_HEADING, *lines])


def described_within(boxes: Sequence[Box], room: int) -> list[str] | None:
    """A line for each toolbox, in at most `room` bytes with their line ends; None where their names alone take more."""
    every_word = [box.words for box in boxes]
    left = room - len(_BULLET) * len(boxes)
    everything = _lines(boxes, every_word, _DETAIL_LEVELS[-1])
    if _size(everything) <= left:
        # The common case first: most users have few toolboxes, and every client waits for this when it connects.
        return [_BULLET + line for line in everything]
    order = _order(boxes)
    if not _has_room_for_descriptions(boxes, room):
        # A list of words needs every byte for words.
        return _most_within(boxes, order, room)
    lines = _most_within(boxes, order, left)
    return None if lines is None else [_BULLET + line for line in lines]


def _has_room_for_descriptions(boxes: Sequence[Box], room: int) -> bool:
    level = _DETAIL_LEVELS[_FIRST_DESCRIBED]
    words = _by_box(boxes, _order(boxes)[: level.words_of_all(boxes)])
    return _size(_lines(boxes, words, level)) <= room - len(_BULLET) * len(boxes)


def _most_within(boxes: Sequence[Box], order: Sequence[tuple[int, str]], room: int) -> list[str] | None:
    within: tuple[list[str], int] | None = None
    for number, level in enumerate(_DETAIL_LEVELS):
        lines = _lines(boxes, _by_box(boxes, order[: level.words_of_all(boxes)]), level)
        if _size(lines) > room:
            break
        within = lines, number
    return None if within is None else _filled(boxes, order, *within, room)


def _filled(
    boxes: Sequence[Box], order: Sequence[tuple[int, str]], lines: list[str], level: int, room: int
) -> list[str]:
    """The same with more words, and then with longer descriptions of as many toolboxes as possible."""
    left = room - _size(lines)

    def replaced(number: int, longer: str) -> bool:
        nonlocal left
        more = len(longer.encode()) - len(lines[number].encode())
        if more > left:
            return False
        left -= more
        lines[number] = longer
        return True

    count = _DETAIL_LEVELS[level].words_of_all(boxes)
    words = _by_box(boxes, order[:count])
    for number, word in order[count:]:
        if replaced(number, _line(boxes[number], [*words[number], word], _DETAIL_LEVELS[level])):
            words[number].append(word)
    if level + 1 < len(_DETAIL_LEVELS):
        longer = _lines(boxes, words, _DETAIL_LEVELS[level + 1])
        for number in sorted(range(len(boxes)), key=lambda number: len(longer[number]) - len(lines[number])):
            replaced(number, longer[number])
    return lines


def _order(boxes: Sequence[Box]) -> list[tuple[int, str]]:
    """All words of all toolboxes, with the number of the toolbox: first those that say most for each byte. So a toolbox
    of many kinds of tools gets more words than one whose name says it all."""
    rated: list[tuple[float, int, int, str]] = []
    for number, box in enumerate(boxes):
        rate = float("inf")
        for place, (word, worth) in enumerate(zip(box.words, box.worth or repeat(1.0), strict=False)):
            # Never more than the word before, which comes first.
            rate = min(rate, worth / (len(word.encode()) + 1))
            rated.append((-rate, place, number, word))
    return [(number, word) for *_, number, word in sorted(rated)]


def _by_box(boxes: Sequence[Box], chosen: Sequence[tuple[int, str]]) -> list[list[str]]:
    words: list[list[str]] = [[] for _ in boxes]
    for number, word in chosen:
        words[number].append(word)
    return words


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


class _Level(NamedTuple):
    """How much is said about each toolbox: the mean number of distinctive words, the maximum length of its description,
    and whether its tools are counted and its servers named."""

    words: int
    longest: int
    counted: bool = False
    with_servers: bool = False

    def words_of_all(self, boxes: Sequence[Box]) -> int:
        """Without a description there are more words, because they are all there is."""
        instead = self.longest // _WORDS_INSTEAD_OF_DESCRIPTION
        return self.words * len(boxes) + instead * sum(not box.description for box in boxes)


# Lowest first. Words distinguish toolboxes better than descriptions and cost less; a number of tools distinguishes
# nothing.
_DETAIL_LEVELS: Final = (
    *(_Level(words, 0) for words in (0, 1, 2, 3)),
    *(_Level(3, longest) for longest in range(24, 81, 8)),
    *(_Level(words, 80) for words in (4, 5, 6)),
    *(_Level(6, longest) for longest in range(90, 161, 10)),
    *(_Level(words, 160) for words in (7, 8)),
    *(_Level(8, longest, counted=True) for longest in (160, 240)),
    *(_Level(8, longest, counted=True, with_servers=True) for longest in (240, 400, 2_000)),
)
_FIRST_DESCRIBED: Final = 4
_WORDS_INSTEAD_OF_DESCRIPTION: Final = 10


def _lines(boxes: Sequence[Box], words: Sequence[Sequence[str]], level: _Level) -> list[str]:
    return [_line(box, chosen, level) for box, chosen in zip(boxes, words, strict=True)]


def _line(box: Box, words: Sequence[str], level: _Level) -> str:
    description = clip(one_line(box.description), level.longest) if level.longest else ""
    said = [description] if description else []
    # What the description says in the words that are left of it is not repeated.
    new = [word for word in words if word.lower() not in description.lower()]
    if new:
        # Brackets tell words from the description. Without one they are left out, for more words.
        said.append(f"[{', '.join(new)}]" if description else " ".join(new))
    served = f" (servers: {', '.join(box.servers)})" if level.with_servers and box.servers else ""
    return f"{box.name}{_counted(box) if level.counted else ''}" + (": " + " ".join(said) if said else "") + served


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
    return cut(_names(every, shown if shown >= _MIN_NAMES else 0), room)


def _names(every: Sequence[str], shown: int, missing: int | None = None) -> str:
    if missing is None:
        missing = len(every) - shown
    if not shown:
        return f"{missing} toolboxes. {_LISTS_TOOLBOXES}"
    more = f", {ELLIPSIS} {missing} more. {_LISTS_TOOLBOXES}" if missing else ""
    return "Toolboxes: " + ", ".join(every[:shown]) + more
