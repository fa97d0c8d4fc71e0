"""Addresses of servers: parsing `url`, following redirects, comparing origins. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

# Names of this machine that need no lookup.
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Everything that RFC 3986 allows, and the percent sign, so that escaped characters stay escaped.
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"


class BadAddress(ValueError):
    """Not the address of a web server. The text gives the reason."""


class Address(Struct, frozen=True):
    scheme: str
    host: str
    port: int
    # Path and query, as in a request.
    target: str
    # `user:password` of the address, which becomes a header.
    user_info: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address. Raises `BadAddress`."""
        text = text.strip()
        if any(character < " " for character in text):
            # `urlsplit` would silently drop them.
            raise BadAddress("it contains a line break or another control character")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadAddress(str(error)) from None
        if parts.scheme not in DEFAULT_PORTS:
            raise BadAddress("it must begin with https:// or http://")
        if not host:
            raise BadAddress("it names no host")
        if not host.isascii():
            try:
                host = host.encode("idna").decode("ascii")
            except UnicodeError:
                raise BadAddress(f"`{host}` is not a host name") from None
        if any(character <= " " or character in '<>"\\^`{|}%' for character in host):
            raise BadAddress("its host name contains invalid characters")
        query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
        user = parts.netloc.rpartition("@")[0]
        return cls(
            parts.scheme,
            host,
            port if port is not None else DEFAULT_PORTS[parts.scheme],
            (quote(parts.path, safe=_SAFE) or "/") + query,
            unquote(user) if user else None,
        )

    @property
    def authority(self) -> str:
        """`host` or `host:port`, as in the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """`https://host:port`, without a default port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def shown(self) -> str:
        """The part that may be shown: queries often carry keys."""
        return self.origin + self.target.partition("?")[0]

    def join(self, reference: str) -> Address:
        """Resolve a reference relative to this address. Raises `BadAddress`."""
        try:
            joined = urljoin(self.origin + self.target, reference.strip())
        except ValueError as error:
            raise BadAddress(str(error)) from None
        found = Address.parse(joined)
        if found.user_info is None and found.origin == self.origin:
            return Address(found.scheme, found.host, found.port, found.target, self.user_info)
        return found
