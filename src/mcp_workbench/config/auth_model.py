"""What the user wrote about who may call over HTTP, after loading. Loaded only for a file that says something of it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Signatures with a public key. `none` proves nothing, and with `HS…` a public key could be used as the secret.
SAFE_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
# Clocks of servers differ by seconds; this is what identity providers recommend to allow for.
DEFAULT_CLOCK_SKEW: Final = 60.0


class IssuerConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """One identity provider whose tokens are accepted."""

    issuer: str
    # Any of these; without one, the public address.
    audience: tuple[str, ...] = ()
    public_url: str | None = None
    # Where its keys are; None: where its metadata says.
    jwks: str | None = None
    # Where opaque tokens are asked about; None: they are not accepted.
    introspection: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    # That stands in the file itself.
    has_literal_secret: bool = False
    # Claims. A name with dots that is no claim itself leads into nested ones.
    principal: str = "sub"
    groups: str = "groups"
    # All of these.
    scopes: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = SAFE_ALGORITHMS
    clock_skew: float = DEFAULT_CLOCK_SKEW


class AuthConfig(Struct, frozen=True, kw_only=True):
    """We are an OAuth resource server at this address, for tokens of these."""

    public_url: str
    issuers: tuple[IssuerConfig, ...]


class ForwardedIdentityConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a server learns who the user is."""

    header: str = "x-workbench-identity"
    # What the assertion is for; None: the server's address.
    audience: str | None = None


class TokenExchangeConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """A server that gets a token of the user's own, made from the one that the user has shown us."""

    audience: str | None = None
    resource: str | None = None
    scopes: tuple[str, ...] = ()


class ProxyConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """A proxy in front of us that authenticates for us."""

    # Addresses, networks, or `unix:USER`.
    peers: tuple[str, ...]
    header: str = "x-forwarded-user"
    groups_header: str | None = None
    # Where it passes on the address that a request came from.
    address_header: str | None = None
    secret_header: str = "x-proxy-secret"
    secret: str | None = None
    has_literal_secret: bool = False
    # A name in its certificate.
    certificate: str | None = None
