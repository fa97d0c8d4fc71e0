"""Meeting a server: which eras it speaks, what it can do, who it is.

Owns the probe and the handshake as the specification describes them ("Backward compatibility" of the stdio and
streamable HTTP pages). Refuses to know how messages travel: it is given something that can ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder
from msgspec.structs import replace

from mcp_workbench.errors import DownstreamError, ServerGone, WorkbenchError
from mcp_workbench.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.meta import SERVER_INFO, ClientIdentity, modern_stamp
from mcp_workbench.protocol.versions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    Era,
    SpokenEras,
)

# A legacy server may answer `server/discover` with any error, or not at all, and so may a modern one `initialize`.
# Those that understand it answer at once, but a package runner in front of them may take seconds to get there. Waiting
# longer delays the first start of silent servers only: what was found is remembered.
PROBE_TIMEOUT: Final = 5.0
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
NO_MEMBERS: Final = Raw(b"{}")


class Asker(Protocol):
    """What the handshake needs of a connection."""

    async def ask(self, method: str, params: bytes) -> Raw:
        """Send a request, wait for its result. Raises `RemoteError` and `DownstreamError`."""

    def tell(self, method: str, params: bytes | None = None) -> None:
        """Send a notification."""


class OtherEra(DownstreamError):
    """The server does not shake hands, and has settled for nothing else: spoken to anew, it may speak modern MCP."""


class ServerProfile(Struct, frozen=True):
    """What a server said of itself."""

    era: Era
    version: str
    capabilities: Raw = NO_MEMBERS
    # Empty where it did not say who it is.
    server_info: Raw = NO_MEMBERS
    instructions: str | None = None
    # What meeting it has shown of the eras that it speaks; in a manifest, all that is known of them.
    eras: SpokenEras = SpokenEras()


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


async def meet(asker: Asker, choice: str, spoken: SpokenEras, identity: ClientIdentity) -> ServerProfile:
    """Find out in which era to speak to the server, the client's own where it can be; shake hands where that is legacy.

    `choice` is the user's setting: `auto`, an era, or a revision. `spoken` is what was found out earlier. A server that
    speaks both eras settles for the one it is first spoken to in, so the era that is wanted is tried first.
    """
    if choice == "modern" or choice in MODERN_VERSIONS:
        profile = _modern_or_refuse(await _discover(asker, identity))
    elif choice == "legacy" or choice in LEGACY_VERSIONS:
        profile = await _initialize(asker, identity, choice if choice in LEGACY_VERSIONS else LATEST_LEGACY)
    elif spoken.for_client(identity.era) == "legacy":
        profile = await _handshake_first(asker, identity, is_known=spoken.legacy is True)
    else:
        profile = await _probe_first(asker, identity)
    # The one that was tried first was tried in vain where another was found.
    other = False if choice == "auto" and profile.era != spoken.for_client(identity.era) else None
    return replace(profile, eras=SpokenEras(True, other) if profile.era == "legacy" else SpokenEras(other, True))


def second_try(tried: Era, failure: DownstreamError) -> Era | None:
    """In which era a server is worth another start that could not be met in the first one, if it is.

    Some legacy servers die of the probe, and some modern ones hear nothing else after a handshake that they refused.
    """
    if isinstance(failure, OtherEra):
        return "modern" if tried == "legacy" else None
    return "legacy" if tried == "modern" and isinstance(failure, ServerGone) else None


async def _handshake_first(asker: Asker, identity: ClientIdentity, *, is_known: bool) -> ServerProfile:
    """For a legacy client: a modern server alone refuses the handshake, or says nothing to it."""
    handshake = _begin(_initialize(asker, identity, LATEST_LEGACY))
    probe: asyncio.Future[Raw] | None = None
    try:
        await asyncio.wait({handshake}, timeout=None if is_known else PROBE_TIMEOUT)
        if not handshake.done():
            probe = _begin(_discover(asker, identity))
            await asyncio.wait((handshake, probe), return_when=asyncio.FIRST_COMPLETED)
            profile = None if handshake.done() else _read_probe_if_answered(probe)
            if profile is not None:
                return profile
        try:
            return await handshake
        except ServerGone:
            raise
        except WorkbenchError as refusal:
            # Package runners update servers behind an unchanged command line, and so into the modern era.
            probe = probe or _begin(_discover(asker, identity))
            await asyncio.wait({probe}, timeout=PROBE_TIMEOUT)
            profile = _read_probe_if_answered(probe)
            if profile is not None:
                return profile
            if _refuses_the_era(refusal):
                raise OtherEra(refusal.message) from None
            raise refusal
    finally:
        handshake.cancel()
        if probe is not None:
            probe.cancel()


async def _probe_first(asker: Asker, identity: ClientIdentity) -> ServerProfile:
    """For a modern client."""
    probe = _begin(_discover(asker, identity))
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
        return await asker.ask("server/discover", discover_params(identity, LATEST_MODERN))
    except RemoteError as error:
        version = None if error.code != UNSUPPORTED_PROTOCOL_VERSION else _newest_modern(_supported_versions(error))
        if version is None:
            raise
    return await asker.ask("server/discover", discover_params(identity, version))


def _refuses_the_era(refusal: WorkbenchError) -> bool:
    if not isinstance(refusal, RemoteError):
        return False
    if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
        return _newest_modern(_supported_versions(refusal)) is not None
    return refusal.code == METHOD_NOT_FOUND


def _newest_modern(offered: Sequence[str] | None) -> str | None:
    """The newest modern revision that both of us speak."""
    return next((version for version in reversed(MODERN_VERSIONS) if version in (offered or ())), None)


Result = TypeVar("Result")


def _begin(work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    future = asyncio.ensure_future(work)
    # Nobody may look at how it failed; that is not an error of its own.
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future


def _read_probe_if_answered(probe: asyncio.Future[Raw]) -> ServerProfile | None:
    """The same for one that comes second: what became of the handshake is said in better words."""
    failure = probe.exception() if probe.done() else None
    if not probe.done() or (failure is not None and not isinstance(failure, RemoteError)):
        return None
    return _read_probe(probe)


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
    version = _newest_modern(found.supportedVersions)
    if version is None:
        # Some servers answer the probe and list legacy revisions only: that is an invitation to shake hands.
        return None
    capabilities = Raw(encode(found.capabilities))
    return ServerProfile("modern", version, capabilities, _own_members(found.meta.server_info), found.instructions)


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


def discover_params(identity: ClientIdentity, version: str) -> bytes:
    """The parameters of `server/discover`: nothing but who asks."""
    return b'{"_meta":' + modern_stamp(identity.info, identity.capabilities, version) + b"}}"


def _own(raw: Raw) -> Raw:
    # A Raw is a view into the message it came in, and would keep all of it alive.
    return Raw(bytes(raw))


def _own_members(value: Raw) -> Raw:
    """The same for what has to be an object, and counts for nothing where it is not one."""
    try:
        return _own(value) if decode_object(value) else NO_MEMBERS
    except (DecodeError, ValidationError):
        return NO_MEMBERS


class _Implementation(Struct):
    name: str = ""
    version: str = ""


_decode_implementation: Final = Decoder(_Implementation).decode


def who(server_info: Raw) -> tuple[str, str]:
    """Name and version of a server, which it says alike in both eras; empty where it does not say."""
    try:
        found = _decode_implementation(server_info)
    except (DecodeError, ValidationError):
        return "", ""
    return found.name, found.version
