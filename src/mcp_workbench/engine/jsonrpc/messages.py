"""Envelopes: the members of a message that JSON-RPC defines, read and written.

Owns `id`, `method`, `params`, `result` and `error`, and a cache for short pieces that clients repeat. Never looks
inside the payloads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder, Encoder

from mcp_workbench.engine.jsonrpc.framing import BYTE_ORDER_MARK
from mcp_workbench.engine.nesting import MAX_NESTING, is_nested_deeper

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep"
NOT_A_MESSAGE: Final = "not a JSON-RPC message: neither method, result nor error"
OTHER_VERSION: Final = '`jsonrpc` must be "2.0"'
CURRENT_VERSION: Final = b'"2.0"'
# How a request that breaks the rules is logged: whose it is, what it is, its id, the code and the message.
REFUSED_FORMAT: Final = "[%s] %s (id %s) is refused with %d: %s"
# A longer line is read in a thread (`large_messages`), which tells already what is wrong with it.
MAX_EXAMINED_LINE_BYTES: Final = 1 << 20

encode: Final = Encoder().encode
# Messages are written in parts, so that large payloads are not copied. A `Raw` is not among them: it has no length.
Part = bytes | memoryview


class Envelope(Struct, gc=False):
    """One message. The fields that are set tell whether it is a request, a notification, a result or an error.

    `jsonrpc` is ignored: servers that omit it, or write something else, mean the same.
    """

    method: str | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class ClientEnvelope(Envelope, gc=False):
    """A message of a client, which may omit `jsonrpc` but not ask for another version: it would be answered in this
    one."""

    jsonrpc: Literal["2.0"] | UnsetType = UNSET


class ShortRequest(Struct, gc=False):
    """A short request of a client that lacks nothing, with its params decoded in the same step."""

    method: str
    id: Raw
    params: dict[str, Raw]
    jsonrpc: Literal["2.0"] | UnsetType = UNSET


class ErrorObject(Struct, gc=False):
    """The `error` of a response. `data` is kept as it was written."""

    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw | UnsetType = UNSET


# The params of a larger request are a `LargeObject`, so that whoever decodes a part of them looks at its size first.
LARGE_REQUEST: Final = 8 * 1024


class LargeObject(dict[str, Raw]):
    """The members of a large object. `inner` has the members of objects among them that were read in a thread: reading
    these again on the event loop would delay every other request."""

    __slots__ = ("inner",)

    def __init__(self, members: dict[str, Raw], inner: dict[str, LargeObject] | None = None) -> None:
        super().__init__(members)
        self.inner: dict[str, LargeObject] = {} if inner is None else inner

    def size_of(self, name: str) -> int:
        """How many bytes a member has; 0 if there is none."""
        value = self.get(name)
        return 0 if value is None else memoryview(value).nbytes

    def members_of(self, name: str) -> LargeObject | None:
        """The members of a member, not decoded; None if it is not an object."""
        if name not in self.inner:
            try:
                self.inner[name] = LargeObject(decode_object(self.get(name, b"")))
            except READING_ERRORS:
                return None
        return self.inner[name]


# Objects up to this size are copied into one piece; of larger ones, members of at least a sixteenth of it stay where
# they are.
MAX_JOINED_BYTES: Final = 128 * 1024
_MIN_PART_BYTES: Final = MAX_JOINED_BYTES // 16


@final
class LargeBody:
    """A large object as JSON, without its closing brace, in parts that are views of the message it came in: copying
    megabytes would delay every other request."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __add__(self, end: bytes) -> bytes:
        """Everything in one piece, for whoever has to look inside."""
        return b"".join((*self.parts, end))


Body = bytes | LargeBody


def open_object(members: Mapping[str, Raw]) -> Body:
    """An object as JSON, without its closing brace."""
    views = {name: memoryview(value) for name, value in members.items()}
    if sum(map(len, views.values())) <= MAX_JOINED_BYTES:
        return encode(members)[:-1]
    parts: list[Part] = []
    small: list[Part] = []
    for name, view in views.items():
        small += (b"," if small or parts else b"{", encode(name), b":")
        if len(view) < _MIN_PART_BYTES:
            small.append(view)
        else:
            parts += (b"".join(small), view)
            small = []
    return LargeBody((*parts, b"".join(small)) if small else tuple(parts))


class Malformed(Exception):
    """A line that is not a JSON-RPC message. `id` is its id as JSON, if it could be found.

    `code` is the JSON-RPC error code.
    """

    def __init__(self, reason: str, id: bytes | None = None, *, code: int = PARSE_ERROR) -> None:
        super().__init__(reason)
        self.id = id
        self.code = code

    def by_client(self, line: bytes) -> Malformed:
        """The same, as the sender of this line is told: JSON that is not a message is an invalid request, and no
        parse error. Servers are not told, and write a lot that is no message."""
        if self.code != PARSE_ERROR or len(line) > MAX_EXAMINED_LINE_BYTES or not is_json(line):
            return self
        try:
            members = decode_object(line)
        except READING_ERRORS:
            return Malformed(f"not a JSON-RPC message: {self}", self.id, code=INVALID_REQUEST)
        id = bytes(members.get("id", b"null"))
        is_other_version = "jsonrpc" in members and bytes(members["jsonrpc"]) != CURRENT_VERSION
        reason = OTHER_VERSION if is_other_version else f"not a JSON-RPC message: {self}"
        return Malformed(reason, id if is_valid_id(id) else None, code=INVALID_REQUEST)

    @property
    def complaint(self) -> str:
        """The error message for the sender."""
        return str(self) if self.code == INVALID_REQUEST else f"cannot be read: {self}"


decode_envelope: Final[Callable[[bytes], Envelope]] = Decoder(Envelope).decode
decode_client_envelope: Final[Callable[[bytes], Envelope]] = Decoder(ClientEnvelope).decode
_decode_short_request: Final = Decoder(ShortRequest).decode
_check_json: Final[Callable[[bytes], Raw]] = Decoder(Raw).decode
_decode_error: Final = Decoder(ErrorObject).decode
_decode_id: Final = Decoder(int | str).decode
decode_object: Final = Decoder(dict[str, Raw]).decode
decode_string: Final = Decoder(str).decode
_NULL: Final = b"null"
# As a number: slicing out a byte takes longer.
_BRACE: Final = 0x7B

# What decoding others' JSON raises. RecursionError is for nesting that not even Python allows, ValueError for bytes
# that are not UTF-8.
READING_ERRORS: Final = (DecodeError, ValidationError, RecursionError, ValueError)
_UTF8_CHUNK: Final = 1 << 20


def read(line: bytes, decode: Callable[[bytes], Envelope] = decode_envelope) -> Envelope:
    """Read one line, with `decode_client_envelope` if a client has written it. Raises `Malformed` for anything that is
    not a JSON object in valid UTF-8."""
    if not line or line[0] != _BRACE:
        line = _from_brace(line)
    # msgspec does not check the bytes of strings that it skips. Bad UTF-8 must stop here: a peer that decodes
    # strictly, as the official SDK does, would tear down its whole connection over one bad server.
    if not line.isascii() and not is_utf8(line):
        raise Malformed("not valid UTF-8", find_id(line))
    try:
        message = decode(line)
    except RecursionError:
        raise Malformed(TOO_DEEP, find_id(line)) from None
    except READING_ERRORS:
        message = _read_tolerantly(line, decode)
    # Shorter lines, nearly all, cannot be nested that deep.
    if len(line) > 2 * MAX_NESTING and is_nested_deeper(line):
        raise Malformed(TOO_DEEP, find_id(line))
    if message.error is not UNSET and bytes(message.error) == _NULL and message.result is not UNSET:
        # JSON-RPC 1.0 has both members, one of them null.
        message.error = UNSET
    return message


# Too short to be nested too deep.
MAX_SHORT_REQUEST_BYTES: Final = 2 * MAX_NESTING


def read_short_request(line: bytes) -> ShortRequest | None:
    """Read a short request, as nearly all messages of clients are. None: the line is something else, or needs a closer
    look (`read`)."""
    if len(line) > MAX_SHORT_REQUEST_BYTES or not line.isascii():
        return None
    try:
        return _decode_short_request(line)
    except READING_ERRORS:
        return None


def _from_brace(line: bytes) -> bytes:
    """The line without anything before its first brace. Servers that log to stdout log a lot, so lines that are not
    messages must be recognised cheaply."""
    start = line.lstrip().removeprefix(BYTE_ORDER_MARK)
    if start[:1] != b"{":
        raise Malformed("not a JSON object", None if start[:1] == b"[" else find_id(line))
    return start


def is_utf8(line: bytes) -> bool:
    """Whether these bytes are valid UTF-8, decoded in pieces."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(line)
    try:
        for start in range(0, len(line), _UTF8_CHUNK):
            decoder.decode(view[start : start + _UTF8_CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_json(line: bytes) -> bool:
    """Whether a line is JSON of any kind, in valid UTF-8, with or without lone surrogates."""
    try:
        _check_json(without_surrogates(line))
    except READING_ERRORS:
        return False
    return line.isascii() or is_utf8(line)


# An escaped surrogate, alone or in a pair. The backslash must not itself be escaped.
_SURROGATE: Final = re.compile(rb"((?<!\\)(?:\\\\)*)\\u(?=[dD][89abcdefABCDEF][0-9a-fA-F]{2})")


_WHOLE_SURROGATE: Final = re.compile(rb"((?<!\\)(?:\\\\)*)\\u[dD][89abcdefABCDEF][0-9a-fA-F]{2}")

# For half of a surrogate pair, msgspec itself reports truncated input, or an error elsewhere.
_LONE_SURROGATE: Final = (
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def why_unreadable(data: bytes | Raw, error: Exception) -> str:
    """Explain to the sender why JSON cannot be decoded."""
    return "not valid Unicode: half of a surrogate pair" if re.search(_LONE_SURROGATE, bytes(data)) else str(error)


def without_surrogates(text: bytes) -> bytes:
    """JSON of the same length with escaped surrogates replaced: valid unless something else is wrong."""
    return _WHOLE_SURROGATE.sub(rb"\1\\u0041", text)


def _read_tolerantly(line: bytes, decode: Callable[[bytes], Envelope]) -> Envelope:
    """Read a message with lone surrogates (`"\\ud800"`), which JavaScript writes.

    msgspec rejects such escapes even in values that it skips. They are replaced by a marker that occurs nowhere else
    while it decodes, and then restored, so that the message is otherwise untouched.
    """
    aside = b"surrogate" + os.urandom(8).hex().encode()
    try:
        message = decode(_SURROGATE.sub(rb"\1" + aside, line))
    except RecursionError:
        raise Malformed(TOO_DEEP, find_id(line)) from None
    except READING_ERRORS as still:
        raise Malformed(str(still), find_id(line)) from None
    if isinstance(message.method, str) and aside.decode() in message.method:
        raise Malformed("`method` is not valid Unicode", find_id(line))
    for name in ("id", "params", "result", "error"):
        payload = getattr(message, name)
        if payload is not UNSET:
            setattr(message, name, Raw(bytes(payload).replace(aside, b"\\u")))
    return message


# A string, which may be cut off, or a bracket.
_STRING_OR_BRACKET: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
# Bounded, so that no text makes it search for long; nor is any id of ours longer.
_ID: Final = re.compile(rb'\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")\s*[,}]')
_LAST_ID: Final = re.compile(
    rb'"id"\s{0,9}:\s{0,9}(-?\d{1,18}|"[^"\\]{0,200}")\s{0,9}'
    rb'(?:,\s{0,9}"(?:jsonrpc|method)"\s{0,9}:\s{0,9}"[^"\\]{0,200}"\s{0,9}){0,2}\}\s{0,9}\Z'
)
_KIND: Final = re.compile(rb'"(method|result|error)"\s*:')
# Where an id is searched for: it is among the first members, or the last one.
_ID_SEARCH_BYTES: Final = 4096


def find_id(text: bytes, tail: bytes | None = None) -> bytes | None:
    """Guess the id of a message that cannot be read, so that a request is answered, and a request whose answer it is
    fails at once. Arguments and results may have an `id` too, so only a member of the message itself counts.
    `tail`: the end of the message, if `text` is just its beginning."""
    end = text if tail is None else tail
    found = _first_id(text) or _LAST_ID.search(end, max(0, len(end) - _ID_SEARCH_BYTES))
    if found is None:
        return None
    try:
        # It may be sent back, so it must be valid JSON by itself.
        _decode_id(found[1])
    except READING_ERRORS:
        return None
    return found[1]


def _first_id(text: bytes) -> re.Match[bytes] | None:
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, 0, _ID_SEARCH_BYTES):
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1 and token[0] == b'"id"' and (found := _ID.match(text, token.end())):
            return found
    return None


def looks_like_answer(text: bytes) -> bool:
    """Whether an unreadable message appears to be a response. Requests have ids too, but those are not ours."""
    kind = _KIND.search(text, 0, _ID_SEARCH_BYTES)
    return kind is not None and kind[1] != b"method"


def read_error(raw: Raw | bytes) -> ErrorObject:
    """Read an `error` payload; anything but an error object becomes an internal error that quotes it."""
    try:
        return _decode_error(raw)
    except READING_ERRORS:
        return ErrorObject(INTERNAL_ERROR, f"malformed error object: {bytes(raw)[:200].decode(errors='replace')}")


def is_valid_id(id: bytes) -> bool:
    """In MCP, an id is a string or a number, never null."""
    return id.isdigit() or (id[:1] in b'"-0123456789' and id != _NULL)


def request(id: int | bytes, method: str, params: bytes | Raw | None = None) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (id if isinstance(id, bytes) else b"%d" % id, encode(method))
    return head + b"}" if params is None else b"".join((head, b',"params":', params, b"}"))


def notification(method: str, params: bytes | Raw | None = None) -> bytes:
    head = b'{"jsonrpc":"2.0","method":' + encode(method)
    return head + b"}" if params is None else b"".join((head, b',"params":', params, b"}"))


def error_response(id: bytes | None, code: int, message: str, data: Any = UNSET) -> bytes:
    """An encoded error response. Without an id, the member is null, as JSON-RPC requires."""
    body = {"code": code, "message": message}
    if data is not UNSET and data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id or _NULL, encode(body))


def has_other_version(message: Envelope) -> bool:
    """Whether a client's message that was read in pieces asks for another version of JSON-RPC; others were refused
    when they were decoded."""
    version = getattr(message, "jsonrpc", UNSET)
    return isinstance(version, Raw) and bytes(version) != CURRENT_VERSION


# Each cache holds up to 256 pieces of at most 1 KiB.
MAX_CACHED_PIECES: Final = 256
MAX_CACHED_PIECE_BYTES: Final = 1024
Meaning = TypeVar("Meaning")


@lru_cache(MAX_CACHED_PIECES)
def _interned(written: bytes) -> Raw:
    return Raw(written)


def interned(piece: Raw) -> Raw:
    """The same object for equal pieces that are short: whoever reads it then need not compare it."""
    written = bytes(piece)
    return _interned(written) if len(written) <= MAX_CACHED_PIECE_BYTES else piece


def remembered_if_short(read: Callable[[bytes], Meaning]) -> Callable[[Raw | bytes], Meaning]:
    """Cache the results of a function for short arguments. Results are shared and must not be changed.

    Clients put the same few pieces into all of their requests. Long ones are read each time.
    """
    kept = lru_cache(MAX_CACHED_PIECES)(read)
    last: tuple[Raw | bytes | None, Any] = (None, None)

    def read_or_cached(piece: Raw | bytes) -> Meaning:
        nonlocal last
        # The same object again, as `interned` gives it.
        if piece is last[0]:
            # Not `cast`, which is a call.
            meaning: Meaning = last[1]
            return meaning
        written = bytes(piece)
        if len(written) > MAX_CACHED_PIECE_BYTES:
            return read(written)
        found = kept(written)
        # Any other `Raw` is a view of its message, which may be large.
        if type(piece) is bytes or piece is _interned(written):
            last = (piece, found)
        return found

    read_or_cached.__doc__ = read.__doc__
    return read_or_cached
