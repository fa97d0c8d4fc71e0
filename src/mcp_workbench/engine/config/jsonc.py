"""JSON with comments and trailing commas, read by a parser that knows all positions.

Owns the syntax: what is wrong with a text, at which line and column, and what was expected there. It continues after
mistakes whose meaning is clear (a missing comma, a key without quotes), so that one run reports all of them. Does not
know what the keys mean. It is the slow reader: a valid file without comments is decoded by `msgspec` (`load`) and this
module is not even imported.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from mcp_workbench.engine.config.problems import MAX_CONFIG_NESTING, Path, Problem, quote

# With this many mistakes the file is not a configuration; reporting more would only cost memory.
_MAX_FAULTS = 1_000

# Possessive (`++`), so that an unterminated text of a megabyte is scanned only once. Not where a round can fail half
# way, as at a comment that does not end: before Python 3.11.5 the match then ends in the middle of that round.
SPACE_AND_COMMENTS = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+|(?>/\*(?s:.)*?\*/))*")
_BLANK_STARTS = frozenset(" \t\r\n/")
_JSON_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+"')
_TEXT_IN_STRING = re.compile(r'(?:[^"\\\n\r]++|\\[^\n\r])*+')
_SINGLE_QUOTED = re.compile(r"'[^'\n\r]*+'")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.+-])")
_JAVASCRIPT_WORD = re.compile(r"[^\W\d][\w$-]*+|\$[\w$-]*+")
_NUMBER_LIKE = re.compile(r"[-+.]?[\w.+-]++")
_BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<bad>.))', re.DOTALL)
_ESCAPED_SURROGATE = re.compile(r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<bad>\\u[dD][89a-fA-F]..)")
# Within 2**53, so that `int` and JSON agree; longer ones are decoded by `msgspec`, which knows its limits.
_SHORT_INTEGER = 16
_LITERALS = {"true": True, "false": False, "null": None}
# The values below these keys must not be printed, not even in a syntax error.
_SECRET_KEYS = frozenset({"env", "headers"})
_OTHER_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "nil": "null"}


class Spot:
    """A place whose position is wanted, and the wanted places inside it."""

    __slots__ = ("inner", "key", "value")

    def __init__(self) -> None:
        self.inner: dict[str | int, Spot] = {}
        self.key: int | None = None
        self.value: int | None = None


class _Frame:
    """An object or list that is still open."""

    __slots__ = ("key", "offset", "spot", "value")

    def __init__(self, value: dict[str, object] | list[object], offset: int, spot: Spot | None) -> None:
        self.value = value
        self.offset = offset
        self.spot = spot
        # The member or item being read; None between the members of an object.
        self.key: str | int | None = 0 if isinstance(value, list) else None

    @property
    def closer(self) -> str:
        return "}" if isinstance(self.value, dict) else "]"

    @property
    def name(self) -> str:
        return "object" if isinstance(self.value, dict) else "list"

    @property
    def content(self) -> str:
        return "key" if isinstance(self.value, dict) else "value"


class _Stop(Exception):
    """Nothing after this point can be understood."""


class Document:
    """What could be understood of a text, and what is wrong with its syntax."""

    def __init__(self, text: str, root: Spot | None = None) -> None:
        self.value: object = None
        self.problems: list[Problem] = []
        # Duplicate keys of objects, with the line and column of the last.
        self.repeated: dict[Path, tuple[int, int]] = {}
        # False if reading stopped early: `value` then lacks the rest, and should not be validated.
        self.complete = False
        self._text = text
        self._position = 0
        self._stack: list[_Frame] = []
        self._root = root
        # Computed for the first problem: a valid file has none.
        self._lines: list[int] | None = None
        try:
            self._read()
            self.complete = True
        except _Stop:
            pass

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return line and column, both counted from 1; a column is a character, not a byte."""
        if self._lines is None:
            self._lines = [-1, *(match.start() for match in re.finditer("\n", self._text))]
        line = bisect_left(self._lines, offset)
        return line, offset - self._lines[line - 1]

    # reading

    def _read(self) -> None:
        self._skip()
        if self._position >= len(self._text):
            self._fault("nothing but white space and comments", "an object that starts with `{`")
            raise _Stop
        self._value()
        # A loop, not recursion, so that a thousand nested brackets lead to a message.
        while self._stack:
            self._skip()
            if isinstance(self._stack[-1].value, dict):
                self._member()
            else:
                self._item()
        self._skip()
        if self._position < len(self._text):
            self._fault(f"{self._here()} after the end of the configuration", "nothing more")

    def _member(self) -> None:
        """Read one `"key": value`, or the end of the object."""
        if self._closes():
            return
        frame = self._stack[-1]
        offset = self._position
        key = self._key()
        frame.key = key
        members = frame.value
        assert isinstance(members, dict)
        if key in members and len(self.repeated) < _MAX_FAULTS:
            self.repeated[self._steps()] = self.line_and_column(offset)
        self._skip()
        if self._peek() == ":":
            self._position += 1
        else:
            self._fault(self._here(), f"`:` after the key {quote(key)}")
            # What looks like a value is read as one, although its colon is missing.
            if self._peek() not in ('"', "{", "[") and not _JSON_NUMBER.match(self._text, self._position):
                raise _Stop
        self._skip()
        if not self._value(offset):
            self._after_value()

    def _item(self) -> None:
        if self._closes():
            return
        if not self._value():
            self._after_value()

    def _closes(self) -> bool:
        """Whether the innermost object or list ends here; a closer of the other kind ends everything."""
        frame = self._stack[-1]
        # In `[1,,2]` and `{,}` the meaning is clear, so reading continues.
        while (letter := self._peek()) == ",":
            self._fault("a `,` with nothing before it", f"a {frame.content} or `{frame.closer}`")
            self._position += 1
            self._skip()
        if letter == frame.closer:
            self._position += 1
            self._stack.pop()
            self._after_value()
            return True
        if not letter:
            self._unclosed(f"a {frame.content} or `{frame.closer}`")
        if letter in "}]":
            line, column = self.line_and_column(frame.offset)
            self._fault(
                f"`{letter}`", f"`{frame.closer}` to close the {frame.name} opened at line {line}, column {column}"
            )
            raise _Stop
        return False

    def _after_value(self) -> None:
        """Read the comma that follows; a missing one is reported, and reading continues as if it were there."""
        if not self._stack:
            return
        frame = self._stack[-1]
        frame.key = frame.key + 1 if isinstance(frame.key, int) else None
        self._skip()
        letter = self._peek()
        if letter == ",":
            self._position += 1
        elif not letter:
            self._unclosed(f"`,` or `{frame.closer}`")
        elif letter not in "}]":
            self._fault(self._here(), f"`,` or `{frame.closer}`")
            if letter not in "\"'{[-_$" and not letter.isalnum():
                raise _Stop

    def _unclosed(self, expected: str) -> None:
        frame = self._stack[-1]
        line, column = self.line_and_column(frame.offset)
        self._fault(
            "the end of the file", f"{expected}: the {frame.name} opened at line {line}, column {column} is not closed"
        )
        raise _Stop

    def _value(self, key_offset: int | None = None) -> bool:
        """Read a value. True: an object or list was opened, whose content is read by the loop in `_read`."""
        offset = self._position
        spot = self._spot(key_offset, offset)
        letter = self._peek()
        if letter == "{":
            self._open({}, offset, spot)
        elif letter == "[":
            self._open([], offset, spot)
        elif letter == '"':
            self._place(self._string())
        else:
            self._place(self._scalar())
        return letter in ("{", "[")

    def _open(self, value: dict[str, object] | list[object], offset: int, spot: Spot | None) -> None:
        self._place(value)
        if len(self._stack) >= MAX_CONFIG_NESTING:
            self._fault(f"more than {MAX_CONFIG_NESTING} levels of nesting", "a configuration, which has about six")
            raise _Stop
        self._stack.append(_Frame(value, offset, spot))
        self._position += 1

    def _place(self, value: object) -> None:
        if not self._stack:
            self.value = value
            return
        frame = self._stack[-1]
        if isinstance(frame.value, dict):
            assert isinstance(frame.key, str)
            frame.value[frame.key] = value
        else:
            frame.value.append(value)

    def _spot(self, key_offset: int | None, offset: int) -> Spot | None:
        if self._stack:
            frame = self._stack[-1]
            spot = frame.spot.inner.get(frame.key) if frame.spot and frame.key is not None else None
        else:
            spot = self._root
        if spot is not None and spot.value is None:
            spot.key, spot.value = key_offset, offset
        return spot

    # words

    def _key(self) -> str:
        letter = self._peek()
        if letter == '"':
            return self._string()
        if letter == "'":
            return self._single_quoted()
        word = _JAVASCRIPT_WORD.match(self._text, self._position)
        if word is None:
            self._fault(self._here(), 'a key in `"`')
            raise _Stop
        self._fault(f"the key {quote(word[0])} without quotes", f'`"{word[0][:40]}"`')
        self._position = word.end()
        return word[0]

    def _string(self) -> str:
        match = _JSON_STRING.match(self._text, self._position)
        if match is None:
            return self._broken_string()
        start = self._position
        self._position = match.end()
        if "\\" not in match[0]:
            return match[0][1:-1]
        try:
            # Escapes are decoded by the library: surrogate pairs are easy to get wrong.
            text: str = msgspec.json.decode(match[0].encode(), type=str)
        except (msgspec.DecodeError, UnicodeError):
            self._bad_escapes(match[0], start)
            return match[0][1:-1]
        return text

    def _broken_string(self) -> str:
        start = self._position
        match = _TEXT_IN_STRING.match(self._text, start + 1)
        assert match is not None
        self._position = match.end()
        if self._peek() != '"':
            self._fault(
                "a string that does not end", '`"` before the end of the line', offset=start, hint=_LINE_BREAK_HINT
            )
            raise _Stop
        self._position += 1
        for index, letter in enumerate(match[0]):
            if letter < " ":
                self._fault(
                    f"the control character `{ascii(letter)[1:-1]}` inside a string",
                    f"`\\u{ord(letter):04x}` in its place",
                    offset=start + 1 + index,
                )
                break
        return match[0]

    def _bad_escapes(self, literal: str, start: int) -> None:
        for match in _BAD_ESCAPE.finditer(literal):
            if match["bad"] is not None:
                self._fault(
                    f"the unknown escape {quote(match[0])} in a string",
                    'one of `\\"`, `\\\\`, `\\/`, `\\b`, `\\f`, `\\n`, `\\r`, `\\t`, `\\u0000`',
                    offset=start + match.start(),
                    hint="a backslash itself, as in a Windows path, is written twice: `\\\\`",
                )
        for match in _ESCAPED_SURROGATE.finditer(literal):
            if match["bad"] is not None:
                self._fault(
                    f"{quote(match['bad'])}, one half of a surrogate pair",
                    "both halves, or the character itself",
                    offset=start + match.start(),
                )

    def _single_quoted(self) -> str:
        match = _SINGLE_QUOTED.match(self._text, self._position)
        self._fault("a string in single quotes", 'a string in `"`')
        if match is None:
            raise _Stop
        self._position = match.end()
        return match[0][1:-1]

    def _scalar(self) -> object:
        number = _JSON_NUMBER.match(self._text, self._position)
        if number is not None:
            return self._number(number[0])
        if self._peek() == "'":
            return self._single_quoted()
        word = _JAVASCRIPT_WORD.match(self._text, self._position)
        if word is not None and word[0] in _LITERALS:
            self._position = word.end()
            return _LITERALS[word[0]]
        like = _NUMBER_LIKE.match(self._text, self._position)
        if like is None:
            self._fault(self._here(), "a value")
            if self._peek() in (",", "}", "]"):
                return None
            raise _Stop
        # Python's and JavaScript's words for the same.
        known = _OTHER_LITERALS.get(like[0])
        self._fault(
            self._shown(like[0]),
            f"`{known}`" if known else "a value that JSON knows",
            hint=None if known else _VALUE_HINT,
        )
        self._position = like.end()
        return _LITERALS[known] if known else None

    def _number(self, literal: str) -> object:
        if len(literal) < _SHORT_INTEGER and literal.isdigit():
            self._position += len(literal)
            return int(literal)
        try:
            value: object = msgspec.json.decode(literal.encode())
        except msgspec.MsgspecError:
            self._fault(f"the number {quote(literal)}, which is out of range", "a smaller one")
            value = None
        self._position += len(literal)
        return value

    # places

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip(self) -> None:
        # Half of all places have nothing to skip, and this is called several times for each value.
        if self._peek() not in _BLANK_STARTS:
            return
        match = SPACE_AND_COMMENTS.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        if self._text.startswith("/*", self._position):
            self._fault("a comment that does not end", "`*/`")
            raise _Stop

    def _here(self) -> str:
        """Describe what is at the current position."""
        letter = self._peek()
        if not letter:
            return "the end of the file"
        if letter == '"':
            return "a string"
        match = _NUMBER_LIKE.match(self._text, self._position)
        return self._shown(match[0] if match else letter)

    def _shown(self, word: str) -> str:
        """Return the word itself, unless it is where secrets are."""
        return "a word" if any(step in _SECRET_KEYS for step in self._steps()) else quote(word)

    def _steps(self) -> Path:
        return tuple(frame.key for frame in self._stack if frame.key is not None)

    def _fault(
        self, found: str, expected: str | None = None, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        line, column = self.line_and_column(self._position if offset is None else offset)
        self.problems.append(
            Problem(steps=self._steps(), found=f"found {found}", expected=expected, hint=hint, line=line, column=column)
        )
        if len(self.problems) >= _MAX_FAULTS:
            raise _Stop


_LINE_BREAK_HINT = "a line break inside a string is written `\\n`"
_VALUE_HINT = 'write a string in `"`, a number such as `1.5`, `true`, `false`, `null`, a list or an object'


def positions(text: str, paths: Iterable[Path]) -> dict[Path, tuple[int, int, int, int]]:
    """Return where the key and the value of each path are: `(key line, key column, value line, value column)`.

    For a path that is not in the text, the longest existing part of it is located.
    """
    root = Spot()
    wanted = set(paths)
    for path in wanted:
        spot = root
        for step in path:
            spot = spot.inner.setdefault(step, Spot())
    document = Document(text, root)
    found = {}
    for path in wanted:
        spot = root
        for step in path:
            inner = spot.inner[step]
            if inner.value is None:
                break
            spot = inner
        value = spot.value or 0
        found[path] = (
            *document.line_and_column(value if spot.key is None else spot.key),
            *document.line_and_column(value),
        )
    return found
