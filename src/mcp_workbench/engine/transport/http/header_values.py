"""Values in headers: which are sent unchanged, and the Base64 sentinel for all others. Pure.

"Value Encoding" of the streamable HTTP page: `=?base64?…?=` around the UTF-8 of a value that is not plain.
"""

from __future__ import annotations

import binascii
import re
from typing import Final

ENCODED_PREFIX: Final = "=?base64?"
ENCODED_SUFFIX: Final = "?="
# Visible ASCII with spaces inside. A tab is allowed in a header, but proxies are known to turn it into a space.
_PLAIN_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def encode(value: str) -> str:
    """The value as it is sent in a header."""
    if not value or (_PLAIN_VALUE.fullmatch(value) and not _has_sentinel(value)):
        return value
    # A lone surrogate has no UTF-8; `?` will not match the body, and the server will report it.
    payload = binascii.b2a_base64(value.encode("utf-8", "replace"), newline=False)
    return f"{ENCODED_PREFIX}{payload.decode('ascii')}{ENCODED_SUFFIX}"


def decode(value: str) -> str | None:
    """The decoded value of a header; None if its encoding is broken, which matches nothing."""
    if not _has_sentinel(value):
        return value
    payload = value[len(ENCODED_PREFIX) : -len(ENCODED_SUFFIX)].encode("latin-1", "replace")
    try:
        decoded = binascii.a2b_base64(payload, strict_mode=True)
        text = decoded.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    # Several encodings decode to the same bytes; only the one that `encode` produces is accepted.
    return text if binascii.b2a_base64(decoded, newline=False) == payload else None


def _has_sentinel(value: str) -> bool:
    return (
        value.startswith(ENCODED_PREFIX)
        and value.endswith(ENCODED_SUFFIX)
        and len(value) >= len(ENCODED_PREFIX) + len(ENCODED_SUFFIX)
    )
