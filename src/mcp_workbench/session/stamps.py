"""What the `_meta` of a request says about its era and its client, judged. Pure.

Clients write the same few stamps into all of their requests, so a verdict is looked up where it can be. Owns what a
stamp must have. Refuses to know what an unstamped request means: that depends on whether its client has shaken hands.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, ValidationError
from msgspec.json import Encoder, decode

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, remembered_if_short
from mcp_workbench.protocol.logging_levels import LEVELS
from mcp_workbench.protocol.meta import read_request_meta
from mcp_workbench.protocol.versions import MODERN_VERSIONS

# They are kept for as long as a legacy client is there, and with every connection that is made for them. Those of real
# clients are some hundred bytes.
MOST_CAPABILITIES: Final = 64 * 1024
TOO_CAPABLE: Final = f"the client's capabilities are larger than {MOST_CAPABILITIES} bytes"
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
NO_CAPABILITIES: Final = b"{}"

_encode_sorted: Final = Encoder(order="deterministic").encode


class Stamp(Struct, frozen=True, gc=False):
    """What a request is stamped with. Shared by requests: not to be changed."""

    # The revision; None where the request has none, which is for the legacy era to judge.
    version: str | None = None
    capabilities: bytes = NO_CAPABILITIES
    log_level: str | None = None
    progress_token: Raw | None = None


class BadStamp(Struct, frozen=True):
    """Why a request is refused: the JSON-RPC error."""

    code: int
    message: str
    data: object = UNSET


@remembered_if_short
def read_stamp(meta: bytes) -> Stamp | BadStamp:
    """Judge the `_meta` of a request."""
    try:
        read = read_request_meta(meta)
    except (DecodeError, ValidationError) as error:
        return BadStamp(INVALID_PARAMS, f"`_meta` cannot be used: {error}")
    token = None if read.progress_token is UNSET else read.progress_token
    if read.version is UNSET:
        return Stamp(progress_token=token)
    if read.version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": read.version}
        return BadStamp(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    if read.capabilities is UNSET:
        return BadStamp(INVALID_PARAMS, "`_meta` lacks `io.modelcontextprotocol/clientCapabilities`")
    if read.log_level is not UNSET and read.log_level not in LEVELS:
        return BadStamp(INVALID_PARAMS, f"`io.modelcontextprotocol/logLevel` must be one of {', '.join(LEVELS)}")
    capabilities = canonical(read.capabilities)
    if capabilities is None:
        return BadStamp(INVALID_PARAMS, TOO_CAPABLE)
    return Stamp(read.version, capabilities, None if read.log_level is UNSET else read.log_level, token)


@remembered_if_short
def canonical(capabilities: bytes) -> bytes | None:
    """Capabilities in one spelling: they are part of what decides who shares a connection. None: too large to keep."""
    if len(capabilities) > MOST_CAPABILITIES:
        return None
    try:
        declared = decode(capabilities)
    except (DecodeError, RecursionError):
        return NO_CAPABILITIES
    return _encode_sorted(declared) if isinstance(declared, dict) else NO_CAPABILITIES
