"""How single servers deviate from the specification, and what is waived for them: `profiles.json` and the settings.

Strict is the default. A profile waives one rule for one host, with the reason, where it was seen and when. What the
user wrote in `oauth` comes first.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, convert, field, to_builtins
from msgspec.json import decode

from mcp_workbench.config.model import OAuthConfig
from mcp_workbench.signin.assertion import Credentials


class Profile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is special about one server, after the user's settings."""

    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    key_id: str | None = None
    signing_algorithm: str | None = None
    client_metadata_url: str | None = None
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    # None: by the challenge and the metadata.
    scopes: tuple[str, ...] | None = None
    # None: as the metadata says; "": not sent.
    resource: str | None = None
    issuer: str | None = None
    issuer_check: Literal["strict", "waive"] = "strict"
    pkce: Literal["require", "assume"] = "require"
    token_auth_method: str | None = None
    offline_access: Literal["auto", "always", "never"] = "auto"
    callback_host: str = "127.0.0.1"
    callback_port: int | None = None
    account: str | None = None
    # After this many days the user has to sign in again, however often the token was refreshed.
    grant_days: int | None = None
    # How scopes are named and separated on the page to sign in at.
    scope_param: str = "scope"
    scope_separator: str = " "
    # Where only those may register that bring it.
    initial_access_token: str | None = None
    extra_authorize_params: dict[str, str] = field(default_factory=dict)
    # For people: which app to create where registration is closed, and which header takes a key instead.
    app: str | None = None
    header_key: str | None = None

    @property
    def credentials(self) -> Credentials:
        """By what the configured client proves who it is."""
        return Credentials(self.client_secret, self.private_key, self.key_id, self.signing_algorithm)


class HostProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of some hosts, of MCP servers or of authorization servers."""

    # Host names; `*.` in front stands for any name below.
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
    """The profile of a server: that of its authorization server, then its own, then what the user says."""
    members: dict[str, Any] = {}
    for each in (issuer, url):
        entry = None if each is None else entry_for(each)
        members |= {} if entry is None else entry.profile
    if settings is not None:
        members |= {name: value for name, value in to_builtins(settings).items() if value is not None}
    return convert(members, Profile)


def entry_for(url: str) -> HostProfile | None:
    """What is known of the host of an address."""
    host = (urlsplit(url).hostname or "").lower()
    return next((entry for entry in known() if any(_matches(host, pattern) for pattern in entry.hosts)), None)


def _matches(host: str, pattern: str) -> bool:
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
