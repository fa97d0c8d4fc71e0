"""The kinds of value that a key can have: how each is read, and how it is described to an editor.

Owns validation and JSON Schema of every kind in one place, so that what is accepted and what editors show cannot drift
apart. Does not know which key has which kind (`model`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from mcp_workbench.engine.config.problems import Path, kind_of, quote
from mcp_workbench.engine.config.reading import Reader, has_control, has_white_space

Schema = dict[str, object]

# A day. No one waits longer for a tool, and a larger number is nearly always meant as milliseconds.
MAX_DURATION = 86_400
_VARIABLE_PATTERN = r"\$\{.+\}"


class Kind:
    """`read` returns the value, or None after reporting to the reader what is wrong with it."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> Any:
        raise NotImplementedError

    def schema(self) -> Schema:
        raise NotImplementedError


def or_variable(schema: Schema) -> Schema:
    """Allow a string that consists of a variable, for values that are not strings."""
    return {"anyOf": [schema, {"type": "string", "pattern": _VARIABLE_PATTERN}]}


class Text(Kind):
    """A string, non-empty unless that is allowed, with variables expanded. NUL is refused: no program accepts it."""

    __slots__ = ("_empty", "_what")

    def __init__(self, what: str = "a string that is not empty", *, empty: bool = False) -> None:
        self._what = what
        self._empty = empty

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        if not isinstance(value, str) or not (self._empty or value.strip()):
            reader.wrong(value, path, self._what)
            return None
        # Asked here as well: every start reads a file, and few of its texts have a variable.
        text = reader.expanded(value, path) if "${" in value else value
        if text is None:
            return None
        if not (self._empty or text.strip()):
            reader.problem(path, f"{quote(value)} is empty once expanded", self._what)
            return None
        if "\0" in text:
            reader.problem(path, "found a NUL character", "a string without it")
            return None
        return text

    def schema(self) -> Schema:
        return {"type": "string"} if self._empty else {"type": "string", "pattern": r"\S"}


class Separator(Kind):
    """The separator between the parts of a name."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        what = "one or more characters without white space, such as `__`"
        text = Text(what).read(value, path, reader)
        if text is not None and (has_control(text) or has_white_space(text)):
            reader.wrong(value, path, what)
            return None
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^\S+$|\$\{.+\}"}


class Url(Kind):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = Text("an address such as `https://example.com/mcp`").read(value, path, reader)
        if text is None:
            return None
        text = text.strip()
        # With references, it becomes an address only once they are fetched, and is checked then.
        has_references = path in reader.references
        # A variable's value may be a secret, and a part of it would not be recognised as one.
        fault = None if has_references else url_fault(text, quote if "${" not in str(value) else _unquoted)
        if fault is not None:
            reader.problem(path, fault, "an address such as `https://example.com/mcp`")
            return None
        if "@" in text or "?" in text:
            from mcp_workbench.engine.config.redact import secrets_in_url

            found = secrets_in_url(text)
            reader.secrets.update(secret for secret in found if not (has_references and "${" in secret))
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^\s*([hH][tT][tT][pP][sS]?://[^\s/?#:]|.*\$\{.+\})"}


class UrlOrPath(Url):
    """An address, or a file or folder of this machine (`file://` or a path)."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = Text("an address, or a file or folder").read(value, path, reader)
        is_path = text is not None and (text.startswith("file://") or "://" not in text)
        return text if is_path or text is None else super().read(value, path, reader)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"\S"}


def _unquoted(part: str) -> str:
    return "`…`"


def url_fault(url: str, quote: Callable[[str], str] = _unquoted) -> str | None:
    """Return what is wrong with an address, without quoting its password or query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "found an address without `http://` or `https://`"
    if scheme.lower() not in ("http", "https"):
        return f"found an address with {quote(scheme + '://')}"
    if has_control(rest) or any(letter.isspace() for letter in rest):
        return "found an address with white space or a control character in it"
    for end in "/?#":
        rest = rest.partition(end)[0]
    host = rest.rpartition("@")[2]
    if host.startswith("["):
        host, bracket, port = host.partition("]")
        makes_sense = bool(bracket) and len(host) > 2 and port[:1] in ("", ":")
        port = port[1:]
    else:
        host, _, port = host.partition(":")
        makes_sense = not any(letter in host for letter in '\\"<>[]^`{|}')
    if not host:
        return "found an address without a host"
    if port and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65_536):
        return f"found an address with the port {quote(port)}"
    return None if makes_sense else "found an address with an invalid host"


class Texts(Kind):
    """A list of strings. `empty_items`: an argument may be an empty string, the name of a tool may not."""

    __slots__ = ("_item", "_what")

    def __init__(self, what: str, *, empty_items: bool = False) -> None:
        self._what = what
        self._item = Text("a string", empty=True) if empty_items else Text()

    def read(self, value: object, path: Path, reader: Reader) -> tuple[str, ...] | None:
        if not isinstance(value, list):
            reader.wrong(value, path, self._what)
            return None
        items = [self.item(item, (*path, index), reader) for index, item in enumerate(value)]
        return None if None in items else cast("tuple[str, ...]", tuple(items))

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        if isinstance(value, bool | int | float):
            # People write `"args": ["--port", 8080]`, but programs accept only text.
            reader.wrong(value, path, "a string", hint=f'put it in quotes: `"{as_json(value)}"`')
            return None
        return self._item.read(value, path, reader)

    def schema(self) -> Schema:
        return {"type": "array", "items": self._item.schema()}


class Files(Texts):
    """One path, or several."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> tuple[str, ...] | None:
        if value == "":
            return ()
        if isinstance(value, str):
            text = self._item.read(value, path, reader)
            return None if text is None else (text,)
        return super().read(value, path, reader)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "string"}, super().schema()]}


class Filters(Texts):
    """Names and globs of tools; `!` in front excludes."""

    __slots__ = ()

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        if text is not None and not text.removeprefix("!").strip():
            reader.wrong(value, path, "the name of a tool or a glob after `!`")
            return None
        return text.strip() if text is not None else None

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": r"^\s*!?\s*[^\s!]"}}


class Seconds(Kind):
    """A duration. With `never`, `null` and 0 are allowed and read as 0."""

    __slots__ = ("_never",)

    def __init__(self, *, never: bool = False) -> None:
        self._never = never

    def read(self, value: object, path: Path, reader: Reader) -> float | None:
        expected = f"seconds, a number above 0 and at most {MAX_DURATION:,}"
        if self._never:
            expected += ", or `null` for never"
            if value is None:
                return 0.0
        number = number_in(value, path, reader)
        if number is None:
            return None
        if isinstance(number, str):
            reader.wrong(value, path, expected)
        elif number > MAX_DURATION:
            # Several clients count in milliseconds: 60000 is a minute there.
            milliseconds = number <= MAX_DURATION * 1000
            hint = f"the unit is seconds: {number:g} ms is written {number / 1000:g}" if milliseconds else None
            reader.wrong(value, path, expected, hint=hint)
        elif number > 0 or (number == 0 and self._never):
            return float(number)
        else:
            hint = None if self._never or number else "leave the key out for the default"
            reader.wrong(value, path, expected, hint=hint)
        return None

    def schema(self) -> Schema:
        above: Schema = {"minimum": 0} if self._never else {"exclusiveMinimum": 0}
        types: object = ["number", "null"] if self._never else "number"
        return or_variable({"type": types, **above, "maximum": MAX_DURATION})


class Whole(Kind):
    """A whole number. With `none`, `null` is allowed and read as 0."""

    __slots__ = ("_least", "_most", "_none", "_what")

    def __init__(self, what: str, least: int, most: int, *, none: bool = False) -> None:
        self._what = what
        self._least = least
        self._most = most
        self._none = none

    def read(self, value: object, path: Path, reader: Reader) -> int | None:
        expected = f"{self._what}, a whole number from {self._least:,} to {self._most:,}"
        if self._none:
            expected += ", or `null` for no limit"
            if value is None:
                return 0
        number = number_in(value, path, reader)
        if number is None:
            return None
        # `1e6` is a float to JSON readers and a whole number to people.
        if isinstance(number, str) or number != int(number) or not self._least <= number <= self._most:
            reader.wrong(value, path, expected)
            return None
        return int(number)

    def schema(self) -> Schema:
        types: object = ["integer", "null"] if self._none else "integer"
        return or_variable({"type": types, "minimum": self._least, "maximum": self._most})


class Choice(Kind):
    """One of a few words; the table maps every accepted spelling to the internal value."""

    __slots__ = ("_spellings",)

    def __init__(self, spellings: Mapping[str, object]) -> None:
        self._spellings = spellings

    def read(self, value: object, path: Path, reader: Reader) -> Any:
        text = reader.expanded(value, path) if isinstance(value, str) else ""
        if text is None:
            return None
        if text in self._spellings:
            return self._spellings[text]
        from mcp_workbench.engine.nearest import nearest

        found = "found " + (quote(value) if isinstance(value, str) else kind_of(value))
        expected = f"one of {', '.join(map(quote, self._spellings))}"
        reader.problem(path, found, expected, suggestions=nearest(text, self._spellings, 1))
        return None

    def schema(self) -> Schema:
        return or_variable({"enum": list(self._spellings)})


def one_of(*words: str) -> Choice:
    return Choice({word: word for word in words})


class Sharing(Kind):
    """Which clients share a server. `everyone` is allowed only for a single server."""

    __slots__ = ("_is_of_server",)

    def __init__(self, *, is_of_server: bool = False) -> None:
        self._is_of_server = is_of_server

    def read(self, value: object, path: Path, reader: Reader) -> Any:
        if value == "everyone" and not self._is_of_server:
            hint = "set it for each server that stores no data of its users"
            reader.problem(path, "found `everyone`, which is for single servers", _SHARES_TEXT, hint=hint)
            return None
        return (_SHARES_OF_SERVER if self._is_of_server else _SHARES).read(value, path, reader)

    def schema(self) -> Schema:
        return (_SHARES_OF_SERVER if self._is_of_server else _SHARES).schema()


_SHARES: Final = one_of("project", "user", "session")
_SHARES_OF_SERVER: Final = one_of("project", "user", "session", "everyone")
_SHARES_TEXT: Final = "one of `project`, `user`, `session`"


class Boolean(Kind):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> bool | None:
        text = reader.expanded(value, path) if isinstance(value, str) and "${" in value else value
        if text is None and value is not None:
            return None
        flag = {"true": True, "false": False}.get(text.strip().lower()) if isinstance(text, str) else text
        if isinstance(flag, bool):
            return flag
        reader.wrong(value, path, "`true` or `false`")
        return None

    def schema(self) -> Schema:
        return or_variable({"type": "boolean"})


def number_in(value: object, path: Path, reader: Reader) -> int | float | str | None:
    """Return a number as written or from a variable; any other value as a string, None if a variable is missing."""
    if isinstance(value, str) and "${" in value:
        text = reader.expanded(value, path)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            return text
        # `float` also reads `nan` and `inf`, which cannot be compared.
        return number if abs(number) < float("inf") else text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else ""


def as_json(value: float) -> str:
    """Return a number or boolean as written in the file."""
    return str(value).lower() if isinstance(value, bool) else msgspec.json.encode(value).decode()
