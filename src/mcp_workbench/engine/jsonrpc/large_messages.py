"""Reads messages of several megabytes in pieces, so that other threads can run in between.

msgspec holds the GIL while it decodes, in any thread. Here every step decodes a piece of bounded size, and together the
pieces are validated as strictly as the whole message: invalid JSON must not pass, or a server could write the end of
its own response and the beginning of another.

In a request, the members of `params` are located as well, and those of large objects among them. Otherwise the router
would have to scan all of it again in one step.

A piece ends at a comma. Completed with the brackets that are open at its start and at its end, it is valid JSON by
itself; that commas separate the right things is checked here. Long strings are separate pieces. Everything nested two
or more levels deep is left out of the outline, in which the members of the message are then found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from msgspec import UNSET, DecodeError, Raw, UnsetType
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    READING_ERRORS,
    Envelope,
    LargeObject,
    Malformed,
    decode_object,
    decode_string,
    find_id,
)
from mcp_workbench.engine.nesting import MAX_NESTING, brackets_outside_strings, is_nested_deeper

# Decoding a piece takes half a millisecond, whatever it contains; larger ones would not make it faster as a whole.
PIECE_BYTES: Final = 1 << 15
# The outline of a message, without its nested values. In any real message, everything but the payload is small.
MAX_OUTLINE_BYTES: Final = 1 << 22
# Objects of at least this size in `params` are split into members as well: `use_tool` has its call in one.
LARGE_MEMBER: Final = 1 << 16
# How many commas are tried as the end of a piece before a longer piece is.
MAX_PIECE_TRIES: Final = 32
_MAX_TAIL_BYTES: Final = 1 << 12
# Rounds in which all matching pairs of brackets are removed at once, as long as each removes this part of them; the
# rest is followed run by run.
_MAX_PAIRING_ROUNDS: Final = 32
_WORTH_A_ROUND: Final = 8
_BRACKETS: Final = re.compile(rb"\[+|\{+|\]+|\}+")

_IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_MEMBER_KEY: Final = re.compile(rb'\s*+(?:,\s*+)?("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+')
_OPENING_OF_CLOSING: Final = {ord("}"): ord("{"), ord("]"): ord("[")}
_CLOSING_OF_OPENING: Final = {opening: closing for closing, opening in _OPENING_OF_CLOSING.items()}
_OBJECT: Final = ord("{")
_check: Final[Callable[[bytes], Raw]] = Decoder(Raw).decode

Span = tuple[int, int]


class LargeEnvelope(Envelope, gc=False):
    """A message that was read in pieces. `members` are those of `params`; None if there are none, or if `params` is not
    an object with a reasonable number of members."""

    members: LargeObject | None = None
    jsonrpc: Raw | UnsetType = UNSET


def read_large(
    line: bytes,
    piece_bytes: int = PIECE_BYTES,
    large_member: int = LARGE_MEMBER,
    pause: Callable[[], None] | None = None,
) -> Envelope:
    """Like `messages.read`, in pieces; `pause` is called after each. Raises `Malformed`."""
    if not line.startswith(b"{"):
        return _read_indented(line, piece_bytes)
    if not line.isascii() and not messages.is_utf8(line):
        raise Malformed("not valid UTF-8", find_id(line))
    outline = _Outline(line, (0, len(line)), piece_bytes, is_tolerant=True, pause=pause)
    try:
        outline.read()
        spans = outline.members()
    except _NoMessage as error:
        raise Malformed(f"not a JSON-RPC message: {error}", find_id(line), code=INVALID_REQUEST) from None
    except READING_ERRORS as error:
        raise Malformed(str(error) or "not valid JSON", find_id(line)) from None
    try:
        message = _envelope({name: memoryview(line)[start:end] for name, (start, end) in spans.items()})
    except READING_ERRORS as error:
        raise Malformed(f"not a JSON-RPC message: {error}", find_id(line), code=INVALID_REQUEST) from None
    if "params" in spans:
        # What was accepted as it is need not be validated again.
        long_strings = None if outline.has_tolerated else outline.long_strings
        message.members = _large_object(
            line, spans["params"], piece_bytes, large_member, long_strings, pause, deeper=True
        )
    return message


def _read_indented(line: bytes, piece_bytes: int) -> Envelope:
    """Read a line that does not begin with a brace, and say whether it is at least JSON."""
    try:
        return messages.read(line)
    except Malformed as error:
        if error.code != PARSE_ERROR or not _is_one_value(line, piece_bytes):
            raise
        raise Malformed(f"not a JSON-RPC message: {error}", error.id, code=INVALID_REQUEST) from None


def _is_one_value(line: bytes, piece_bytes: int) -> bool:
    """Whether a line is JSON of any kind, read in pieces as the only member of an object."""
    if not line.isascii() and not messages.is_utf8(line):
        return False
    wrapped = b'{"":%b}' % line.strip(b" \t\r\n")
    try:
        outline = _Outline(wrapped, (0, len(wrapped)), piece_bytes, is_tolerant=True)
        outline.read()
        return len(outline.members()) == 1
    except READING_ERRORS:
        return False


def _envelope(members: dict[str, memoryview]) -> LargeEnvelope:
    message = LargeEnvelope()
    if "method" in members:
        message.method = decode_string(members["method"])
    for name in ("id", "params", "result", "error", "jsonrpc"):
        if name in members:
            setattr(message, name, Raw(members[name]))
    if message.error is not UNSET and message.result is not UNSET and bytes(message.error) == b"null":
        message.error = UNSET
    return message


def _large_object(
    line: bytes,
    span: Span,
    piece_bytes: int,
    large_member: int,
    long_strings: dict[int, int] | None,
    pause: Callable[[], None] | None,
    *,
    deeper: bool = False,
) -> LargeObject | None:
    """The members of valid JSON; None if it is not an object, has too many members, or is not valid Unicode. The
    session then reports the problem."""
    if not line.startswith(b"{", span[0]):
        return None
    try:
        outline = _Outline(line, span, piece_bytes, is_tolerant=False, long_strings=long_strings, pause=pause)
        outline.read()
        spans = outline.members()
    except READING_ERRORS:
        return None
    view = memoryview(line)
    found = LargeObject({name: Raw(view[start:end]) for name, (start, end) in spans.items()})
    if deeper:
        for name, inside in spans.items():
            if inside[1] - inside[0] >= large_member:
                within = _large_object(line, inside, piece_bytes, large_member, long_strings, pause)
                if within is not None:
                    found.inner[name] = within
    return found


class _NoMessage(ValueError):
    """An object that is JSON, or was so far, but cannot be a message."""


class _Outline:
    """Validates a message, or an object in it, and records the positions of its outline.

    With the `long_strings` of a message that has been validated, it only looks for positions.
    """

    def __init__(
        self,
        line: bytes,
        span: Span,
        piece_bytes: int,
        *,
        is_tolerant: bool,
        long_strings: dict[int, int] | None = None,
        pause: Callable[[], None] | None = None,
    ) -> None:
        self._line = line
        self._start, self._end = span
        self._piece_bytes = piece_bytes
        # Whether to accept lone surrogates, which JavaScript writes.
        self._is_tolerant = is_tolerant
        self.has_tolerated = False
        self._is_valid = long_strings is not None
        self._pause = pause
        # Where each string that is longer than a piece begins and ends.
        self.long_strings: dict[int, int] = {} if long_strings is None else long_strings
        self._brackets = bytearray()
        # The spans since the end of the last piece.
        self._piece: list[Span] = []
        self._is_first = True
        # The outline, with the position of each part in the message; -1 for a placeholder of what was left out.
        self._parts: list[tuple[bytes, int]] = []
        self._size = 0
        # The brackets that are open at the end of the last part of the outline.
        self._kept_brackets = b""
        self._has_left_out = False

    def read(self) -> None:
        """Validate everything. Raises if it is invalid."""
        line, position, end = self._line, self._start, self._end
        while position < end:
            if self._pause is not None:
                self._pause()
            edge = min(position + self._piece_bytes, end)
            quote = _unended_string(line[position:edge])
            if quote == 0:
                position = self._long_string(position)
                continue
            stop = edge if quote < 0 else position + quote
            comma = self._last_comma(position, stop)
            if comma is None:
                self._piece.append((position, stop))
            else:
                self._piece.append((position, comma))
                self._end_piece(comma)
                self._piece = [(comma + 1, stop)]
            position = stop
        self._end_piece(None)

    def members(self) -> dict[str, Span]:
        """The position of each member."""
        text = b"".join(part for part, _ in self._parts)
        try:
            found = decode_object(text)
        except DecodeError:
            if not self._is_tolerant:
                raise
            text = messages.without_surrogates(text)
            found = decode_object(text)
        starts = [0, *accumulate(len(part) for part, _ in self._parts)]

        def place(offset: int) -> int:
            index = bisect_right(starts, offset) - 1
            return self._parts[index][1] + offset - starts[index]

        members: dict[str, Span] = {}
        at = text.index(b"{") + 1
        while (match := _MEMBER_KEY.match(text, at)) is not None:
            key, value = decode_string(match[1]), match.end()
            at = value + len(bytes(found[key]))
            if key in members or text[value:at] != bytes(found[key]):
                raise _NoMessage("a member appears twice")
            members[key] = (place(value), place(at - 1) + 1)
        if text[at:].strip(b" \t\r\n") != b"}":
            # The last value of a member begins its first one: `"id":10,"id":1`.
            raise _NoMessage("a member appears twice")
        return members

    def _long_string(self, quote: int) -> int:
        """Validate a string that is longer than a piece, and return the position of its end."""
        line, at, end = self._line, quote + 1, self._end
        self._piece.append((quote, at))
        if (known := self.long_strings.get(quote)) is not None:
            self._piece.append((known - 1, known))
            return known
        while True:
            if self._pause is not None:
                self._pause()
            stop = _end_in_string(line, at, min(at + self._piece_bytes, end))
            if stop < end and not line.startswith(b'"', stop):
                stop = _before_escape(line, at, stop)
            self._check(b'"%b"' % line[at:stop])
            if line.startswith(b'"', stop):
                self._piece.append((stop, stop + 1))
                self.long_strings[quote] = stop + 1
                return stop + 1
            if stop == at:
                raise ValueError("a string does not end")
            at = stop

    def _last_comma(self, start: int, stop: int) -> int | None:
        """The last comma outside of strings. `stop` is outside of strings too."""
        line, at = self._line, stop
        for _ in range(MAX_PIECE_TRIES):
            at = line.rfind(b",", max(start, stop - _MAX_TAIL_BYTES), at)
            if at < 0:
                return None
            tail = line[at:stop]
            if b"\\" in tail:
                return None
            if tail.count(b'"') % 2 == 0:
                return at
        return None

    def _end_piece(self, comma: int | None) -> None:
        text = b"".join(self._line[start:end] for start, end in self._piece)
        before = bytes(self._brackets)
        lowest = _follow(self._brackets, text)
        if not self._is_valid:
            self._validate(text, before, comma)
        if self._is_first or comma is None or min(lowest, len(before)) < 2:
            self._keep(before, comma)
        else:
            self._has_left_out = True
        self._is_first = False

    def _validate(self, text: bytes, before: bytes, comma: int | None) -> None:
        """Raise unless a piece is valid between the brackets that are open before it and after it."""
        bare = text.strip(b" \t\r\n")
        if (comma is None) != (not self._brackets) or not bare:
            raise ValueError("not valid JSON")
        if (not self._is_first and bare[:1] in b"]},") or (comma is not None and bare[-1:] in b"[{,"):
            raise ValueError("found a comma where a value is expected")
        completed = b"".join((_opened(before), text, _closed(self._brackets)))
        if is_nested_deeper(completed):
            raise ValueError(messages.TOO_DEEP)
        self._check(completed)

    def _check(self, text: bytes) -> None:
        """Raise unless this is valid JSON."""
        try:
            _check(text)
        except READING_ERRORS:
            if not self._is_tolerant or (tolerated := messages.without_surrogates(text)) == text:
                raise
            _check(tolerated)
            self.has_tolerated = True

    def _keep(self, before: bytes, comma: int | None) -> None:
        if self._has_left_out:
            self._parts.append((_leap(self._kept_brackets, before), -1))
            self._has_left_out = False
        spans = self._piece if comma is None else [*self._piece, (comma, comma + 1)]
        self._parts += [(self._line[start:end], start) for start, end in spans]
        self._kept_brackets = bytes(self._brackets)
        self._size += sum(end - start for start, end in spans)
        if self._size > MAX_OUTLINE_BYTES:
            raise _NoMessage("the parts other than its arguments or result are too large")


def _leap(here: bytes, there: bytes) -> bytes:
    """What to insert between two places within a payload, so that brackets match."""
    closing = b"".join((b'"":null' if here[-1] == _OBJECT else b"null", _closed(bytearray(here[2:]))))
    opening = b"" if len(there) == 2 else (b'"":' if there[1] == _OBJECT else b"") + _opened(there[2:])
    return b"".join((closing, b",", opening))


def _unended_string(text: bytes) -> int:
    """Where the string begins that goes on after `text`, which itself begins outside of strings; -1 if none does. A
    backslash outside of strings misleads it, but then the text is invalid and the check of its piece says so."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    return text.rfind(b'"') if text.count(b'"') % 2 else -1


def _end_in_string(line: bytes, start: int, stop: int) -> int:
    """Where a string that goes on at `start` ends; else the last position up to `stop` that does not cut an escape."""
    at = start
    for _ in range(MAX_PIECE_TRIES):
        quote = line.find(b'"', at, stop)
        end = stop if quote < 0 else quote
        if line.find(b"\\", end - 1, end) < 0:
            return end
        run = line[start:end]
        if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0:
            return end
        if quote < 0:
            return stop - 1
        at = quote + 1
    # Full of quotes: one expression takes ten times as long for a byte, and the same time for each quote.
    match = _IN_STRING.match(line, start, stop)
    assert match is not None
    return match.end()


def _before_escape(line: bytes, start: int, stop: int) -> int:
    """Move a position within a string back by a few bytes if it would cut an escape such as `\\u20ac` in two."""
    escape = line.rfind(b"\\u", max(start, stop - 5), stop)
    if escape < 0:
        return stop
    run = line[start:escape]
    return escape if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0 else stop


def _follow(brackets: bytearray, text: bytes) -> int:
    """Apply the brackets of `text`, and return the smallest number that were open at any time."""
    left = brackets_outside_strings(text)
    for _ in range(_MAX_PAIRING_ROUNDS):
        before = len(left)
        left = left.replace(b"{}", b"").replace(b"[]", b"")
        if before - len(left) < before // _WORTH_A_ROUND or not left:
            break
    lowest = len(brackets)
    for run in _BRACKETS.findall(left):
        if run[0] in _CLOSING_OF_OPENING:
            brackets += run
            if len(brackets) > MAX_NESTING:
                raise ValueError(messages.TOO_DEEP)
        else:
            if not brackets.endswith(bytes((_OPENING_OF_CLOSING[run[0]],)) * len(run)):
                raise ValueError("a bracket is closed that was not open")
            del brackets[-len(run) :]
            lowest = min(lowest, len(brackets))
    return lowest


def _opened(brackets: bytes) -> bytes:
    """The prefix that completes a piece: in the innermost object, a member follows."""
    if not brackets:
        return b""
    outer = b"".join(b'{"":' if each == _OBJECT else b"[" for each in brackets[:-1])
    return outer + brackets[-1:]


def _closed(brackets: bytearray) -> bytes:
    return bytes(_CLOSING_OF_OPENING[each] for each in reversed(brackets))
