"""The loaded settings on who may call over HTTP. Imported only for a file that has them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Public-key signatures. `none` proves nothing, and with `HS…` a public key could be used as the secret.
SAFE_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
# Servers' clocks differ by seconds; identity providers recommend this tolerance.
DEFAULT_CLOCK_SKEW: Final = 60.0


class IssuerConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """An identity provider whose tokens are accepted."""

    issuer: str
    # Any of these; if empty, the public address.
    audience: tuple[str, ...] = ()
    public_url: str | None = None
    # Where its keys are; None: given by its metadata.
    jwks: str | None = None
    # The endpoint to validate opaque tokens; None: they are not accepted.
    introspection: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    # Whether the secret is written in the file itself.
    has_literal_secret: bool = False
    # Names of claims. A name with dots that is not a claim itself is a path into nested claims.
    principal: str = "sub"
    groups: str = "groups"
    # All of these are required.
    scopes: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = SAFE_ALGORITHMS
    clock_skew: float = DEFAULT_CLOCK_SKEW


class AuthConfig(Struct, frozen=True, kw_only=True):
    """Makes us an OAuth resource server at this address, for tokens of these issuers."""

    public_url: str
    issuers: tuple[IssuerConfig, ...]


class ForwardedIdentityConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a server learns who the user is."""

    header: str = "x-workbench-identity"
    # The audience of the assertion; None: the server's address.
    audience: str | None = None


class TokenExchangeConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """For a server that gets the user's own token, exchanged for the token that the user presented to us."""

    audience: str | None = None
    resource: str | None = None
    scopes: tuple[str, ...] = ()


class ProxyConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """A proxy in front of us that authenticates users."""

    # Addresses, networks, or `unix:USER`.
    peers: tuple[str, ...]
    header: str = "x-forwarded-user"
    groups_header: str | None = None
    # The header with the address that a request came from.
    address_header: str | None = None
    secret_header: str = "x-proxy-secret"
    secret: str | None = None
    has_literal_secret: bool = False
    # A name in its certificate.
    certificate: str | None = None
