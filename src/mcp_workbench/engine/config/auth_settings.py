"""The members of `auth`, `trustedProxy`, `forwardIdentity` and `tokenExchange`: who may call over HTTP, and what
servers learn of them. Loaded only for a file that has them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from mcp_workbench.engine.config.kinds import Files, Kind, Schema, Seconds, Text, Texts, Url
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import REQUIRED, Declared, setting

# Public-key signatures. `none` proves nothing, and with `HS…` a public key could be used as the secret.
SAFE_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_HEADER_FIELD: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers that already have a meaning in every request.
_TAKEN_HEADERS: Final = frozenset(("host", "origin", "authorization", "content-length", "transfer-encoding", "cookie"))


class SecureUrl(Url):
    """An address that tokens and keys may be sent to: `https`, or this machine."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        parts = urlsplit(text)
        if (
            (parts.scheme.lower() != "https" and parts.hostname not in LOOPBACK)
            or parts.fragment
            or "@" in parts.netloc
        ):
            reader.problem(path, f"found {quote(text)}", "an https:// address, without a password and without `#`")
            return None
        return text


class HeaderName(Text):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        if not _HEADER_FIELD.fullmatch(text) or text.lower() in _TAKEN_HEADERS or text.lower().startswith("mcp-"):
            reader.wrong(value, path, "the name of a header of its own, such as `X-Forwarded-User`")
            return None
        return text.lower()


class Algorithms(Texts):
    __slots__ = ()

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        if text is not None and text not in SAFE_ALGORITHMS:
            reader.wrong(value, path, "one of " + ", ".join(map(quote, SAFE_ALGORITHMS)))
            return None
        return text


class Peers(Files):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> tuple[str, ...] | None:
        found = super().read(value, path, reader)
        for text in found or ():
            if not text.startswith("unix:") and not _is_network(text):
                reader.wrong(value, path, "addresses or networks such as `10.0.0.5` or `10.0.0.0/8`, or `unix:USER`")
                return None
        return found


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


class IssuerConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """An identity provider whose tokens are accepted."""

    issuer: str = setting(SecureUrl(), "The identity provider, exactly as its tokens name it in `iss`.", REQUIRED)
    # Any of these.
    audience: tuple[str, ...] = setting(
        Files("a string, or a list of strings"),
        "Who tokens must be issued for (`aud`). If unset, `publicUrl`.",
        (),
        shown=None,
    )
    public_url: str | None = setting(SecureUrl(), "The address at which clients reach the MCP endpoint.")
    jwks: str | None = setting(SecureUrl(), "The address of the provider's keys, if its metadata does not name it.")
    # None: opaque tokens are not accepted.
    introspection: str | None = setting(
        SecureUrl(), "The introspection endpoint for tokens that are not JWTs (RFC 7662)."
    )
    client_id: str | None = setting(Text(), "The workbench's client there, for introspection and token exchange.")
    client_secret: str | None = setting(
        Text(), "The secret of that client. Never printed.", is_secret=True, fetches=True
    )
    # Whether the secret is written in the file itself.
    has_literal_secret: bool = False
    # A name with dots that is not a claim itself is a path into nested claims.
    principal: str = setting(Text(), "The claim that identifies the user.", "sub")
    groups: str = setting(
        Text(), "The claim with the user's groups; `realm_access.roles` names a nested one.", "groups"
    )
    scopes: tuple[str, ...] = setting(
        Texts("a list of scopes"), "Scopes that a token must have; all of them are required.", ()
    )
    algorithms: tuple[str, ...] = setting(
        Algorithms("a list of algorithms"),
        "The signature algorithms that are accepted. If unset, all with public keys.",
        SAFE_ALGORITHMS,
        shown=None,
    )
    # Servers' clocks differ by seconds; identity providers recommend this tolerance.
    clock_skew: float = setting(Seconds(never=True), "How far the provider's clock may be off, in seconds.", 60.0)


class AuthConfig(Struct, frozen=True, kw_only=True):
    """Makes us an OAuth resource server at this address, for tokens of these issuers."""

    public_url: str
    issuers: tuple[IssuerConfig, ...]


class ForwardedIdentityConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """How a server learns who the user is."""

    header: str = setting(HeaderName(), "The header with the assertion.", "x-workbench-identity")
    audience: str | None = setting(Text(), "Who the assertion is for (`aud`). If unset, the server's address.")


class TokenExchangeConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """For a server that gets the user's own token, exchanged for the token that the user presented to us."""

    audience: str | None = setting(Text(), "The server's name at the identity provider.")
    resource: str | None = setting(Url(), "The server's address, for providers that expect that instead (RFC 8707).")
    scopes: tuple[str, ...] = setting(Texts("a list of scopes"), "Scopes to request for the new token.", ())


class ProxyConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """A proxy in front of us that authenticates users."""

    # Addresses, networks, or `unix:USER`.
    peers: tuple[str, ...] = setting(
        Peers("an address, or a list of addresses"), "The addresses the proxy connects from.", REQUIRED
    )
    header: str = setting(
        HeaderName(),
        "The header with the user's name. The proxy must set it and drop it from incoming requests.",
        "x-forwarded-user",
    )
    groups_header: str | None = setting(HeaderName(), "The header with the user's groups, separated by commas.")
    address_header: str | None = setting(
        HeaderName(),
        "The header with the client's address, such as `x-forwarded-for`, for logs, the audit and throttling.",
    )
    secret_header: str = setting(HeaderName(), "The header with the secret.", "x-proxy-secret")
    secret: str | None = setting(
        Text(), "A secret shared by the proxy and the workbench. Never printed.", is_secret=True, fetches=True
    )
    has_literal_secret: bool = False
    certificate: str | None = setting(Text(), "A name in the proxy's client certificate (with --tls-client-ca).")


class _Issuer(Members[IssuerConfig]):
    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> IssuerConfig | None:
        return IssuerConfig(**found, has_literal_secret=_is_literal(value, "clientSecret"))


class _Issuers(Kind):
    """One identity provider, or a list of them."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> AuthConfig | None:
        written = [(path, value)]
        if isinstance(value, list):
            written = [((*path, index), each) for index, each in enumerate(value)]
        issuers = [_ISSUER.read(each, place, reader) for place, each in written]
        valid = [each for each in issuers if each is not None]
        return None if len(valid) < len(issuers) else self._combined(valid, path, reader)

    def _combined(self, issuers: list[IssuerConfig], path: Path, reader: Reader) -> AuthConfig | None:
        named = list(dict.fromkeys(each.public_url for each in issuers if each.public_url is not None))
        if len(named) != 1:
            found = "found no `publicUrl`" if not named else "found more than one `publicUrl`"
            hint = "it is never taken from a request, because whoever sends one could choose it"
            reader.problem(path, found, "one, the address under which clients reach the MCP endpoint", hint=hint)
            return None
        names = [each.issuer for each in issuers]
        for name in names:
            if names.count(name) > 1:
                reader.problem(path, f"found the issuer {quote(name)} twice", "each once")
                return None
        for each in issuers:
            if each.introspection is not None and (each.client_id is None or each.client_secret is None):
                reader.problem(path, "found `introspection` alone", "`clientId` and `clientSecret` with it")
                return None
        return AuthConfig(public_url=named[0], issuers=tuple(issuers))

    def schema(self) -> Schema:
        one = _ISSUER.schema()
        return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}


class _Proxy(Members[ProxyConfig]):
    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> ProxyConfig | None:
        if not found.get("secret") and not found.get("certificate"):
            hint = "anyone who can connect from there could claim to be any user"
            reader.problem(path, "found neither `secret` nor `certificate`", "one of them", hint=hint)
            return None
        return ProxyConfig(**found, has_literal_secret=_is_literal(value, "secret"))


class _TokenExchange(Members[TokenExchangeConfig]):
    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> TokenExchangeConfig | None:
        if not found.get("audience") and not found.get("resource"):
            reader.problem(path, "found neither `audience` nor `resource`", "one of them")
            return None
        return TokenExchangeConfig(**found)

    def schema(self) -> Schema:
        return {**super().schema(), "anyOf": [{"required": ["audience"]}, {"required": ["resource"]}]}


def _is_literal(value: object, name: str) -> bool:
    """Whether a secret is written in the file itself."""
    written = value.get(name) if isinstance(value, dict) else None
    return isinstance(written, str) and "${" not in written


_ISSUER: Final = _Issuer(IssuerConfig, "an identity provider with `issuer` and `publicUrl`")
AUTH: Final = _Issuers()
TRUSTED_PROXY: Final = _Proxy(ProxyConfig, "a proxy with `peers` and `secret`")
FORWARD_IDENTITY: Final = Members(
    ForwardedIdentityConfig,
    "`true`, or an object with `header` or `audience`",
    switch=lambda is_on: ForwardedIdentityConfig() if is_on else None,
)
TOKEN_EXCHANGE: Final = _TokenExchange(TokenExchangeConfig, "an object with `audience` or `resource`")
