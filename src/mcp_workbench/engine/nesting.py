"""How deep JSON is nested, found without decoding it.

How deep a decoder can go depends on the version of Python and on who calls it: about 1,000 levels on 3.11, several
thousand on 3.13. So the limit is ours, and far below all of these.
"""

from __future__ import annotations

import re
from typing import Final

# As in PHP's `json_decode`. Whoever reads a message after us, a call further in, can read it too.
MAX_NESTING: Final = 512
# Rounds that remove all innermost pairs of brackets at once, as long as each removes this part of them; the rest, which
# has long runs of the same bracket then, is followed run by run.
_MAX_NESTING_ROUNDS: Final = 16
_WORTH_A_ROUND: Final = 8
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKETS_NOR_QUOTES: Final = bytes(set(range(256)) - set(b'[]{}"'))
_SQUARE_BRACKETS: Final = re.compile(rb"\[+|\]+")


def is_nested_deeper(text: bytes, levels: int = MAX_NESTING) -> bool:
    """Whether valid JSON is nested more than `levels` deep."""
    # Most messages are too short for that, and most others have too few brackets.
    if len(text) <= 2 * levels or text.count(b"[") + text.count(b"{") <= levels:
        return False
    left = brackets_outside_strings(text, _SQUARE)
    depth = 0
    while depth < min(levels, _MAX_NESTING_ROUNDS):
        if len(left) <= 2 * (levels - depth):
            return False
        before = len(left)
        left = left.replace(b"[]", b"")
        depth += 1
        if before - len(left) < before // _WORTH_A_ROUND:
            break
    for run in _SQUARE_BRACKETS.findall(left):
        depth += len(run) if run.startswith(b"[") else -len(run)
        if depth > levels:
            return True
    return False


def brackets_outside_strings(text: bytes, table: bytes | None = None) -> bytes:
    """The brackets of JSON that begins and ends outside of strings, translated by `table`."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Strings without brackets first: usually none are left then, and splitting at quotes takes ten times as long.
    left = text.translate(table, _NEITHER_BRACKETS_NOR_QUOTES).replace(b'""', b"")
    return b"".join(left.split(b'"')[::2]) if b'"' in left else left
