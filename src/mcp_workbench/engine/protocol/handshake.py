"""The first exchange with a server: which eras it speaks, what it supports, and its name and version.

Owns the probe and the handshake as the specification describes them ("Backward compatibility" on the pages about stdio
and Streamable HTTP). Knows nothing about how messages travel: requests go through an `Asker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder
from msgspec.structs import replace

from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.constants import SERVER_INFO, UNSUPPORTED_PROTOCOL_VERSION
from mcp_workbench.engine.protocol.meta import ClientIdentity
from mcp_workbench.engine.protocol.revisions import (
    KNOWN,
    Era,
    Revision,
    SpokenEras,
    chosen,
    has_handshake,
    newest,
    newest_stateless,
)
from mcp_workbench.errors import DownstreamError, ServerGone, WorkbenchError

# A legacy server may answer `server/discover` with any error, or not at all, and so may a modern one `initialize`.
# Servers that understand the request answer at once, but the package runner that starts them may take seconds. This
# delays only the first start of a server that stays silent, because the result is cached.
PROBE_TIMEOUT: Final = 5.0
NO_MEMBERS: Final = Raw(b"{}")


class Asker(Protocol):
    """What the handshake needs of a connection."""

    async def ask(self, method: str, params: bytes) -> Raw:
        """Send a request and wait for its result. Raises `RemoteError` and `DownstreamError`."""

    def notify(self, method: str, params: bytes | None = None) -> None: ...


class OtherEra(DownstreamError):
    """The server refused the handshake and has not committed to an era: restarted, it may speak modern MCP."""


class ServerProfile(Struct, frozen=True, dict=True):
    """How a server described itself. Stored in manifests, including `era` and `version`."""

    era: Era
    version: str
    capabilities: Raw = NO_MEMBERS
    # Empty if the server did not send any.
    server_info: Raw = NO_MEMBERS
    instructions: str | None = None
    # What this handshake showed about the eras it speaks; in a manifest, everything known about them.
    eras: SpokenEras = SpokenEras()

    @cached_property
    def revision(self) -> Revision:
        """The revision that the server agreed to."""
        # The manifest may have been written by a later version of the workbench.
        return KNOWN.get(self.version) or newest(self.era)

    @staticmethod
    def of(revision: Revision, capabilities: dict[str, Raw], info: Raw, instructions: str | None) -> ServerProfile:
        """The profile of a server after its handshake."""
        return ServerProfile(revision.era, revision.name, Raw(encode(capabilities)), _own_members(info), instructions)


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


async def perform_handshake(asker: Asker, choice: str, spoken: SpokenEras, identity: ClientIdentity) -> ServerProfile:
    """Choose the era for this server, preferring the client's, and perform the handshake if it is legacy.

    `choice` is the user's setting: `auto`, an era, or a revision. `spoken` is what earlier connections found out. A
    server of both eras commits to the one of the first request, so the preferred era is tried first.
    """
    wanted = chosen(choice)
    if wanted is None:
        expected = spoken.for_client(identity.era)
        if newest(expected).has_handshake:
            profile = await _handshake_first(asker, identity, is_known=spoken.legacy is True)
        else:
            profile = await _probe_first(asker, identity)
        # If the server turned out to speak the other era, it does not speak the one we tried first.
        other = None if profile.era == expected else False
        return replace(profile, eras=SpokenEras.found(profile.era, other))
    if wanted.has_handshake:
        profile = await _initialize(asker, identity, wanted)
    else:
        profile = _agreed_or_refuse(await _discover(asker, identity, wanted), choice, wanted)
    return replace(profile, eras=SpokenEras.found(profile.era, None))


def second_try(tried: Era, failure: DownstreamError) -> Era | None:
    """The era in which to start a server once more after a failed handshake; None if that is pointless.

    Some legacy servers crash on the probe, and some modern ones stop answering after a handshake that they refused.
    """
    if isinstance(failure, OtherEra):
        return "modern" if tried == "legacy" else None
    return "legacy" if tried == "modern" and isinstance(failure, ServerGone) else None


async def _handshake_first(asker: Asker, identity: ClientIdentity, *, is_known: bool) -> ServerProfile:
    """For a legacy client. A server that speaks only modern MCP refuses the handshake or ignores it."""
    handshake = _begin(_initialize(asker, identity, newest("legacy")))
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
            # Even if it was legacy before: package runners update servers behind an unchanged command line.
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
            return await _initialize(asker, identity, newest("legacy"))
        except RemoteError:
            # A modern server that started slowly has received both requests, and refuses the second.
            if answered:
                raise
            profile = _read_probe(probe) if probe.done() else None
            if profile is None:
                raise
            return profile
    finally:
        probe.cancel()


async def _discover(asker: Asker, identity: ClientIdentity, revision: Revision | None = None) -> Raw:
    """Send `server/discover`, and again if the server refuses the revision but names one that we speak."""
    try:
        return await asker.ask("server/discover", discover_params(identity, revision or newest("modern")))
    except RemoteError as error:
        named = None if error.code != UNSUPPORTED_PROTOCOL_VERSION else newest_stateless(_supported(error) or ())
        if named is None:
            raise
    return await asker.ask("server/discover", discover_params(identity, named))


def _refuses_the_era(refusal: WorkbenchError) -> bool:
    if not isinstance(refusal, RemoteError):
        return False
    if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
        return newest_stateless(_supported(refusal) or ()) is not None
    return refusal.code == METHOD_NOT_FOUND


Result = TypeVar("Result")


def _begin(work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    future = asyncio.ensure_future(work)
    # Retrieve the exception, so that asyncio does not log it if no one awaits this future.
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future


def _read_probe_if_answered(probe: asyncio.Future[Raw]) -> ServerProfile | None:
    """Like `_read_probe`, but None if the probe failed: the handshake's error is more helpful."""
    failure = probe.exception() if probe.done() else None
    if not probe.done() or (failure is not None and not isinstance(failure, RemoteError)):
        return None
    return _read_probe(probe)


def _read_probe(probe: asyncio.Future[Raw]) -> ServerProfile | None:
    """The profile, if the response is a modern server's; otherwise None."""
    try:
        return _agreed(probe.result())
    except RemoteError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            return None
        supported = _supported(error)
        if supported is not None and not KNOWN.keys() & supported:
            raise DownstreamError(
                f"the server speaks only MCP {', '.join(supported)}, which this workbench does not support",
                hint="update mcp-workbench, or use another version of the server",
            ) from None
        return None


def _supported(error: RemoteError) -> list[str] | None:
    if error.error.data is UNSET:
        return None
    try:
        supported = _decode_supported(error.error.data).supported
    except (DecodeError, ValidationError):
        return None
    return None if supported is UNSET else supported


def _agreed(result: Raw, choices: Collection[str] | None = None) -> ServerProfile | None:
    """The profile of a modern server, in the newest revision that both sides speak, restricted to `choices`."""
    try:
        found = _decode_discover(result)
    except (DecodeError, ValidationError):
        return None
    supported = found.supportedVersions
    revision = newest_stateless(supported if choices is None else [name for name in supported if name in choices])
    if revision is None:
        # Some servers answer the probe but list only legacy revisions: they expect the handshake.
        return None
    return ServerProfile.of(revision, found.capabilities, found.meta.server_info, found.instructions)


def _agreed_or_refuse(result: Raw, choice: str, wanted: Revision) -> ServerProfile:
    profile = _agreed(result, None if choice == wanted.era else (wanted.name,))
    if profile is None:
        raise DownstreamError(
            f"`protocol` asks for MCP {wanted.name}, which the server does not speak",
            hint='remove `protocol` or set it to "auto"',
        )
    return profile


async def _initialize(asker: Asker, identity: ClientIdentity, revision: Revision) -> ServerProfile:
    params = b'{"protocolVersion":%b,"capabilities":%b,"clientInfo":%b}' % (
        encode(revision.name),
        identity.capabilities,
        identity.info,
    )
    raw = await asker.ask("initialize", params)
    try:
        found = _decode_initialize(raw)
    except (DecodeError, ValidationError) as error:
        raise DownstreamError(f"the server's answer to `initialize` cannot be used: {error}") from None
    if not has_handshake(found.protocolVersion):
        raise DownstreamError(
            f"the server wants to speak MCP `{found.protocolVersion}`, which this workbench does not support",
            hint=f"known revisions: {', '.join(KNOWN)}",
        )
    asker.notify("notifications/initialized")
    return ServerProfile.of(KNOWN[found.protocolVersion], found.capabilities, found.serverInfo, found.instructions)


def discover_params(identity: ClientIdentity, revision: Revision) -> bytes:
    """The parameters of `server/discover`: only the client's identity."""
    return b'{"_meta":' + revision.stamp(identity.info, identity.capabilities) + b"}}"


def _own(raw: Raw) -> Raw:
    # A `Raw` is a view into its message and would keep the whole message in memory.
    return Raw(bytes(raw))


def _own_members(value: Raw) -> Raw:
    """Like `_own`, for a member that must be an object; anything else is treated as empty."""
    try:
        return _own(value) if decode_object(value) else NO_MEMBERS
    except (DecodeError, ValidationError):
        return NO_MEMBERS


class _Implementation(Struct):
    name: str = ""
    version: str = ""


_decode_implementation: Final = Decoder(_Implementation).decode


def who(server_info: Raw) -> tuple[str, str]:
    """The name and version of a server, empty if missing. Their format is the same in both eras."""
    try:
        found = _decode_implementation(server_info)
    except (DecodeError, ValidationError):
        return "", ""
    return found.name, found.version
