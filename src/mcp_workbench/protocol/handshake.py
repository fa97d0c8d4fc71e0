"""Meeting a server: which era it belongs to, what it can do, who it is.

Owns the probe and the handshake as the specification describes them ("Backward compatibility" of the stdio and
streamable HTTP pages). Refuses to know how messages travel: it is given something that can ask.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.errors import DownstreamError
from mcp_workbench.jsonrpc.messages import decode_object, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.meta import SERVER_INFO, ClientIdentity, modern_stamp
from mcp_workbench.protocol.versions import LATEST_LEGACY, LEGACY_VERSIONS, MODERN_VERSIONS, Era

# A legacy server may answer `server/discover` with any error, or not at all. Modern servers answer at once, but a
# package runner in front of one may take seconds to get there. Waiting longer delays the first start of silent
# servers only: the answer is remembered.
PROBE_TIMEOUT: Final = 5.0
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
NO_MEMBERS: Final = Raw(b"{}")


class Asker(Protocol):
    """What the handshake needs of a connection."""

    async def ask(self, method: str, params: bytes) -> Raw:
        """Send a request, wait for its result. Raises `RemoteError` and `DownstreamError`."""

    def tell(self, method: str, params: bytes | None = None) -> None:
        """Send a notification."""


class ServerProfile(Struct, frozen=True):
    """What a server said of itself."""

    era: Era
    version: str
    capabilities: Raw = NO_MEMBERS
    # Empty where it did not say who it is.
    server_info: Raw = NO_MEMBERS
    instructions: str | None = None


class _DiscoverMeta(Struct):
    server_info: Raw = field(name=SERVER_INFO, default=NO_MEMBERS)


class _DiscoverResult(Struct):
    supportedVersions: list[str]
    capabilities: dict[str, Raw] = field(default_factory=dict)
    instructions: str | None = None
    meta: _DiscoverMeta = field(name="_meta", default_factory=_DiscoverMeta)


class _InitializeResult(Struct):
    protocolVersion: str
    capabilities: dict[str, Raw] = field(default_factory=dict)
    serverInfo: Raw = NO_MEMBERS
    instructions: str | None = None


class _Supported(Struct):
    supported: list[str] | UnsetType = UNSET


_decode_discover: Final = Decoder(_DiscoverResult).decode
_decode_initialize: Final = Decoder(_InitializeResult).decode
_decode_supported: Final = Decoder(_Supported).decode


async def meet(asker: Asker, choice: str, remembered: Era | None, identity: ClientIdentity) -> ServerProfile:
    """Find out the server's era and shake hands where it wants that.

    `choice` is the user's setting: `auto`, an era, or a revision. `remembered` is the era found last time.
    """
    if choice == "modern" or choice in MODERN_VERSIONS:
        return _modern_or_refuse(await _discover(asker, identity))
    if choice == "legacy" or choice in LEGACY_VERSIONS:
        return await _initialize(asker, identity, choice if choice in LEGACY_VERSIONS else LATEST_LEGACY)
    if remembered == "legacy":
        try:
            return await _initialize(asker, identity, LATEST_LEGACY)
        except RemoteError:
            # Package runners update servers behind an unchanged command line, and so into the modern era.
            pass
    return await _probe(asker, identity)


async def _probe(asker: Asker, identity: ClientIdentity) -> ServerProfile:
    probe = asyncio.ensure_future(_discover(asker, identity))
    try:
        await asyncio.wait({probe}, timeout=PROBE_TIMEOUT)
        answered = probe.done()
        if answered:
            profile = _read_probe(probe)
            if profile is not None:
                return profile
        try:
            return await _initialize(asker, identity, LATEST_LEGACY)
        except RemoteError:
            # A modern server that was slow to start has both requests before it and refuses the second one.
            if answered:
                raise
            profile = _read_probe(probe) if probe.done() else None
            if profile is None:
                raise
            return profile
    finally:
        probe.cancel()


async def _discover(asker: Asker, identity: ClientIdentity) -> Raw:
    """Ask what the server is; once more where it refuses the revision and then names one that we speak."""
    try:
        return await asker.ask("server/discover", discover_params(identity))
    except RemoteError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or not set(_supported_versions(error) or ()) & {*MODERN_VERSIONS}:
            raise
    return await asker.ask("server/discover", discover_params(identity))


def _read_probe(probe: asyncio.Future[Raw]) -> ServerProfile | None:
    """A profile where the answer is a modern server's; None where it is anything else."""
    try:
        return _modern_profile(probe.result())
    except RemoteError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            return None
        supported = _supported_versions(error)
        if supported is not None and not set(supported) & {*LEGACY_VERSIONS, *MODERN_VERSIONS}:
            raise DownstreamError(
                f"the server speaks only MCP {', '.join(supported)}, which this workbench does not know",
                hint="update mcp-workbench, or use another version of the server",
            ) from None
        return None


def _supported_versions(error: RemoteError) -> list[str] | None:
    if error.error.data is UNSET:
        return None
    try:
        supported = _decode_supported(error.error.data).supported
    except (DecodeError, ValidationError):
        return None
    return None if supported is UNSET else supported


def _modern_profile(result: Raw) -> ServerProfile | None:
    try:
        found = _decode_discover(result)
    except (DecodeError, ValidationError):
        return None
    for version in reversed(MODERN_VERSIONS):
        if version in found.supportedVersions:
            capabilities = Raw(encode(found.capabilities))
            return ServerProfile(
                "modern", version, capabilities, _own_members(found.meta.server_info), found.instructions
            )
    # Some servers answer the probe and list legacy revisions only: that is an invitation to shake hands.
    return None


def _modern_or_refuse(result: Raw) -> ServerProfile:
    profile = _modern_profile(result)
    if profile is None:
        raise DownstreamError(
            f"`protocol` asks for MCP {MODERN_VERSIONS[-1]}, which the server does not speak",
            hint='remove `protocol` or set it to "auto"',
        )
    return profile


async def _initialize(asker: Asker, identity: ClientIdentity, version: str) -> ServerProfile:
    params = b'{"protocolVersion":%b,"capabilities":%b,"clientInfo":%b}' % (
        encode(version),
        identity.capabilities,
        identity.info,
    )
    raw = await asker.ask("initialize", params)
    try:
        found = _decode_initialize(raw)
    except (DecodeError, ValidationError) as error:
        raise DownstreamError(f"the server's answer to `initialize` cannot be used: {error}") from None
    if found.protocolVersion not in LEGACY_VERSIONS:
        raise DownstreamError(
            f"the server wants to speak MCP `{found.protocolVersion}`, which this workbench does not know",
            hint=f"known revisions: {', '.join((*LEGACY_VERSIONS, *MODERN_VERSIONS))}",
        )
    asker.tell("notifications/initialized")
    capabilities = Raw(encode(found.capabilities))
    return ServerProfile(
        "legacy", found.protocolVersion, capabilities, _own_members(found.serverInfo), found.instructions
    )


def discover_params(identity: ClientIdentity) -> bytes:
    """The parameters of `server/discover`: nothing but who asks."""
    return b'{"_meta":' + modern_stamp(identity) + b"}}"


def _own(raw: Raw) -> Raw:
    # A Raw is a view into the message it came in, and would keep all of it alive.
    return Raw(bytes(raw))


def _own_members(value: Raw) -> Raw:
    """The same for what has to be an object, and counts for nothing where it is not one."""
    try:
        return _own(value) if decode_object(value) else NO_MEMBERS
    except (DecodeError, ValidationError):
        return NO_MEMBERS
