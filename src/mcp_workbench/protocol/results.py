"""Results and errors on their way from a server of one revision to a client of another."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, ErrorObject, Part, decode_object, encode, read_error
from mcp_workbench.protocol.constants import (
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    URL_ELICITATION_REQUIRED,
)
from mcp_workbench.protocol.revisions import Revision

ASKING: Final = "input_required"
# A letter of ASCII that is written as an escape: with one of them, words need not look like what they are.
_find_escaped_letter: Final = re.compile(rb"\\u00[4-7]").search
CACHEABLE: Final = frozenset({"resources/read"})
COMPLETE: Final = b'"resultType":"complete"'
_EMPTY_OBJECT: Final = re.compile(rb"\{\s*\}")
_NO_CACHE: Final = {"ttlMs": b'"ttlMs":0', "cacheScope": b'"cacheScope":"private"'}
# Members that are looked for in results, as they occur in them, wherever that is.
_find: Final = {
    name: re.compile(b'"%b"' % name.encode()).search
    for name in ("resultType", ASKING, "inputRequests", "elicitations", "_meta", *_NO_CACHE)
}
_find_result_type: Final = _find["resultType"]
_UNREADABLE: Final = (DecodeError, ValidationError, RecursionError)


class _ResultType(Struct, gc=False):
    resultType: str | UnsetType = UNSET


_decode: Final = Decoder(_ResultType).decode


def result_type(result: Raw | bytes) -> str | None:
    """The `resultType` of a result, None when it has none: such a result counts as complete."""
    return type_and_spelling(result)[0]


def type_and_spelling(result: Raw | bytes) -> tuple[str | None, bool]:
    """The same, and whether names in it may be spelt with escapes, so that looking for them does not find them."""
    is_escaped = _find_escaped_letter(result) is not None
    # The search is many times faster than decoding, takes no copy, and legacy results do not have the word in them.
    if not is_escaped and _find_result_type(result) is None:
        return None, False
    try:
        found = _decode(result).resultType
    except _UNREADABLE:
        # It passes as it came, unless a client that reads it could take it for a question: nobody has looked at that.
        return ASKING if may_mention(result, ASKING) else None, is_escaped
    return None if isinstance(found, UnsetType) else found, is_escaped


def may_mention(data: Raw | bytes, name: str) -> bool:
    """Whether this name or value may occur in what a server wrote, however it is spelt. A no is certain."""
    return _find[name](data) is not None or _find_escaped_letter(data) is not None


def modern_parts(
    result: Raw | bytes, kind: str | None, method: str, server_info: Raw | bytes | None, *, is_escaped: bool
) -> tuple[Part, ...]:
    """The same result with what modern clients expect and legacy servers do not write.

    In parts, so that a large result is not copied for a few members more. `kind` is its `resultType`; `server_info` is
    who made the result, as said in the handshake. `is_escaped`: whether names in it may be spelt with escapes.
    """
    written = memoryview(result)
    if kind is not None or bytes(written[:1]) != b"{":
        return (written,)
    has_meta = server_info is not None and _has_member(result, "_meta", is_escaped)
    if has_meta and server_info is not None:
        result = _with_server_info(result, server_info)
        written = memoryview(result)
    head = _head(b"" if server_info is None or has_meta else bytes(server_info))
    if method in CACHEABLE:
        # Nothing is known of how long it holds, and it may be one user's own.
        absent = (hint for name, hint in _NO_CACHE.items() if not _has_member(result, name, is_escaped))
        head = b",".join((head, *absent))
    separator = b"" if _EMPTY_OBJECT.match(result) else b","
    return (head + separator, written[1:])


@lru_cache(256)
def _head(server_info: bytes) -> bytes:
    """How a result begins that a legacy server has made."""
    return b"{%b%b" % (COMPLETE, b',"_meta":' + meta_of(server_info) if server_info else b"")


def meta_of(server_info: Raw | bytes) -> bytes:
    """The `_meta` of a result that says nothing but who made it."""
    return b'{"%b":%b}' % (SERVER_INFO.encode(), bytes(server_info))


def _has_member(data: Raw | bytes, name: str, is_escaped: bool) -> bool:
    # Decoding is needed only where the word occurs at all, which may be further inside.
    if not is_escaped and _find[name](data) is None:
        return False
    try:
        return name in decode_object(data)
    except _UNREADABLE:
        return True


def _with_server_info(data: Raw | bytes, server_info: Raw | bytes) -> Raw | bytes:
    try:
        members = decode_object(data)
        meta = decode_object(members["_meta"])
    except _UNREADABLE:
        return data
    if SERVER_INFO in meta:
        return data
    members["_meta"] = Raw(encode({**meta, SERVER_INFO: Raw(bytes(server_info))}))
    return encode(members)


def error_for_client(error: Raw | bytes, method: str, client: Revision) -> Raw | bytes:
    """An error in the words of the client's revision.

    A resource that does not exist is -32002 up to 2025-11-25, and -32602 with its `uri` since. A page that has to be
    visited first (-32042) is a capability that is missing where there are questions in results: a client that has it
    never gets here.
    """
    read = read_error(error)
    if client.asks_in_results and read.code == URL_ELICITATION_REQUIRED:
        required: dict[str, object] = {"requiredCapabilities": {"elicitation": {"url": {}}}}
        data = {**_members(read), **required}
        return encode({"code": MISSING_CLIENT_CAPABILITY, "message": read.message, "data": data})
    if method != "resources/read" or read.code == client.resource_not_found or not _is_not_found(read):
        return error
    return encode({**decode_object(error), "code": client.resource_not_found})


def _is_not_found(error: ErrorObject) -> bool:
    # "Invalid params" can mean anything; with the `uri` it means that there is no such resource.
    return error.code == RESOURCE_NOT_FOUND or (error.code == INVALID_PARAMS and "uri" in _members(error))


def _members(error: ErrorObject) -> dict[str, Raw]:
    """The members of an error's `data`, where that is an object."""
    if isinstance(error.data, UnsetType):
        return {}
    try:
        return decode_object(error.data)
    except _UNREADABLE:
        return {}
