"""Results on their way to a client of either era."""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, decode_object, encode, read_error

ASKING: Final = "input_required"
RESOURCE_NOT_FOUND_LEGACY: Final = -32002
RESULT_TYPE_KEY: Final = b'"resultType"'
CACHEABLE: Final = frozenset({"resources/read"})
COMPLETE: Final = b'"resultType":"complete"'
_EMPTY_OBJECT: Final = re.compile(rb"\{\s*\}")


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
    except (DecodeError, ValidationError, RecursionError):
        # Whatever it is, it passes as it came.
        return None
    return None if isinstance(found, UnsetType) else found


def for_modern_client(result: Raw | bytes, method: str = "") -> bytes:
    """The same result with what modern clients require and legacy servers do not write."""
    data = bytes(result)
    if result_type(data) is not None:
        return data
    if method in CACHEABLE and b'"ttlMs"' not in data:
        # Nothing is known of how long it holds, and it may be one user's own.
        return with_first_member(data, COMPLETE + b',"ttlMs":0,"cacheScope":"private"')
    return with_first_member(data, COMPLETE)


def with_first_member(data: bytes, member: bytes) -> bytes:
    """The same object with one more member at its start. Anything but an object is left alone."""
    if not data.startswith(b"{"):
        return data
    separator = b"" if _EMPTY_OBJECT.match(data) else b","
    return b"".join((b"{", member, separator, data[1:]))


def error_across_eras(error: Raw | bytes, method: str, *, to_modern: bool) -> Raw | bytes:
    """An error in the words of the client's era: a resource that does not exist is -32002 up to 2025-11-25, and -32602
    with its `uri` since."""
    if method != "resources/read":
        return error
    read = read_error(error)
    if to_modern and read.code == RESOURCE_NOT_FOUND_LEGACY:
        read.code = INVALID_PARAMS
    elif not to_modern and read.code == INVALID_PARAMS and b'"uri"' in bytes(error):
        read.code = RESOURCE_NOT_FOUND_LEGACY
    else:
        return error
    return encode({**decode_object(error), "code": read.code})
