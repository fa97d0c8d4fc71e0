"""Addresses of servers: what stands in `url`, where a redirect leads, which two are of the same origin. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

# Names of this machine, as far as nothing has to be looked up for that.
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Everything that RFC 3986 allows, and the percent sign: what is escaped already stays so.
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"


class BadAddress(ValueError):
    """Not an address of a web server. The text says why."""


class Address(Struct, frozen=True):
    """Where to send a request."""

    scheme: str
    host: str
    port: int
    # Path and query, as they stand in a request.
    target: str
    # `user:password` of the address, which becomes a header.
    user_info: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address. Raises `BadAddress`."""
        text = text.strip()
        if any(character < " " for character in text):
            # `urlsplit` would drop them.
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
        """`host` or `host:port`, as the `Host` header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """`https://host:port`, the port only where it is not the usual one."""
        return f"{self.scheme}://{self.authority}"

    @property
    def shown(self) -> str:
        """What may be shown of it: queries carry keys more often than they should."""
        return self.origin + self.target.partition("?")[0]

    def join(self, reference: str) -> Address:
        """Where a reference leads from here. Raises `BadAddress`."""
        try:
            joined = urljoin(self.origin + self.target, reference.strip())
        except ValueError as error:
            raise BadAddress(str(error)) from None
        found = Address.parse(joined)
        if found.user_info is None and found.origin == self.origin:
            return Address(found.scheme, found.host, found.port, found.target, self.user_info)
        return found
