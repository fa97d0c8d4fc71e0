"""A proxy that authenticates for us: the user that it names in a header, if it is the proxy. Pure.

It must connect from a configured address, and prove itself with a secret, or with a certificate whose verified name is
the expected one. From any other client the header is ignored.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

from mcp_workbench.engine.config.auth_settings import ProxyConfig
from mcp_workbench.team.identity.claims import LONGEST_GROUP, LONGEST_SUBJECT, MOST_GROUPS
from mcp_workbench.team.identity.credentials import TokenRejection
from mcp_workbench.team.identity.identities import Identity

# The prefix of principals named by a proxy, so that none can be taken for a key or for another provider's user.
PREFIX: Final = "proxy#"
# For a request from the user that the proxy runs as.
NOT_VOUCHED_FOR: Final = TokenRejection("the proxy names no user, or does not prove that it is the proxy", "")
UNNAMED: Final = TokenRejection("the proxy names no user, or one that cannot be a name")


class ProxyHeader:
    def __init__(self, settings: ProxyConfig) -> None:
        self._settings = settings
        self._networks = [
            ipaddress.ip_network(peer, strict=False) for peer in settings.peers if not peer.startswith("unix:")
        ]
        # `unix:USER` by uid, as in the peer of a Unix socket.
        self._users = {
            f"uid:{_uid_of(peer.removeprefix('unix:'))}" for peer in settings.peers if peer.startswith("unix:")
        }

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that have to be read."""
        settings = self._settings
        return tuple(
            filter(None, (settings.header, settings.groups_header, settings.address_header, settings.secret_header))
        )

    def recognise(
        self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]
    ) -> Identity | TokenRejection | None:
        """The user that the proxy names; None if this is not the proxy, or it names none."""
        settings = self._settings
        given = headers.get(settings.header)
        if given is None or not self._is_proxy(peer, certificate, headers):
            return None
        # Headers are bytes; proxies write UTF-8 nowadays.
        user = _text(given)
        if not (0 < len(user) <= LONGEST_SUBJECT and user.isprintable()):
            return UNNAMED
        written = headers.get(settings.groups_header, "") if settings.groups_header else ""
        groups = [group.strip() for group in _text(written).split(",") if group.strip()]
        if len(groups) > MOST_GROUPS or any(len(group) > LONGEST_GROUP for group in groups):
            return UNNAMED
        return Identity(principal=PREFIX + user, groups=frozenset(groups))

    def runs_as(self, peer: str) -> bool:
        """Whether this is the local user that the proxy runs as. Requests from there belong to a user whom the proxy
        has to name, and must not be taken for requests of the proxy's own user."""
        return peer in self._users

    def address(self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]) -> str:
        """The client's address according to the proxy; empty if this is not the proxy, or it sends none."""
        name = self._settings.address_header
        written = None if name is None else headers.get(name)
        if written is None or not self._is_proxy(peer, certificate, headers):
            return ""
        # The proxy appends its value to whatever the client has sent under this name.
        last = written.rpartition(",")[2].strip()
        try:
            return str(ipaddress.ip_address(last.strip("[]")))
        except ValueError:
            return ""

    def _is_proxy(self, peer: str, certificate: Sequence[str], headers: Mapping[str, str]) -> bool:
        settings = self._settings
        if peer not in self._users and not self._is_named(peer):
            return False
        if settings.certificate is not None and settings.certificate not in certificate:
            return False
        if settings.secret is None:
            return settings.certificate is not None
        # As bytes: headers are stored as Latin-1, whatever their encoding.
        given = headers.get(settings.secret_header, "").encode("latin-1")
        return hmac.compare_digest(given, settings.secret.encode())

    def _is_named(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _text(given: str) -> str:
    try:
        return given.encode("latin-1").decode().strip()
    except UnicodeError:
        return ""


def _uid_of(user: str) -> int:
    from mcp_workbench.team.identity.unix_users import uid_of

    return uid_of(user)
