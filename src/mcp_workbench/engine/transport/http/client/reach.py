"""From where an address can be reached: everywhere, in a private network, on one link, on this machine alone. Pure.

Programs inside often trust whoever can reach them, so a server outside must not be able to send us there.
"""

from __future__ import annotations

import enum
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

# IPv6 addresses whose last 32 bits are an IPv4 address that a translator reaches (RFC 2765, RFC 6052, RFC 8215), and
# the deprecated IPv4-compatible ones (RFC 4291).
_EMBEDDING: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")))


class Reach(enum.IntEnum):
    """The more local, the larger. Whoever is at an address may name addresses that are no more local than it."""

    PUBLIC = 0
    PRIVATE = 1
    LINK_LOCAL = 2
    THIS_MACHINE = 3


REACH_WORDS: Final = {
    Reach.PUBLIC: "on the Internet",
    Reach.PRIVATE: "in a private network",
    Reach.LINK_LOCAL: "on this machine's own link",
    Reach.THIS_MACHINE: "on this machine",
}


def reach_of_ip(text: str) -> Reach:
    """The reach of an IP address as the resolver returns it."""
    return _reach(ip_address(text))


def reach_of_host(host: str) -> Reach | None:
    """The reach of a host, if it can be told from its spelling; None for names that have to be looked up."""
    host = host.strip("[]").rstrip(".").lower()
    if not host.isascii():
        try:
            # Turns full-width digits and dots into plain ones, as browsers do.
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    if host == "localhost" or host.endswith(".localhost"):
        return Reach.THIS_MACHINE
    try:
        if ":" in host:
            return _reach(IPv6Address(host))
        # Every spelling that the resolver takes: 127.1, 2130706433, 0x7f000001, 0177.0.0.1.
        return _reach(IPv4Address(socket.inet_aton(host)))
    except (ValueError, OSError):
        return None


def _reach(ip: IPv4Address | IPv6Address) -> Reach:
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and int(ip) > 1 and any(ip in network for network in _EMBEDDING):
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _reach(inner)
    # The unspecified address leads to this machine, and a group of machines may include it.
    if ip.is_loopback or ip.is_unspecified or ip.is_multicast or (ip.version == 4 and int(ip) >> 24 == 0):
        return Reach.THIS_MACHINE
    if ip.is_link_local:
        return Reach.LINK_LOCAL
    # Deprecated, and still routed in some networks.
    is_of_site = isinstance(ip, IPv6Address) and ip.is_site_local
    return Reach.PUBLIC if ip.is_global and not is_of_site else Reach.PRIVATE
