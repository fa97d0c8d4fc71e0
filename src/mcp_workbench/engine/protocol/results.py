"""Translation of results and errors from a server's revision to a client's."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import (
    INVALID_PARAMS,
    READING_ERRORS,
    ErrorObject,
    Part,
    decode_object,
    encode,
    read_error,
)
from mcp_workbench.engine.protocol.constants import (
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    URL_ELICITATION_REQUIRED,
)
from mcp_workbench.engine.protocol.revisions import Revision

ASKING: Final = "input_required"
# An ASCII letter written as an escape: a text search may then miss names that are there.
_find_escaped_letter: Final = re.compile(rb"\\u00[4-7]").search
CACHEABLE: Final = frozenset({"resources/read", "skills/get"})
COMPLETE_TYPE: Final = b'"resultType":"complete"'
IS_ERROR_KEY: Final = b'"isError"'
BACKSLASH: Final = 0x5C
_EMPTY_OBJECT: Final = re.compile(rb"\{\s*\}")
_NOT_CACHED: Final = {"ttlMs": b'"ttlMs":0', "cacheScope": b'"cacheScope":"private"'}
# Searches for members in the bytes of a result, at any depth.
_find: Final = {
    name: re.compile(b'"%b"' % name.encode()).search
    for name in ("resultType", ASKING, "inputRequests", "elicitations", "_meta", *_NOT_CACHED)
}
_find_result_type: Final = _find["resultType"]
_MODERN_MEMBERS: Final = ("resultType", *_NOT_CACHED)
_find_modern: Final = re.compile(b"|".join(b'"%b"' % each.encode() for each in (*_MODERN_MEMBERS, SERVER_INFO))).search
# Whether a result may report that the tool failed, without decoding it: hardly any does, and results may be large. Also
# finds the words deeper inside; whoever decodes the result sees the difference.
may_be_failure: Final = re.compile(rb'"isError"\s*:\s*true').search


class _ResultType(Struct, gc=False):
    resultType: str | UnsetType = UNSET


_decode: Final = Decoder(_ResultType).decode


def result_type(result: Raw | bytes) -> str | None:
    """The `resultType` of a result; None if it has none, which means complete."""
    return type_and_spelling(result)[0]


def type_and_spelling(result: Raw | bytes) -> tuple[str | None, bool]:
    """The `resultType`, and whether names in the result may be spelled with escapes, which a text search would miss."""
    is_escaped = _find_escaped_letter(result) is not None
    # Searching is many times faster than decoding and copies nothing, and legacy results do not contain the word.
    if not is_escaped and _find_result_type(result) is None:
        return None, False
    try:
        found = _decode(result).resultType
    except READING_ERRORS:
        # What we cannot decode passes unchanged, unless a client might read it as a question that we have not checked.
        return ASKING if may_mention(result, ASKING) else None, is_escaped
    return None if isinstance(found, UnsetType) else found, is_escaped


def may_mention(data: Raw | bytes, name: str) -> bool:
    """Whether a name or value may occur in JSON, with or without escapes. False is certain, True is not."""
    return _find[name](data) is not None or _find_escaped_letter(data) is not None


def is_ordinary(result: bytes) -> bool:
    """Whether a result is complete and no failure, and has nothing in common with the members that `modern_parts` adds.
    False is not certain. `partition`, because other searches parse their arguments for longer than they search."""
    if result[:2] != b'{"' or result.partition(b'"_meta"')[1] or result.partition(b'"resultType"')[1]:
        return False
    if BACKSLASH in result and _find_escaped_letter(result) is not None:
        return False
    return not result.partition(IS_ERROR_KEY)[1] or may_be_failure(result) is None


def modern_head(server_info: Raw | bytes) -> bytes:
    """What `modern_parts` puts before the members of an ordinary result."""
    return _head(bytes(server_info)) + b","


def modern_parts(
    result: Raw | bytes, kind: str | None, method: str, server_info: Raw | bytes | None, is_escaped: bool
) -> tuple[Part, ...]:
    """Add the members that modern clients expect and legacy servers do not send.

    Returned in parts, so that a large result is not copied to add a few members. `kind` is its `resultType`,
    `server_info` comes from the handshake. `is_escaped`: whether names in it may be spelled with escapes.
    """
    written = memoryview(result)
    if kind is not None or bytes(written[:1]) != b"{":
        return (written,)
    if server_info is not None and _has_member(result, "_meta", is_escaped):
        result = _with_server_info(result, server_info)
        written, server_info = memoryview(result), None
    head = _head(b"" if server_info is None else bytes(server_info))
    if method in CACHEABLE:
        # We do not know how long the result is valid, and it may be private to one user.
        absent = (hint for name, hint in _NOT_CACHED.items() if not _has_member(result, name, is_escaped))
        head = b",".join((head, *absent))
    separator = b"" if _EMPTY_OBJECT.match(result) else b","
    return (head + separator, written[1:])


def legacy_result(result: Raw | bytes) -> Raw | bytes:
    """Remove the members that only modern results have: they are the server's agreement with us, not with a client that
    speaks an older revision."""
    if _find_modern(result) is None or result_type(result) not in (None, "complete"):
        return result
    try:
        members = decode_object(result)
        meta = decode_object(members["_meta"]) if "_meta" in members else {}
    except READING_ERRORS:
        return result
    for name in _MODERN_MEMBERS:
        members.pop(name, None)
    if SERVER_INFO in meta:
        del meta[SERVER_INFO]
        members["_meta"] = Raw(encode(meta))
        if not meta:
            del members["_meta"]
    return encode(members)


@lru_cache(256)
def _head(server_info: bytes) -> bytes:
    """The members to insert at the start of a legacy server's result."""
    return b"{%b%b" % (COMPLETE_TYPE, b',"_meta":' + meta_of(server_info) if server_info else b"")


def meta_of(server_info: Raw | bytes) -> bytes:
    """A `_meta` that contains only the server's identity."""
    return b'{"%b":%b}' % (SERVER_INFO.encode(), bytes(server_info))


def _has_member(data: Raw | bytes, name: str, is_escaped: bool) -> bool:
    # Decode only if the word occurs at all; it may be nested deeper.
    if not is_escaped and _find[name](data) is None:
        return False
    try:
        return name in decode_object(data)
    except READING_ERRORS:
        return True


def _with_server_info(data: Raw | bytes, server_info: Raw | bytes) -> Raw | bytes:
    try:
        members = decode_object(data)
        meta = decode_object(members["_meta"])
    except READING_ERRORS:
        return data
    if SERVER_INFO in meta:
        return data
    members["_meta"] = Raw(encode({**meta, SERVER_INFO: Raw(bytes(server_info))}))
    return encode(members)


def error_for_client(error: Raw | bytes, method: str, client: Revision) -> Raw | bytes:
    """Translate an error to the client's revision.

    A missing resource is -32002 up to 2025-11-25, and -32602 with its `uri` since then. A required URL elicitation
    (-32042) becomes a missing capability in revisions that ask in results: for a client with that capability, the error
    has been turned into a question before.
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
    # "Invalid params" can mean anything; only with a `uri` does it mean a missing resource.
    return error.code == RESOURCE_NOT_FOUND or (error.code == INVALID_PARAMS and "uri" in _members(error))


def _members(error: ErrorObject) -> dict[str, Raw]:
    """The members of an error's `data`; empty unless it is an object."""
    if isinstance(error.data, UnsetType):
        return {}
    try:
        return decode_object(error.data)
    except READING_ERRORS:
        return {}
