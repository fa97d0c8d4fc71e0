"""Hosts as they are written in `network` of a sandbox: `api.github.com`, `*.example.com:8443`, `10.0.0.0/8`. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple

_DNS_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
MAX_HOST_NAME_LENGTH: Final = 253
_MAX_PORT: Final = 65535


class HostName(NamedTuple):
    """One entry of the list. A name, with `*.` in front for all names below it, or addresses."""

    name: str = ""
    is_wildcard: bool = False
    addresses: IPv4Network | IPv6Network | None = None
    # None: those of HTTP and HTTPS.
    port: int | None = None


class BadHost(ValueError):
    """Says what is expected instead."""


def parse_host(text: str) -> HostName:
    """Read an entry of the list. Raises `BadHost`."""
    if "://" in text:
        raise BadHost("a host without `https://`")
    host, port = _split(text)
    network = _addresses(host)
    if network is not None:
        return HostName(addresses=network, port=port)
    if "/" in host:
        raise BadHost("a host without a path")
    is_wildcard = host.startswith("*.")
    name = normal(host[2:] if is_wildcard else host)
    if name is None or "*" in host[1:]:
        raise BadHost("a host such as `api.github.com`, `*.example.com` or `example.com:8443`, or an address")
    if is_wildcard and "." not in name:
        raise BadHost("at least a domain and its ending after `*.`")
    return HostName(name, is_wildcard, port=port)


def normal(host: str) -> str | None:
    """A name as it is compared: small letters, international names encoded, without the dot of the root; None if it is
    none."""
    host = host.rstrip(".").lower()
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    if not host or len(host) > MAX_HOST_NAME_LENGTH or not all(map(_DNS_LABEL.match, host.split("."))):
        return None
    return host


def _split(text: str) -> tuple[str, int | None]:
    host, colon, digits = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1], None
    if not colon or (":" in host and not host.endswith("]")):
        # No port, or an IPv6 address without brackets.
        return text, None
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) <= _MAX_PORT:
        raise BadHost("a port from 1 to 65535 after the colon")
    return host.removeprefix("[").removesuffix("]"), int(digits)


def _addresses(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None
