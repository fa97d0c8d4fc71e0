"""`_meta`: what each era keeps in it, and how it is translated from one to the other.

Everything that is not named here passes through untouched, in the order it came. Owns what a stamp must have; clients
write the same few into all of their requests, so a verdict is looked up where it can be. Refuses to know what an
unstamped request means: that depends on whether its client has shaken hands.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder, Encoder, decode

from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, decode_object, encode, remembered_if_short
from mcp_workbench.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_workbench.protocol.logging_levels import LEVELS
from mcp_workbench.protocol.revisions import KNOWN, Era, Revision, names

# They are kept for as long as a legacy client is there, and with every connection that is made for them. Those of real
# clients are some hundred bytes.
MOST_CAPABILITIES: Final = 64 * 1024
TOO_CAPABLE: Final = f"the client's capabilities are larger than {MOST_CAPABILITIES} bytes"
NO_CAPABILITIES: Final = b"{}"

_encode_sorted: Final = Encoder(order="deterministic").encode
# What makes a difference to a server in what it can ask a client for.
_MODES: Final = ("form", "url")
_SAMPLING: Final = ("context", "tools")

# Keys that take the place of the handshake: whoever has shaken hands has said or learnt the same there.
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

    # None where the request names none: then it depends on whether its client has shaken hands.
    revision: Revision | None = None
    capabilities: bytes = NO_CAPABILITIES
    log_level: str | None = None
    progress_token: Raw | None = None
    # How the client introduced itself.
    client_info: bytes = b"{}"


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
    revision = KNOWN.get(read.version)
    if revision is None or revision.has_handshake:
        data = {"supported": names("modern"), "requested": read.version}
        return BadStamp(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    if read.capabilities is UNSET:
        return BadStamp(INVALID_PARAMS, "`_meta` lacks `io.modelcontextprotocol/clientCapabilities`")
    if read.log_level is not UNSET and read.log_level not in LEVELS:
        return BadStamp(INVALID_PARAMS, f"`io.modelcontextprotocol/logLevel` must be one of {', '.join(LEVELS)}")
    capabilities = canonical(read.capabilities)
    if capabilities is None:
        return BadStamp(INVALID_PARAMS, TOO_CAPABLE)
    info = b"{}" if read.client_info is UNSET else bytes(read.client_info)
    return Stamp(revision, capabilities, None if read.log_level is UNSET else read.log_level, token, info)


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


@remembered_if_short
def usable(capabilities: bytes) -> bytes:
    """The capabilities that a legacy server can act upon, in one spelling: clients with the same ones can share it.

    Known ones are reduced to what they say: `{"elicitation": {}}` and `{"elicitation": {"form": {}}}` are the same, and
    so are no `roots.listChanged` and a false one. Others, such as extensions, count as they are, unless they are empty.
    """
    try:
        declared = decode(capabilities)
    except (DecodeError, RecursionError):
        declared = None
    if not isinstance(declared, dict):
        return NO_CAPABILITIES
    return _encode_sorted({name: said for name, value in declared.items() if (said := _said(name, value)) is not None})


@remembered_if_short
def without_roots(capabilities: bytes) -> bytes:
    """Those of a client, in one spelling, without that it has roots."""
    declared = decode(capabilities)
    return _encode_sorted({name: value for name, value in declared.items() if name != "roots"})


@remembered_if_short
def without_capabilities(meta: bytes) -> Raw:
    """A stamp that declares nothing."""
    fields = decode_object(meta)
    if CLIENT_CAPABILITIES not in fields:
        return Raw(meta)
    return Raw(encode({**fields, CLIENT_CAPABILITIES: Raw(NO_CAPABILITIES)}))


def _said(name: str, value: Any) -> Any:
    """What a capability says, None where that is nothing."""
    if name not in ("roots", "sampling", "elicitation"):
        return value or None
    # Presence is what counts; a client that writes `true` means it all the same.
    members = value if isinstance(value, dict) else {}
    if value is None or value is False:
        return None
    if name == "roots":
        return {"listChanged": True} if members.get("listChanged") is True else {}
    if name == "sampling":
        return {each: {} for each in _SAMPLING if each in members}
    # A client that names no mode means forms, which are older than modes and were written without one.
    modes = [mode for mode in _MODES if mode in members]
    return {} if modes in ([], ["form"]) else {mode: {} for mode in modes}


class ClientIdentity(Struct, frozen=True):
    """Who the client is: what a server behind us is told, and the era of the handshake to try first."""

    info: bytes = b'{"name":"mcp-workbench","version":"0"}'
    capabilities: bytes = b"{}"
    era: Era = "modern"


def meta_for_server(
    meta: Raw | None,
    *,
    client: Revision,
    server: Revision,
    info: bytes,
    capabilities: bytes,
    progress_token: int | None,
    log_level: str | None,
) -> bytes | None:
    """The `_meta` of a client's request on its way to a server, each with its revision. None: no `_meta` at all.

    The progress token, where the client gave one, is replaced by ours: two clients may use the same. `info`,
    `capabilities` and `log_level` stand for a client that has shaken hands where the server is told with each request.
    """
    if server.has_handshake:
        if meta is None:
            return None
        if progress_token is None and not client.has_handshake:
            return _stripped(meta)
        return _after_handshake(meta, client, progress_token)
    if meta is not None and client is server and progress_token is None:
        return bytes(meta)
    fields: dict[str, Raw] = {} if meta is None else decode_object(meta)
    if progress_token is not None:
        fields[PROGRESS_TOKEN] = Raw(b"%d" % progress_token)
    if not client.has_handshake:
        # The server is spoken to in the revision that it agreed to, whatever the client speaks to us.
        fields[PROTOCOL_VERSION] = Raw(encode(server.name))
        return encode(fields)
    # The client has said in its handshake who it is and what it can do; it cannot say otherwise here.
    fields = _without_hop_keys(fields)
    if log_level is not None:
        fields[LOG_LEVEL] = Raw(encode(log_level))
    stamp = server.stamp(info, capabilities)
    return stamp + b"}" if not fields else stamp + b"," + encode(fields)[1:]


def _after_handshake(meta: Raw, client: Revision, progress_token: int | None) -> bytes | None:
    fields = decode_object(meta)
    if progress_token is not None:
        fields[PROGRESS_TOKEN] = Raw(b"%d" % progress_token)
    if not client.has_handshake:
        fields = _without_hop_keys(fields)
    return encode(fields) if fields else None


@remembered_if_short
def _stripped(meta: bytes) -> bytes | None:
    fields = _without_hop_keys(decode_object(meta))
    return encode(fields) if fields else None


def _without_hop_keys(fields: dict[str, Raw]) -> dict[str, Raw]:
    return {key: value for key, value in fields.items() if key not in HOP_KEYS}
