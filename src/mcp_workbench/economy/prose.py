"""Shortening what people wrote: first sentences and clipped descriptions.

Owns where a sentence ends. Refuses to know what the text is about.
"""

from __future__ import annotations

import re

ELLIPSIS = "…"
_LONGEST_SENTENCE = 240  # Beyond this a "sentence" is a list or a missing full stop.

# A full stop followed by space and something that can start a sentence: not "e.g. foo" or "v1. 2". It begins where no
# other sign stands before it, so that a thousand of them are looked at once and not once for each.
_SENTENCE_END = re.compile(r"(?<=[^\s.!?])[.!?]+(?=\s+[^\sa-z])|[。！？]|\n\s*\n|\n\s*(?=[-*#•])|\r?\n(?=[A-Z])")
_SPACE = re.compile(r"\s+")


def one_line(text: str) -> str:
    """`text` with every stretch of white space as one space."""
    return _SPACE.sub(" ", text).strip()


def split_first_sentence(text: str) -> tuple[str, str]:
    text = text.strip()
    for match in _SENTENCE_END.finditer(text, 0, 4 * _LONGEST_SENTENCE):
        head = text[: match.end()].strip()
        if not head.endswith(("e.g.", "i.e.", "etc.", "vs.")):
            return head, text[match.end() :].strip()
    return text, ""


def first_sentence(text: str) -> str:
    """The first sentence on one line, cut when it does not end."""
    return clip(one_line(split_first_sentence(text)[0]), _LONGEST_SENTENCE)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there are any, and marked as cut."""
    if len(text) <= limit:
        return text
    cut = text[: max(limit - 1, 0)]
    space = cut.rfind(" ")
    if space > limit // 2:
        cut = cut[:space]
    return cut.rstrip(" ,;:.") + ELLIPSIS


def cut(text: str, most: int) -> str:
    """`text` in at most `most` bytes of UTF-8, whole characters only."""
    return text.encode()[: max(most, 0)].decode(errors="ignore")
