"""`_meta`: what each era keeps in it, and how it is carried from one to the other.

Everything that is not named here passes through untouched, in the order it came. Owns what a stamp must have; clients
write the same few into all of their requests, so a verdict is looked up where it can be. Refuses to know what an
unstamped request means: that depends on whether its client has shaken hands.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder, Encoder, decode

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, decode_object, encode, remembered_if_short
from mcp_workbench.protocol.logging_levels import LEVELS
from mcp_workbench.protocol.versions import LATEST_MODERN, MODERN_VERSIONS, Era

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"

# They are kept for as long as a legacy client is there, and with every connection that is made for them. Those of real
# clients are some hundred bytes.
MOST_CAPABILITIES: Final = 64 * 1024
TOO_CAPABLE: Final = f"the client's capabilities are larger than {MOST_CAPABILITIES} bytes"
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
NO_CAPABILITIES: Final = b"{}"

_encode_sorted: Final = Encoder(order="deterministic").encode

# Keys that exist in the modern era only; a legacy server has learnt the same from the handshake.
HOP_KEYS: Final = frozenset({PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL})


class _RequestMeta(Struct, gc=False):
    """What we have to know of a request's `_meta`."""

    version: str | UnsetType = field(name=PROTOCOL_VERSION, default=UNSET)
    client_info: Raw | UnsetType = field(name=CLIENT_INFO, default=UNSET)
    capabilities: Raw | UnsetType = field(name=CLIENT_CAPABILITIES, default=UNSET)
    log_level: str | UnsetType = field(name=LOG_LEVEL, default=UNSET)
    progress_token: Raw | UnsetType = field(name=PROGRESS_TOKEN, default=UNSET)


# Raises msgspec's errors.
_read_request_meta: Final = Decoder(_RequestMeta).decode


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
        read = _read_request_meta(meta)
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


class ClientIdentity(Struct, frozen=True):
    """Who the client is, as it said itself: what a server behind us is told."""

    info: bytes = b'{"name":"mcp-workbench","version":"0"}'
    capabilities: bytes = b"{}"


def meta_for_server(
    meta: Raw | None,
    *,
    era: Era,
    identity: ClientIdentity,
    progress_token: int | None,
    log_level: str | None,
    from_modern: bool,
) -> bytes | None:
    """The `_meta` of a request on its way to a server of `era`. None: no `_meta` at all.

    The progress token, where the client gave one, is replaced by ours: two clients may use the same.
    """
    if meta is None and era == "legacy":
        return None
    if progress_token is None and from_modern and meta is not None:
        return bytes(meta) if era == "modern" else _without_hop_keys(meta)
    fields: dict[str, Raw] = {} if meta is None else decode_object(meta)
    if progress_token is not None:
        fields[PROGRESS_TOKEN] = Raw(b"%d" % progress_token)
    if era == "legacy":
        if from_modern:
            fields = {key: value for key, value in fields.items() if key not in HOP_KEYS}
        return encode(fields) if fields else None
    if from_modern:
        return encode(fields)
    # A legacy client has said in its handshake who it is and what it can do; it cannot say otherwise here.
    fields = {key: value for key, value in fields.items() if key not in HOP_KEYS}
    if log_level is not None:
        fields[LOG_LEVEL] = Raw(encode(log_level))
    head = modern_stamp(identity)
    return head + b"}" if not fields else head + b"," + encode(fields)[1:]


@remembered_if_short
def _without_hop_keys(meta: bytes) -> bytes | None:
    fields = {key: value for key, value in decode_object(meta).items() if key not in HOP_KEYS}
    return encode(fields) if fields else None


def modern_stamp(identity: ClientIdentity) -> bytes:
    """The fields that every modern request carries, as an object that is still open at its end."""
    return b'{"%b":"%b","%b":%b,"%b":%b' % (
        PROTOCOL_VERSION.encode(),
        LATEST_MODERN.encode(),
        CLIENT_INFO.encode(),
        identity.info,
        CLIENT_CAPABILITIES.encode(),
        identity.capabilities,
    )
