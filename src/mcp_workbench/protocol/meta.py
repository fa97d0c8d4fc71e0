"""`_meta`: what each era keeps in it, and how it is carried from one to the other.

Everything that is not named here passes through untouched, in the order it came.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from mcp_workbench.jsonrpc.messages import decode_object, encode, remembered_if_short
from mcp_workbench.protocol.versions import LATEST_MODERN, Era

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"

# Keys that exist in the modern era only; a legacy server has learnt the same from the handshake.
HOP_KEYS: Final = frozenset({PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL})


class RequestMeta(Struct, gc=False):
    """What we have to know of a request's `_meta`."""

    version: str | UnsetType = field(name=PROTOCOL_VERSION, default=UNSET)
    client_info: Raw | UnsetType = field(name=CLIENT_INFO, default=UNSET)
    capabilities: Raw | UnsetType = field(name=CLIENT_CAPABILITIES, default=UNSET)
    log_level: str | UnsetType = field(name=LOG_LEVEL, default=UNSET)
    progress_token: Raw | UnsetType = field(name=PROGRESS_TOKEN, default=UNSET)


# Raises msgspec's errors.
read_request_meta: Final = Decoder(RequestMeta).decode


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
