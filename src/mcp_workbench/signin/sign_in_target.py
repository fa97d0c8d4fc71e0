"""Whose sign-in it is, where, and which of the stored ones belong to it. Pure.

Refuses to know how tokens are fetched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.config.model import OAuthConfig
from mcp_workbench.signin.store import Contents, SignInRecord

_UNSET = OAuthConfig()
CODE_GRANT = "authorization_code"


class SignInTarget:
    """One principal at one server, with what the configuration says about signing in there."""

    __slots__ = ("command", "environ", "principal", "server", "settings", "url")

    def __init__(
        self,
        principal: str,
        url: str,
        settings: OAuthConfig | None,
        command: str,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.principal = principal
        self.url = url
        self.settings = settings
        account = settings.account if settings is not None else None
        # What it is stored under: several accounts at one address are several servers.
        self.server = f"{url}#{account}" if account else url
        # What a user runs to sign in.
        self.command = command
        # Whose proxies are on the way to the authorization server: those of the client that the server is for.
        self.environ = environ

    @property
    def key(self) -> tuple[str | None, ...]:
        """Equal for two targets that share their sign-in. Two configurations may have the same address and different
        clients, or different authorization servers, and one process may serve both."""
        said = self.settings or _UNSET
        return self.principal, self.server, said.issuer, said.client_id, said.resource, said.grant or CODE_GRANT

    def owns(self, record: SignInRecord) -> bool:
        """Whether this sign-in is the target's own as the configuration stands now. With one from before a change of
        `issuer`, `clientId`, `resource` or `grant`, a refresh would send the new secret to the old server."""
        said = self.settings or _UNSET
        if (record.principal, record.server) != (self.principal, self.server):
            return False
        if record.grant != (said.grant or CODE_GRANT) or said.issuer not in (None, record.issuer):
            return False
        if said.resource is not None and (said.resource or None) != record.resource:
            return False
        if said.client_id is not None:
            return said.client_id == record.client.id
        # A client that was configured once, and is not any more. The identifier of a published document is its address.
        return record.client.is_registered or record.client.id.startswith("https://")

    def find(self, contents: Contents) -> SignInRecord | None:
        """This target's sign-in: the latest, should there be one for each of several issuers. Nobody else's, whatever
        is missing."""
        return max(filter(self.owns, contents.records), key=lambda record: record.signed_in_at, default=None)

    def remove(self, contents: Contents) -> None:
        """Remove this target's sign-ins, whoever issued them."""
        contents.records = [each for each in contents.records if not self.owns(each)]
        contents.satisfy(self.principal, self.server)

    def bound_issuer(self, contents: Contents) -> str | None:
        """The authorization server that has seen the configured credentials before."""
        record = self.find(contents)
        return None if record is None else record.issuer
