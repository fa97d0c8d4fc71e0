"""Whose sign-in it is, at which server, and which stored records belong to it. Pure.

Knows nothing about how tokens are obtained.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.store import Contents, SignInRecord

_UNSET = OAuthConfig()
CODE_GRANT = "authorization_code"
# OpenID Connect: with it, the authorization server says who signed in.
OPENID = "openid"
NO_CHALLENGE = Challenge()


class SignInTarget:
    """One principal at one server, with the configured sign-in settings."""

    __slots__ = ("challenge", "command", "environ", "fetch_identity", "principal", "server", "settings", "url")

    def __init__(
        self,
        principal: str,
        url: str,
        settings: OAuthConfig | None,
        command: str,
        environ: Mapping[str, str] = os.environ,
        fetch_identity: Callable[[], Awaitable[str]] | None = None,
        challenge: Challenge = NO_CHALLENGE,
    ) -> None:
        self.principal = principal
        self.url = url
        self.settings = settings
        account = settings.account if settings is not None else None
        # The key in the store: several accounts at one address count as several servers.
        self.server = f"{url}#{account}" if account else url
        # The command that a user runs to sign in.
        self.command = command
        # Proxies to the authorization server are taken from the environment of the client that uses the server.
        self.environ = environ
        # Fetches `identityToken` again: it may be valid for minutes. None where it does not refer to anything.
        self.fetch_identity = fetch_identity
        # What a sign-in starts from where the server has said nothing.
        self.challenge = challenge

    @property
    def provider(self) -> SignInTarget | None:
        """The identity provider that the user signs in to instead; None if it is the server itself, or nobody does."""
        said = self.settings
        if said is None or said.grant != "jwt_bearer" or said.identity_provider is None or said.identity_token:
            return None
        settings = OAuthConfig(
            client_id=said.identity_client_id,
            client_secret=said.identity_client_secret,
            issuer=said.identity_provider,
            # It is a sign-in to the provider itself, not to one of its resources.
            resource="",
            callback_host=said.callback_host,
            callback_port=said.callback_port,
            account=said.account,
        )
        # Known, so that nobody is asked what it is.
        challenge = Challenge(scope=(OPENID,), is_known=True)
        return SignInTarget(
            self.principal, said.identity_provider, settings, self.command, self.environ, challenge=challenge
        )

    @property
    def is_provider(self) -> bool:
        return OPENID in self.challenge.scope

    @property
    def key(self) -> tuple[str | None, ...]:
        """Equal for targets that share a sign-in. One process may serve two configurations with the same address but
        different clients or authorization servers."""
        said = self.settings or _UNSET
        return self.principal, self.server, said.issuer, said.client_id, said.resource, said.grant or CODE_GRANT

    def owns(self, record: SignInRecord) -> bool:
        """Whether a record matches the current configuration. If `issuer`, `clientId`, `resource` or `grant` has
        changed since, a refresh would send the new secret to the old server."""
        said = self.settings or _UNSET
        if (record.principal, record.server) != (self.principal, self.server):
            return False
        if record.grant != (said.grant or CODE_GRANT) or said.issuer not in (None, record.issuer):
            return False
        if said.resource is not None and (said.resource or None) != record.resource:
            return False
        if said.client_id is not None:
            return said.client_id == record.client.id
        # False for a client that is no longer configured. Ids of clients with a metadata document are its address.
        return record.client.is_registered or record.client.id.startswith("https://")

    def find(self, contents: Contents) -> SignInRecord | None:
        """This target's record; the latest, if several issuers have one. Never that of another principal."""
        return max(filter(self.owns, contents.records), key=lambda record: record.signed_in_at, default=None)

    def remove(self, contents: Contents) -> None:
        """Remove this target's records, of all issuers."""
        contents.records = [each for each in contents.records if not self.owns(each)]
        contents.satisfy(self.principal, self.server)

    def bound_issuer(self, contents: Contents) -> str | None:
        """The authorization server that the configured credentials were sent to before."""
        record = self.find(contents)
        return None if record is None else record.issuer
