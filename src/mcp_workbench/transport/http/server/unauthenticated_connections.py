"""Connections that have not proved who is calling, by the address that they come from.

Each costs a descriptor, and anybody who reaches us can open them. Those beyond a bound are closed, the oldest first: a
client sends its request with the connection, so whoever has waited for longest is least likely to be one. A newcomer is
never refused for them, because every client begins as one.

Owns which of them has to go. Refuses to know how anybody is authenticated.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mcp_workbench.transport.http.server.limits import UNAUTHENTICATED_SECONDS, Limits

if TYPE_CHECKING:
    from mcp_workbench.transport.http.server.server_connection import InboundConnection

# One customer of a network has as many addresses of IPv6 as there are in this.
_IPV6_PREFIX: Final = 64
# What the address of a peer begins with that is at the other end of a Unix socket.
UID_PREFIX: Final = "uid:"


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address at the other end, `uid:…` on a Unix socket; empty where it has none."""
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        return network_of(name[0]) if name else ""
    used = transport.get_extra_info("socket")
    if used is None or used.family != socket.AF_UNIX:
        return ""
    uid = uid_of_peer(used)
    return "" if uid is None else f"{UID_PREFIX}{uid}"


def address_of(transport: asyncio.BaseTransport) -> str:
    """The very address at the other end, whatever network it is in; empty where it is not one of IP."""
    name = transport.get_extra_info("peername")
    return _address_in(name[0]) if isinstance(name, tuple) and name else ""


def uid_of_peer(used: socket.socket) -> int | None:
    """Who is at the other end of a Unix socket, as the kernel tells; None where it does not."""
    with contextlib.suppress(OSError, AttributeError):
        if hasattr(socket, "SO_PEERCRED"):
            credentials = used.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            uid: int = struct.unpack("3i", credentials)[1]
            return uid
        # macOS: `struct xucred` with a version and then the uid.
        credentials = used.getsockopt(0, 0x001, 128)
        return int(struct.unpack_from("II", credentials)[1])
    return None


def names_in_certificate(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """The names in the certificate that the client has shown, which was verified; none without."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI", "email")]
    return tuple(dict.fromkeys((*common, *alternative)))


def _address_in(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(address if mapped is None else mapped)


@lru_cache(maxsize=256)
def network_of(host: str) -> str:
    """What an address is counted by: itself, of IPv6 its network. Whatever is none stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


class UnauthenticatedConnections:
    __slots__ = ("_by_peer", "_count", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0
        # Each peer's in the order they came; the peer whose first came first is first.
        self._by_peer: dict[str, dict[InboundConnection, None]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, connection: InboundConnection) -> None:
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._count += 1

    def discard(self, connection: InboundConnection) -> None:
        """It is gone, or has authenticated."""
        of_peer = self._by_peer.get(connection.peer)
        if of_peer is not None and connection in of_peer:
            del of_peer[connection]
            self._count -= 1
            if not of_peer:
                del self._by_peer[connection.peer]

    def surplus(self, peer: str, now: float, *, is_full: bool) -> InboundConnection | None:
        """One that has to go because of a newcomer from this peer, if any has. `is_full`: there is no connection left
        for it."""
        of_peer = self._by_peer.get(peer, {})
        if len(of_peer) <= self._limits.unauthenticated_per_peer:
            if self._count <= self._limits.unauthenticated and not is_full:
                return None
            # Looked for only here, where there are too many: of the peer that has most.
            of_peer = max(self._by_peer.values(), key=len, default={})
        oldest = next(iter(of_peer), None)
        if oldest is None:
            return None
        # A burst of clients has sent nothing yet, and is none the worse for it.
        is_burst = now - oldest.since < UNAUTHENTICATED_SECONDS
        return None if is_burst and not (is_full and len(of_peer) > self._limits.unauthenticated_per_peer) else oldest
