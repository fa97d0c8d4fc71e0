"""Shortens prose: first sentences and truncated descriptions.

Owns where a sentence ends. Knows nothing about what the text is for.
"""

from __future__ import annotations

import re

ELLIPSIS = "…"
_MAX_SENTENCE_LENGTH = 240  # Anything longer is a list, or lacks a full stop.

# A full stop followed by white space and the start of a sentence: not "e.g. foo" or "v1. 2". The lookbehind makes a run
# of a thousand full stops one match attempt instead of a thousand. One set in front of all alternatives lets the search
# skip everything else.
_SENTENCE_END = re.compile(
    r"[.!?。！？\r\n](?:(?<=[^\s.!?][.!?])[.!?]*(?=\s+[^\sa-z])|(?<=[。！？])"
    r"|(?<=\n)(?:\s*\n|\s*(?=[-*#•])|(?=[A-Z]))|(?<=\r)\n(?=[A-Z]))"
)
_SPACE = re.compile(r"\s+")


def one_line(text: str) -> str:
    """`text` with each run of white space replaced by one space."""
    return _SPACE.sub(" ", text).strip()


def split_first_sentence(text: str) -> tuple[str, str]:
    text = text.strip()
    # A description without any end of a sentence is not searched to its last byte.
    for match in _SENTENCE_END.finditer(text, 0, 4 * _MAX_SENTENCE_LENGTH):
        head = text[: match.end()].strip()
        if not head.endswith(("e.g.", "i.e.", "etc.", "vs.")):
            return head, text[match.end() :].strip()
    return text, ""


def first_sentence(text: str) -> str:
    """The first sentence on one line, truncated if it is too long."""
    return clip(one_line(split_first_sentence(text)[0]), _MAX_SENTENCE_LENGTH)


def clip(text: str, limit: int) -> str:
    """Truncate to at most `limit` characters, between words if possible, with a mark."""
    if len(text) <= limit:
        return text
    cut = text[: max(limit - 1, 0)]
    space = cut.rfind(" ")
    # A long word near the beginning is cut rather than all of the text lost.
    if space > limit // 2:
        cut = cut[:space]
    return cut.rstrip(" ,;:.") + ELLIPSIS


def cut(text: str, most: int) -> str:
    """Truncate to at most `most` bytes of UTF-8, without splitting a character."""
    return text.encode()[: max(most, 0)].decode(errors="ignore")
