"""Which hosts a server may reach. Pure: names and addresses in, a reason for a refusal out.

A name is checked before it is looked up, and its addresses after: a name that is allowed must not lead into the user's
own network, where programs trust whoever reaches them, unless that address is listed as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from mcp_workbench.engine.config.host_names import HostName, normal, parse_host
from mcp_workbench.engine.sandbox.sandbox import RefusedHost
from mcp_workbench.engine.transport.http.client.reach import REACH_WORDS, Reach, reach_of_host, reach_of_ip

_USUAL_PORTS: Final = (80, 443)
_LOCALHOST: Final = "localhost"
_INTERFACE: Final = re.compile(r"[A-Za-z0-9._-]{1,15}")


class EgressRules:
    def __init__(self, written: Iterable[str]) -> None:
        self._written = tuple(written)
        self._hosts = [parse_host(each) for each in self._written]

    def and_also(self, entry: str) -> EgressRules:
        """These, and one more entry of the list."""
        return EgressRules((*self._written, entry))

    @property
    def names_this_machine(self) -> bool:
        """Whether something on this machine is listed, which is reached from here and not from the sandbox."""
        return any(host.name == _LOCALHOST or _reach(host) is Reach.THIS_MACHINE for host in self._hosts)

    def refusal(self, host: str, port: int) -> RefusedHost | None:
        """Why a host may not be reached; None if its name, or the address itself, is listed."""
        entry = _written(host, port)
        address = _address(host)
        if address is not None:
            return None if self._lists(address, port) else RefusedHost(f"`{host}` is not in its `network`", entry)
        name = normal(host)
        if name is None or (reach_of_host(host) is not None and name != _LOCALHOST):
            # Addresses in other spellings, such as 127.1 and 0x7f000001, too.
            return RefusedHost("that is not the name of a host")
        matching = [each for each in self._hosts if _matches(each, name)]
        if not matching:
            return RefusedHost(f"`{name}` is not in its `network`", entry)
        if not any(_has_port(each, port) for each in matching):
            return RefusedHost(f"port {port} of `{name}` is not in its `network`", entry)
        return None

    def address_refusal(self, host: str, port: int, address: str) -> RefusedHost | None:
        """Why an address of a host that is listed may not be reached."""
        reach = reach_of_ip(address)
        is_loopback = reach is Reach.THIS_MACHINE and normal(host) == _LOCALHOST
        if reach is Reach.PUBLIC or is_loopback or self._lists(ip_address(address), port):
            return None
        return RefusedHost(
            f"`{host}` leads to `{address}` {REACH_WORDS[reach]}, which is not in its `network`", address
        )

    def _lists(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        return any(
            host.addresses is not None and address in host.addresses and host.port in (None, port)
            for host in self._hosts
        )


def _matches(host: HostName, name: str) -> bool:
    if host.addresses is not None:
        return False
    return name.endswith("." + host.name) if host.is_wildcard else name == host.name


def _has_port(host: HostName, port: int) -> bool:
    return port in _USUAL_PORTS if host.port is None else port == host.port


def _address(host: str) -> IPv4Address | IPv6Address | None:
    _, percent, interface = host.partition("%")
    if percent and not _INTERFACE.fullmatch(interface):
        # Python takes anything there, and what is refused is shown to people.
        return None
    try:
        return ip_address(host)
    except ValueError:
        return None


def _reach(host: HostName) -> Reach | None:
    return None if host.addresses is None else reach_of_ip(str(host.addresses.network_address))


def _written(host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port in _USUAL_PORTS else f"{name}:{port}"
