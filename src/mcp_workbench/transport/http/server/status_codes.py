"""Which HTTP status a JSON-RPC answer of the modern era leaves with. One table.

Legacy answers leave with 200 whatever is in them: there the status speaks of the transport alone.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    read_error,
)
from mcp_workbench.protocol.constants import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)

# The specification names those of the last four lines; the first three are requests that were never understood.
STATUS_OF_CODE: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
# Methods that exist whatever is behind us. With them the code says that something else was not found, such as a tool;
# and a client may take 404 for a server that does not have the method at all.
ALWAYS_FOUND: Final = frozenset({"tools/call"})
# Everything else, `-32603` included, was understood and answered: a 5xx would make proxies send it again.
OTHERWISE: Final = 200


class _Answer(Struct, gc=False):
    error: Raw


_decode: Final = Decoder(_Answer).decode


def status_of_error(answer: bytes, method: str) -> int:
    """The status for an error answer to a request of this method."""
    code = read_error(_decode(answer).error).code
    if code == METHOD_NOT_FOUND and method in ALWAYS_FOUND:
        return STATUS_OF_CODE[INVALID_PARAMS]
    return STATUS_OF_CODE.get(code, OTHERWISE)
