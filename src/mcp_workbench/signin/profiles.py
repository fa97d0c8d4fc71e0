"""How individual servers deviate from the specification, and which rules are waived for them (`profiles.json`).

By default, every rule is enforced. A profile waives one rule for one host, with the reason, the source and the date.
The user's `oauth` settings take precedence.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, convert, field, to_builtins
from msgspec.json import decode

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin.assertion import Credentials

GrantKind = Literal["authorization_code", "client_credentials", "jwt_bearer"]


class Profile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The deviations of one server, with the user's settings applied."""

    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    key_id: str | None = None
    signing_algorithm: str | None = None
    client_metadata_url: str | None = None
    grant: GrantKind = "authorization_code"
    identity_provider: str | None = None
    identity_client_id: str | None = None
    identity_client_secret: str | None = None
    identity_token: str | None = None
    # None: determined by the challenge and the metadata.
    scopes: tuple[str, ...] | None = None
    # None: taken from the metadata; "": not sent.
    resource: str | None = None
    issuer: str | None = None
    issuer_check: Literal["strict", "waive"] = "strict"
    pkce: Literal["require", "assume"] = "require"
    token_auth_method: str | None = None
    offline_access: Literal["auto", "always", "never"] = "auto"
    dpop: Literal["auto", "always", "never"] = "auto"
    callback_host: str = "127.0.0.1"
    callback_port: int | None = None
    account: str | None = None
    # After this many days the user has to sign in again, however often the token was refreshed.
    grant_days: int | None = None
    # The name and separator of scopes in the authorization request.
    scope_param: str = "scope"
    scope_separator: str = " "
    # For servers that require a token to register a client (RFC 7591, section 3).
    initial_access_token: str | None = None
    extra_authorize_params: dict[str, str] = field(default_factory=dict)
    # For people: which app to create where clients cannot register, and which header accepts an API key instead.
    app: str | None = None
    header_key: str | None = None

    @property
    def credentials(self) -> Credentials:
        """What the configured client authenticates with."""
        return Credentials(self.client_secret, self.private_key, self.key_id, self.signing_algorithm)


class HostProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The profile of some hosts, either MCP servers or authorization servers."""

    # Host names; a leading `*.` matches any subdomain.
    hosts: tuple[str, ...]
    # Members of `Profile`.
    profile: dict[str, Any]
    why: str
    source: str
    date: str


@cache
def known() -> tuple[HostProfile, ...]:
    """Everything in the data file."""
    return decode((files("mcp_workbench.signin") / "profiles.json").read_bytes(), type=tuple[HostProfile, ...])


def profile_for(url: str, settings: OAuthConfig | None, issuer: str | None = None) -> Profile:
    """The profile of a server: its authorization server's, overridden by its own, overridden by the user's settings."""
    members: dict[str, Any] = {}
    for each in (issuer, url):
        entry = None if each is None else entry_for(each)
        members |= {} if entry is None else entry.profile
    if settings is not None:
        members |= {name: value for name, value in to_builtins(settings).items() if value is not None}
    return convert(members, Profile)


def entry_for(url: str) -> HostProfile | None:
    host = (urlsplit(url).hostname or "").lower()
    return next((entry for entry in known() if any(_matches(host, pattern) for pattern in entry.hosts)), None)


def _matches(host: str, pattern: str) -> bool:
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
