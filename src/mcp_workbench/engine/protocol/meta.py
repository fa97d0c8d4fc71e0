"""`_meta`: what each era puts into it, and how it is translated between them.

Everything not named here passes through untouched and in order. Owns the validation of a stamp: clients put the same
one into every request, so results are cached. Knows nothing about what an unstamped request means, which depends on
whether its client has performed the handshake.
"""

from __future__ import annotations

from typing import Any, Final, final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder, Encoder, decode

from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, decode_object, encode, remembered_if_short
from mcp_workbench.engine.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_workbench.engine.protocol.logging_levels import LEVELS
from mcp_workbench.engine.protocol.revisions import KNOWN, Era, Revision, names

# Capabilities are kept as long as a legacy client is connected, and with every connection made for it. Those of real
# clients are a few hundred bytes.
MAX_CAPABILITIES_BYTES: Final = 64 * 1024
TOO_CAPABLE: Final = f"the client's capabilities are larger than {MAX_CAPABILITIES_BYTES} bytes"
NO_CAPABILITIES: Final = b"{}"

_encode_sorted: Final = Encoder(order="deterministic").encode
# The modes of elicitation that make a difference to a server.
_MODES: Final = ("form", "url")
_SAMPLING_FEATURES: Final = ("context", "tools")

# Keys that replace the handshake: in the legacy era, the handshake carries the same information.
HOP_KEYS: Final = frozenset({PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL})


class _RequestMeta(Struct, gc=False):
    """The parts of a request's `_meta` that we need."""

    version: str | UnsetType = field(name=PROTOCOL_VERSION, default=UNSET)
    client_info: Raw | UnsetType = field(name=CLIENT_INFO, default=UNSET)
    capabilities: Raw | UnsetType = field(name=CLIENT_CAPABILITIES, default=UNSET)
    log_level: str | UnsetType = field(name=LOG_LEVEL, default=UNSET)
    progress_token: Raw | UnsetType = field(name=PROGRESS_TOKEN, default=UNSET)


# Raises msgspec's errors.
_read_request_meta: Final = Decoder(_RequestMeta).decode


@final
class Stamp(Struct, frozen=True, gc=False):
    """The stamp of a request. Cached and shared by requests, so it must not be changed."""

    # None if the request names none: then it depends on whether its client has performed the handshake.
    revision: Revision | None = None
    capabilities: bytes = NO_CAPABILITIES
    log_level: str | None = None
    progress_token: Raw | None = None
    # How the client introduced itself.
    client_info: bytes = b"{}"


@final
class BadStamp(Struct, frozen=True):
    """The JSON-RPC error for a request with an invalid stamp."""

    code: int
    message: str
    data: object = UNSET


@remembered_if_short
def read_stamp(meta: bytes) -> Stamp | BadStamp:
    """Read and validate the stamp in the `_meta` of a request."""
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
    """Capabilities in canonical form, because they are part of the key for shared connections. None: too large."""
    if len(capabilities) > MAX_CAPABILITIES_BYTES:
        return None
    try:
        declared = decode(capabilities)
    except (DecodeError, RecursionError):
        return NO_CAPABILITIES
    return _encode_sorted(declared) if isinstance(declared, dict) else NO_CAPABILITIES


@remembered_if_short
def usable(capabilities: bytes) -> bytes:
    """The capabilities that a legacy server can act on, in canonical form: clients with equal ones can share a server.

    Known capabilities are reduced to their meaning: `{"elicitation": {}}` equals `{"elicitation": {"form": {}}}`, and a
    missing `roots.listChanged` equals a false one. Others, such as extensions, are kept unless they are empty.
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
    """The capabilities in canonical form, without `roots`."""
    declared = decode(capabilities)
    return _encode_sorted({name: value for name, value in declared.items() if name != "roots"})


@remembered_if_short
def without_capabilities(meta: bytes) -> Raw:
    """The stamp with its capabilities removed."""
    fields = decode_object(meta)
    if CLIENT_CAPABILITIES not in fields:
        return Raw(meta)
    return Raw(encode({**fields, CLIENT_CAPABILITIES: Raw(NO_CAPABILITIES)}))


def _said(name: str, value: Any) -> Any:
    """The meaning of a capability; None if it is not declared."""
    if name not in ("roots", "sampling", "elicitation"):
        return value or None
    # Presence is what counts, so `true` instead of an object declares it too.
    members = value if isinstance(value, dict) else {}
    if value is None or value is False:
        return None
    if name == "roots":
        return {"listChanged": True} if members.get("listChanged") is True else {}
    if name == "sampling":
        return {each: {} for each in _SAMPLING_FEATURES if each in members}
    # Without a mode, forms are meant: they existed before modes did.
    modes = [mode for mode in _MODES if mode in members]
    return {} if modes in ([], ["form"]) else {mode: {} for mode in modes}


class ClientIdentity(Struct, frozen=True):
    """The client's identity, as sent to servers, and the era to try first."""

    info: bytes = b'{"name":"mcp-workbench","version":"0"}'
    capabilities: bytes = b"{}"
    era: Era = "modern"


def meta_for_server(
    meta: Raw | None,
    client: Revision,
    server: Revision,
    info: bytes,
    capabilities: bytes,
    progress_token: int | None,
    log_level: str | None,
) -> bytes | None:
    """Translate the `_meta` of a request from the client's revision to the server's. None: no `_meta` at all.

    The client's progress token, if any, is replaced by ours, because two clients may use the same one. `info`,
    `capabilities` and `log_level` are from the handshake of a legacy client, for servers that expect them in each
    request.
    """
    if server.has_handshake:
        if meta is None:
            return None
        if progress_token is None:
            if not client.has_handshake:
                return _stripped(meta)
            written = bytes(meta)
            # Nothing to change. A line break would end the message.
            if len(written) > len(b"{}") and b"\n" not in written and b"\r" not in written:
                return written
        return _after_handshake(meta, client, progress_token)
    if meta is not None and client is server and progress_token is None:
        return bytes(meta)
    fields: dict[str, Raw] = {} if meta is None else decode_object(meta)
    if progress_token is not None:
        fields[PROGRESS_TOKEN] = Raw(b"%d" % progress_token)
    if not client.has_handshake:
        # The revision that the server agreed to, whichever the client uses.
        fields[PROTOCOL_VERSION] = Raw(encode(server.name))
        return encode(fields)
    # A legacy client declared these in its handshake and must not override them here.
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
