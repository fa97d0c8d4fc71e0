"""Results on their way to a client of either era."""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, ErrorObject, decode_object, encode, read_error
from mcp_workbench.protocol.meta import SERVER_INFO

ASKING: Final = "input_required"
RESOURCE_NOT_FOUND_LEGACY: Final = -32002
# Known to revision 2025-11-25 only; later ones forbid to send it.
URL_ELICITATION_REQUIRED: Final = -32042
MISSING_CLIENT_CAPABILITY: Final = -32021
RESULT_TYPE_KEY: Final = b'"resultType"'
CACHEABLE: Final = frozenset({"resources/read"})
COMPLETE: Final = b'"resultType":"complete"'
_EMPTY_OBJECT: Final = re.compile(rb"\{\s*\}")
_NO_CACHE: Final = {"ttlMs": b'"ttlMs":0', "cacheScope": b'"cacheScope":"private"'}
_UNREADABLE: Final = (DecodeError, ValidationError, RecursionError)


class _ResultType(Struct, gc=False):
    resultType: str | UnsetType = UNSET


_decode: Final = Decoder(_ResultType).decode


def result_type(result: Raw | bytes) -> str | None:
    """The `resultType` of a result, None when it has none: such a result counts as complete."""
    data = bytes(result)
    # The search is many times faster than decoding, and legacy results do not have the word in them.
    if RESULT_TYPE_KEY not in data:
        return None
    try:
        found = _decode(data).resultType
    except _UNREADABLE:
        # Whatever it is, it passes as it came.
        return None
    return None if isinstance(found, UnsetType) else found


def for_modern_client(result: Raw | bytes, method: str = "", server_info: Raw | bytes | None = None) -> bytes:
    """The same result with what modern clients expect and legacy servers do not write.

    `server_info` is who made the result, as said in the handshake.
    """
    data = bytes(result)
    if result_type(data) is not None:
        return data
    added = [COMPLETE]
    if method in CACHEABLE:
        # Nothing is known of how long it holds, and it may be one user's own.
        added += [hint for name, hint in _NO_CACHE.items() if not _has_member(data, name)]
    if server_info is not None:
        if _has_member(data, "_meta"):
            data = _with_server_info(data, server_info)
        else:
            added.append(b'"_meta":' + meta_of(server_info))
    return with_first_member(data, b",".join(added))


def meta_of(server_info: Raw | bytes) -> bytes:
    """The `_meta` of a result that says nothing but who made it."""
    return b'{"%b":%b}' % (SERVER_INFO.encode(), bytes(server_info))


def _has_member(data: bytes, name: str) -> bool:
    # Decoding is needed only where the word occurs at all, which may be further inside.
    if b'"%b"' % name.encode() not in data:
        return False
    try:
        return name in decode_object(data)
    except _UNREADABLE:
        return True


def _with_server_info(data: bytes, server_info: Raw | bytes) -> bytes:
    try:
        members = decode_object(data)
        meta = decode_object(members["_meta"])
    except _UNREADABLE:
        return data
    if SERVER_INFO in meta:
        return data
    members["_meta"] = Raw(encode({**meta, SERVER_INFO: Raw(bytes(server_info))}))
    return encode(members)


def with_first_member(data: bytes, member: bytes) -> bytes:
    """The same object with one more member at its start. Anything but an object is left alone."""
    if not data.startswith(b"{"):
        return data
    separator = b"" if _EMPTY_OBJECT.match(data) else b","
    return b"".join((b"{", member, separator, data[1:]))


def error_across_eras(error: Raw | bytes, method: str, *, to_modern: bool) -> Raw | bytes:
    """An error in the words of the client's era.

    A resource that does not exist is -32002 up to 2025-11-25, and -32602 with its `uri` since. A page that has to be
    visited first (-32042) is a capability that is missing to a modern client: one that has it never gets here.
    """
    read = read_error(error)
    if to_modern and read.code == URL_ELICITATION_REQUIRED:
        required: dict[str, object] = {"requiredCapabilities": {"elicitation": {"url": {}}}}
        data = {**_members(read), **required}
        return encode({"code": MISSING_CLIENT_CAPABILITY, "message": read.message, "data": data})
    if method != "resources/read":
        return error
    if to_modern and read.code == RESOURCE_NOT_FOUND_LEGACY:
        code = INVALID_PARAMS
    elif not to_modern and read.code == INVALID_PARAMS and "uri" in _members(read):
        code = RESOURCE_NOT_FOUND_LEGACY
    else:
        return error
    return encode({**decode_object(error), "code": code})


def _members(error: ErrorObject) -> dict[str, Raw]:
    """The members of an error's `data`, where that is an object."""
    if isinstance(error.data, UnsetType):
        return {}
    try:
        return decode_object(error.data)
    except _UNREADABLE:
        return {}
