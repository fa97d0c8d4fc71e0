"""Connections that have not authenticated, by the address that they come from.

Each costs a descriptor, and anyone who reaches us can open them. Beyond a limit they are closed, the oldest first: a
real client sends its request as soon as it is connected, so the one that has waited longest is least likely to be real.
A new connection is never refused because of them, since every client begins as one.

Owns which of them is closed. Knows nothing about authentication.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.socket_peers import may_ask, peer_uid
from mcp_workbench.engine.transport.http.server.limits import UNAUTHENTICATED_GRACE, Limits

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection

# Network providers assign each customer at least a /64 of IPv6 addresses.
_IPV6_PREFIX: Final = 64
# The prefix of peers at the other end of a Unix socket.
UID_PREFIX: Final = "uid:"
OF_SERVER: Final = ":server"


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address or IPv6 network, `uid:…` on a Unix socket, followed by `OF_SERVER` for a process of one of our
    user's servers; empty if unknown."""
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        return network_of(name[0]) if name else ""
    used = transport.get_extra_info("socket")
    if used is None or used.family != socket.AF_UNIX:
        return ""
    with contextlib.suppress(OSError):
        uid = peer_uid(used)
        if uid is not None:
            # Servers have our own uid, and would otherwise be taken for our user.
            is_server = uid == os.geteuid() and not may_ask(used)
            return f"{UID_PREFIX}{uid}{OF_SERVER if is_server else ''}"
    return ""


def address_of(transport: asyncio.BaseTransport) -> str:
    """The peer's exact IP address; empty if it has none."""
    name = transport.get_extra_info("peername")
    return _address_in(name[0]) if isinstance(name, tuple) and name else ""


def names_in_certificate(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """The names in the client's verified certificate; empty if it has shown none."""
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
    """The key that an address is counted by: the address itself, or its network for IPv6. Other strings are
    unchanged."""
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
        # The connections of each peer in order of arrival; peers in the order of their first connection.
        self._by_peer: dict[str, dict[InboundConnection, None]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, connection: InboundConnection) -> None:
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._count += 1

    def discard(self, connection: InboundConnection) -> None:
        """Remove a connection that was closed or has authenticated."""
        of_peer = self._by_peer.get(connection.peer)
        if of_peer is not None and connection in of_peer:
            del of_peer[connection]
            self._count -= 1
            if not of_peer:
                del self._by_peer[connection.peer]

    def surplus(self, peer: str, now: float, *, is_full: bool) -> InboundConnection | None:
        """A connection to close because of a new one from this peer, or None. `is_full`: the limit on all connections
        is reached."""
        of_peer = self._by_peer.get(peer, {})
        if len(of_peer) <= self._limits.unauthenticated_per_peer:
            if self._count <= self._limits.unauthenticated and not is_full:
                return None
            # Searched only here, where there are too many: the peer with the most connections.
            of_peer = max(self._by_peer.values(), key=len, default={})
        oldest = next(iter(of_peer), None)
        if oldest is None:
            return None
        # In a burst of clients, connections have not had time to send anything yet.
        is_burst = now - oldest.since < UNAUTHENTICATED_GRACE
        return None if is_burst and not (is_full and len(of_peer) > self._limits.unauthenticated_per_peer) else oldest
