"""The instructions of the face `flat`: which servers there are, and each server's own instructions. Pure.

Owns that all of it fits within the clients' limits: they truncate, which could drop whole servers at the end. So every
server is named first, and the remaining space is divided among their instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from mcp_workbench.engine.economy.instructions import MOST_BYTES
from mcp_workbench.engine.economy.prose import ELLIPSIS, clip, cut, one_line

# The share of the space for the names of servers and why some are unavailable, while these can be shortened.
_SHARE_OF_NAMES: Final = 0.75
# A shorter excerpt of a server's instructions is useless.
_LEAST_SAID: Final = 160
# The maximum length of a reason or of a toolbox's description, tried in this order.
_REASONS: Final = (160, 60, 0)


class Introduced(Struct, frozen=True):
    place: str
    # Why it is unavailable.
    trouble: str | None = None
    instructions: str | None = None
    # The description of its toolbox, for the first server of each: some models see nothing else before they search.
    about: str = ""


def flat_instructions(head: str, servers: Sequence[Introduced], *, most: int = MOST_BYTES) -> str:
    """The instructions, in at most `most` bytes."""
    named = _named(head, servers, most)
    return named + _said(servers, most - len(named.encode()))


def _named(head: str, servers: Sequence[Introduced], most: int) -> str:
    for longest in _REASONS:
        text = "\n".join(
            [head, *(f"- {each.place}{_about(each, longest)}{_trouble(each, longest)}" for each in servers)]
        )
        if len(text.encode()) <= most * _SHARE_OF_NAMES:
            return text
    for shown in range(len(servers), 0, -1):
        more = f", {ELLIPSIS} {len(servers) - shown} more" if shown < len(servers) else ""
        text = f"{head} {', '.join(each.place for each in servers[:shown])}{more}"
        if len(text.encode()) <= most:
            return text
    return cut(f"{head} {len(servers)} of them", most)


def _about(server: Introduced, longest: int) -> str:
    about = clip(one_line(server.about[:1000]), longest) if longest else ""
    return f": {about}" if about else ""


def _trouble(server: Introduced, longest: int) -> str:
    if server.trouble is None:
        return ""
    return f" (not available: {clip(one_line(server.trouble[:1000]), longest)})" if longest else " (not available)"


def _said(servers: Sequence[Introduced], room: int) -> str:
    """The servers' own instructions. If they do not all fit, long ones are truncated to the same length."""
    saying = [(f"\n\nFrom {each.place}:\n", each.instructions) for each in servers if each.instructions]
    saying = saying[: room // _LEAST_SAID]
    texts = [""] * len(saying)
    shortest_first = sorted(range(len(saying)), key=lambda at: len(saying[at][1]))
    for done, at in enumerate(shortest_first):
        heading, text = saying[at]
        share = room // (len(saying) - done) - len(heading.encode())
        said = _within(text, share)
        if said:
            texts[at] = heading + said
            room -= len(texts[at].encode())
    return "".join(texts)


def _within(text: str, most: int) -> str:
    text = text[: most + 1]
    if len(text.encode()) <= most:
        return text
    return cut(text, most - len(ELLIPSIS.encode())).rstrip() + ELLIPSIS if most > len(ELLIPSIS.encode()) else ""
