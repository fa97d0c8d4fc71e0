"""Reads a huge result in pieces: its start, its shape, and whichever part the caller requests next.

Pure functions over a stored `tools/call` result. Knows nothing about where results are kept, for how long or for whom.
Every function takes at most linear time, and returns at most the number of bytes it is given.

`grep` deliberately has no regular expressions: Python's can take exponential time on hostile text and cannot be
interrupted. It searches for plain text, with `*` for anything on the line and `|` between alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

import msgspec

from mcp_workbench.engine.economy.prose import ELLIPSIS, clip, cut
from mcp_workbench.engine.economy.records import records
from mcp_workbench.engine.economy.tool import WRAPPERS
from mcp_workbench.engine.economy.value_shape import shape
from mcp_workbench.engine.slices import sliced

_MAX_PIECE_LINE_LENGTH = 400
_MAX_PATTERN_LENGTH = 400
_MAX_ALTERNATIVES = 16
# The most values in a result that is decoded as a whole. That takes a tenth of a second, during which no other client
# is served.
MAX_DECODED_VALUES = 1_000_000
# The largest single line of JSON that is split into lines, in bytes, for the same reason.
MAX_LAID_OUT_BYTES = 16 * 1024 * 1024
# How many blocks of a result are read. Real results have a few.
MAX_RESULT_BLOCKS = 100_000
# How many blocks without text are mentioned.
MAX_OTHER_BLOCKS = 20
_MAX_TYPE_LENGTH = 40
# The largest text that is looked at as a table to tell its shape, and how much is shown of values whose shape is told.
MAX_TABLE_BYTES = 4 * 1024 * 1024
MAX_SAMPLE_BYTES = 2_000
# What says that lines were left out.
_AROUND_A_GAP = 24
# A JSON string of Base64, alone or in a `data:` URI. Nothing shorter is worth hiding: hashes and keys are text. A slash
# may be escaped, as PHP does. Linear: no part of it matches the quote that it begins with. One class of characters and
# not a group that is repeated, because `re` keeps 170 bytes for each round of a group.
_BASE64 = re.compile(rb'"(data:[\w/+.;=-]{0,100},)?([A-Za-z0-9+/_\\-]{256,}={0,2})"')


class Reading(NamedTuple):
    """The readable content of a result: its text, its JSON value if any, and the types of its other blocks."""

    text: str
    value: object
    is_json: bool
    others: tuple[str, ...] = ()
    # There is a value, but it is too large to decode.
    is_too_large: bool = False
    is_structured: bool = False
    # The name of the only member of the object that was left out around it.
    wrapper: str = ""

    @property
    def whole(self) -> object:
        """Its value with the object around it."""
        value = self.value if self.is_json else self.text
        return {self.wrapper: value} if self.wrapper else value

    @property
    def declared(self) -> object:
        """Its value as a signature says it (`returned`): what is in the only member of an object, if that is one of
        `WRAPPERS`, whatever the text repeats."""
        whole = self.whole
        if (self.wrapper or self.is_structured) and isinstance(whole, dict) and len(whole) == 1:
            ((name, inner),) = whole.items()
            return inner if name in WRAPPERS else whole
        return whole


class Part(NamedTuple):
    """A piece of a result. `note` describes it; `following` is where to continue, None at the end."""

    text: str
    note: str
    following: int | None = None


class _Embedded(msgspec.Struct):
    text: str | None = None


class _ContentBlock(msgspec.Struct):
    type: str = ""
    text: str = ""
    resource: _Embedded | None = None

    def readable(self) -> str | None:
        """Its text, or that of an embedded resource; None if it has none."""
        if self.type == "text":
            return self.text
        return None if self.resource is None else self.resource.text


class _ToolResult(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")
    structured: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="structuredContent")


_decode_result = msgspec.json.Decoder(_ToolResult).decode
_decode_blocks = msgspec.json.Decoder(list[_ContentBlock]).decode


def reading(result: bytes, *, largest_value: int | None = None) -> Reading:
    """Read a stored result. Its value is `structuredContent`, or its text if all of it is JSON. Base64 is left out.

    A value of more than `largest_value` bytes is not decoded, for callers that need only the text. Nor is one of more
    than `MAX_DECODED_VALUES` values, which would delay all other clients and take many times its size in memory."""
    try:
        opened = _decode_result(result)
        texts, others = _blocks(opened.content)
    except (msgspec.DecodeError, RecursionError):
        return Reading(result.decode(errors="replace"), None, False)
    text = "\n".join(texts)
    if text.lstrip()[:1] in ("{", "["):
        text = bytes(without_base64(text.encode())[0]).decode()
    structured, wrapper = _unwrapped(bytes(without_base64(bytes(opened.structured))[0]), texts)
    # A long text is not copied to find out that it is no JSON.
    raw = structured or (text.strip().encode() if text.lstrip()[:1] in ("{", "[") else b"")
    value: object = None
    # Of structured content, a number or a list may be left.
    is_json = bool(structured) or raw[:1] in (b"{", b"[")
    is_too_large = is_json and not _can_be_decoded(raw)
    if is_json and not is_too_large and (largest_value is None or len(raw) <= largest_value):
        value, is_json = _decoded(raw)
    else:
        is_json = False
    if structured and len(text.encode()) < len(structured) and not (is_json and _says(texts, value)):
        # The text does not contain the value, so the value is shown as well.
        text = f"{text}\n\n{structured.decode()}" if text else structured.decode()
    return Reading(text, value, is_json, others, is_too_large, bool(structured), wrapper)


def _unwrapped(structured: bytes, texts: Sequence[str]) -> tuple[bytes, str]:
    """Structured content without the object around it, if that has one member and the text is this member; its name.

    Structured content has to be an object, so servers put a text, a list or a number into one: `{"content": …}` in the
    reference servers, `{"result": …}` in the official SDK and FastMCP. A text that repeats the text block leaves
    nothing: whoever reads the result reads the text."""
    try:
        members = msgspec.json.decode(structured, type=dict[str, msgspec.Raw]) if structured else {}
        if len(members) != 1:
            return structured, ""
        ((name, raw),) = members.items()
        inner = bytes(raw)
        if inner[:1] == b'"':
            repeats = msgspec.json.decode(inner, type=str).strip() == "\n".join(texts).strip()
            return (b"", name) if repeats else (structured, "")
        is_small = _can_be_decoded(inner) and len(inner) <= MAX_LAID_OUT_BYTES
        is_said = is_small and _says(texts, msgspec.json.decode(inner))
        return (inner, name) if is_said else (structured, "")
    except (msgspec.DecodeError, RecursionError):
        return structured, ""


def said_once(result: bytes, may_shorten: bool) -> bytes:
    """A result without its structured content, if its text says the same. With `may_shorten`, the text is the shorter
    of the two ways to write it: many servers indent it."""
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
        opened = _decode_result(result)
        blocks = msgspec.json.decode(opened.content, type=list[_ContentBlock])
    except (msgspec.DecodeError, RecursionError):
        return result
    structured, texts = bytes(opened.structured), [block.text for block in blocks]
    if not structured or not blocks or any(block.type != "text" for block in blocks):
        return result
    left, _ = _unwrapped(structured, texts)
    if left and not (_can_be_decoded(left) and _says(texts, _decoded(left)[0])):
        return result
    del members["structuredContent"]
    is_plain = b'"annotations"' not in bytes(opened.content) and b'"_meta"' not in bytes(opened.content)
    if left and may_shorten and is_plain and len(left) < sum(map(len, texts)):
        members["content"] = msgspec.Raw(msgspec.json.encode([{"type": "text", "text": left.decode()}]))
    return msgspec.json.encode(members)


def without_base64(written: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """JSON with binary data replaced by its size, and how often: no agent can read it, and it would take the room of
    what it can."""
    view = memoryview(written)
    parts: list[bytes | memoryview] = []
    end = replaced = 0
    for found in _BASE64.finditer(written):
        size = _size_of_base64(found[2])
        if size is not None:
            parts += (view[end : found.start()], b'"%s(binary data, %d bytes)"' % (found[1] or b"", size))
            end = found.end()
            replaced += 1
    return (b"".join((*parts, view[end:])), replaced) if replaced else (written, 0)


def _size_of_base64(written: bytes) -> int | None:
    """How many bytes it stands for; None for text."""
    data = written.replace(b"\\/", b"/")
    if b"\\" in data:
        # Another escape sequence.
        return None
    # A long word is no binary data: random bytes have letters of both cases and digits.
    if data.isalpha() or data.islower() or data.isupper() or not any(48 <= byte <= 57 for byte in data):
        return None
    return len(data) * 3 // 4


def _blocks(content: msgspec.Raw) -> tuple[list[str], tuple[str, ...]]:
    """The texts of all blocks, and the types of those without text: the first few, and the number of others."""
    texts: list[str] = []
    others: list[str] = []
    count = 0
    for block in islice(chain.from_iterable(sliced(content, _decode_blocks)), MAX_RESULT_BLOCKS):
        readable = block.readable()
        if readable is not None:
            texts.append(readable)
        else:
            count += 1
            if count <= MAX_OTHER_BLOCKS:
                others.append(block.type[:_MAX_TYPE_LENGTH])
    if count > MAX_OTHER_BLOCKS:
        others.append(f"{count - MAX_OTHER_BLOCKS:,} more")
    if len(texts) + count == MAX_RESULT_BLOCKS:
        others.append(f"what follows the first {MAX_RESULT_BLOCKS:,} blocks")
    return texts, tuple(others)


def _can_be_decoded(raw: bytes) -> bool:
    """Whether it probably does not contain too many values, judged without decoding it."""
    return len(raw) <= MAX_DECODED_VALUES or raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= MAX_DECODED_VALUES


def _decoded(raw: bytes) -> tuple[object, bool]:
    try:
        return msgspec.json.decode(raw), True
    except (msgspec.DecodeError, RecursionError):
        return None, False


def _says(texts: Sequence[str], value: object) -> bool:
    """Whether text blocks represent this value: together as JSON with any white space, or one block for each item."""
    if _is_said(texts[0] if len(texts) == 1 else "\n".join(texts), value):
        return True
    return isinstance(value, list) and len(value) == len(texts) and all(map(_is_said, texts, value))


def _is_said(text: str, value: object) -> bool:
    if text == value:
        return True
    written = text.encode()
    return _can_be_decoded(written) and _decoded(written) == (value, True)


def by_line(text: str) -> str:
    """The text split into lines: JSON on one long line, as most servers write it, is pretty-printed first."""
    return "\n".join(map(_laid_out, text.split("\n")))


def _laid_out(line: str) -> str:
    if not _MAX_PIECE_LINE_LENGTH < len(line) <= MAX_LAID_OUT_BYTES or line.lstrip()[:1] not in ("{", "["):
        return line
    try:
        return msgspec.json.format(line.encode(), indent=1).decode()
    except (msgspec.DecodeError, RecursionError):
        return line


def _lines(text: str) -> list[str]:
    """The lines, as editors and `wc` count them: a line break at the end begins no further one."""
    every = text.split("\n")
    if len(every) > 1 and not every[-1]:
        every.pop()
    return every


def facts(read: Reading) -> str:
    """How large a result is."""
    others = ", ".join(read.others)
    if others and not read.text:
        return f"Full result: {others}."
    lines = read.text.count("\n") + (not read.text.endswith("\n"))
    size = len(read.text) if read.text.isascii() else len(read.text.encode())
    said = f"Full result: {size:,} bytes, {lines:,} line{'s' * (lines != 1)}"
    return f"{said} and {others}." if others else f"{said}."


def overview(read: Reading, room: int, said: str | None = None) -> str:
    """The start of a result and a summary of its shape, in at most `room` bytes. `said` are its `facts`, if known."""
    summary = cut(facts(read) if said is None else said, room)
    table = None if read.is_json or len(read.text) > MAX_TABLE_BYTES else records(read.text)
    if read.is_json or table is not None:
        summary = cut(summary + "\nShape: " + shape(table or read.value, room // 3), room)
        # The shape says more about values than their beginning does.
        room = min(room, len(summary.encode()) + MAX_SAMPLE_BYTES)
    left = room - len(summary.encode()) - len("\n\n")
    shown = "" if left <= 0 else page(read.text, 0, left).text if read.is_json else _ends(read.text, left)
    return f"{summary}\n\n{shown}" if shown else summary


def _ends(text: str, room: int) -> str:
    """The first and the last lines of a text: what a log or a build says last is mostly what matters."""
    start = page(text, 0, room * 2 // 3).text
    size = room // 3 - _AROUND_A_GAP
    tail = text[max(len(start), len(text) - size) :] if size > 0 else ""
    # Whole lines.
    last = tail.encode()[-size:].decode(errors="ignore").partition("\n")[2] if tail else ""
    if not last.strip() or not start.endswith("\n"):
        return page(text, 0, room).text
    left_out = text.count("\n", len(start), len(text) - len(last))
    return f"{start}{ELLIPSIS} ({left_out:,} lines)\n{last}"


def page(text: str, start: int, room: int) -> Part:
    """The text from character `start` on, up to `room` bytes, ending at the end of a line if there is one near."""
    start = max(start, 0)
    piece = cut(text[start : start + max(room, 0)], room)
    if start + len(piece) < len(text):
        line_end = piece.rfind("\n")
        # A line end near the beginning would make the page useless: then a line is cut.
        if line_end > len(piece) // 2:
            piece = piece[: line_end + 1]
    end = start + len(piece)
    following = end if piece and end < len(text) else None
    return Part(piece, f"characters {start:,} to {end:,} of {len(text):,}", following)


def lines(text: str, first: int, last: int, room: int) -> Part:
    """The lines `first` to `last`, counted from 1, with their numbers, as many as fit into `room` bytes."""
    every = _lines(text)
    first = max(first, 1)
    last = min(last, len(every))
    shown, used = _numbered(((number, every[number - 1]) for number in range(first, last + 1)), room)
    end = first + used - 1
    following = end + 1 if end < len(every) and used else None
    return Part("\n".join(shown), f"lines {first:,} to {end:,} of {len(every):,}", following)


def grep(text: str, pattern: str, *, room: int, first: int = 1, around: int = 0) -> Part:
    """The lines from `first` on that match `pattern`, with `around` lines of context, as many as fit into `room` bytes.

    Case-insensitive unless the pattern has upper-case letters. `*` matches anything, `|` separates alternatives."""
    every = _lines(text)
    # As `smartcase` in editors and ripgrep.
    folded = pattern == pattern.lower()
    wanted = _alternatives(pattern)
    if not wanted:
        return Part("", "the pattern is empty")
    found = [
        number
        for number in range(max(first, 1), len(every) + 1)
        if _holds(every[number - 1].lower() if folded else every[number - 1], wanted)
    ]
    around = min(max(around, 0), 20)
    numbers = dict.fromkeys(
        near for number in found for near in range(max(number - around, 1), min(number + around, len(every)) + 1)
    )
    # Lazily: what does not fit into the room is never cut out.
    excerpts = ((number, _excerpt(every[number - 1], wanted, folded=folded)) for number in numbers)
    shown, used = _numbered(excerpts, room)
    following = list(numbers)[used] if used and used < len(numbers) else None
    return Part("\n".join(shown), f"{len(found):,} matching line{'s' * (len(found) != 1)}", following)


def count(text: str, pattern: str) -> Part:
    """How many lines match `pattern`, and how many each of its alternatives."""
    folded = pattern == pattern.lower()
    wanted = _alternatives(pattern)
    matching = 0
    counts = [0] * len(wanted)
    for line in _lines(text):
        searched = line.lower() if folded else line
        found = [_position(searched, pieces) >= 0 for pieces in wanted]
        matching += any(found)
        counts = [before + one for before, one in zip(counts, found, strict=True)]
    each = zip(wanted, counts, strict=True) if len(wanted) > 1 else ()
    told = "\n".join(f"{number:,}: {'*'.join(pieces)}" for pieces, number in each)
    return Part(told, f"{matching:,} matching line{'s' * (matching != 1)}")


def _alternatives(pattern: str) -> list[list[str]]:
    listed = pattern[:_MAX_PATTERN_LENGTH].split("|")[:_MAX_ALTERNATIVES]
    pieces = [[piece for piece in alternative.split("*") if piece] for alternative in listed]
    return [alternative for alternative in pieces if alternative]


def _holds(line: str, alternatives: Iterable[Sequence[str]]) -> bool:
    return any(_position(line, pieces) >= 0 for pieces in alternatives)


def _position(line: str, pieces: Sequence[str]) -> int:
    """The position of the first piece if all occur in the line in order, else -1. Linear: each is searched for once,
    because the earliest match of a piece leaves the most text for the next."""
    start = at = line.find(pieces[0])
    for before, piece in pairwise(pieces):
        if at < 0:
            return -1
        at = line.find(piece, at + len(before))
    return start if at >= 0 else -1


def _excerpt(line: str, alternatives: Iterable[Sequence[str]], *, folded: bool) -> str:
    """A line, or the part of a long line around the match: JSON is often a single line of several megabytes."""
    if len(line) <= _MAX_PIECE_LINE_LENGTH:
        return line
    searched = line.lower() if folded else line
    at = max((_position(searched, pieces) for pieces in alternatives), default=0)
    start = max(0, at - _MAX_PIECE_LINE_LENGTH // 4)
    return ELLIPSIS * (start > 0) + clip(line[start : start + 2 * _MAX_PIECE_LINE_LENGTH], _MAX_PIECE_LINE_LENGTH)


def _numbered(numbered: Iterable[tuple[int, str]], room: int) -> tuple[list[str], int]:
    shown: list[str] = []
    for number, line in numbered:
        written = f"{number}: {line}"
        room -= len(written.encode()) + 1
        if room < 0:
            if not shown:
                left = room + len(written.encode()) + 1
                shown.append(cut(written, left - len(ELLIPSIS.encode())) + ELLIPSIS)
            break
        shown.append(written)
    return shown, len(shown)
