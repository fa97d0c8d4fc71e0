"""The HTTP status of a JSON-RPC response of the modern era: one table.

Legacy responses always have status 200: there the status is about the transport alone.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    read_error,
    without_surrogates,
)
from mcp_workbench.engine.protocol.constants import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)

# The specification prescribes the last four; the first three are requests that were never understood.
STATUS_OF_CODE: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
# Methods that exist whatever is behind us. For them the code means that something else, such as a tool, was not found;
# and a client may take 404 to mean that the server does not have the method at all.
ALWAYS_FOUND: Final = frozenset({"tools/call"})
# Everything else, `-32603` included, was understood and answered: after a 5xx, proxies would send it again.
OTHERWISE: Final = 200


class _Answer(Struct, gc=False):
    error: Raw


_decode: Final = Decoder(_Answer).decode


def status_of_error(answer: bytes, method: str) -> int:
    """The status of an error response to a request with this method."""
    # Half of a surrogate pair, in the id or in a server's text, must not keep the code from being read.
    code = read_error(_decode(without_surrogates(answer)).error).code
    if code == METHOD_NOT_FOUND and method in ALWAYS_FOUND:
        return STATUS_OF_CODE[INVALID_PARAMS]
    return STATUS_OF_CODE.get(code, OTHERWISE)
