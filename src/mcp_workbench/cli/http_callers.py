"""Who may call `serve --http`: turns options, keys and settings into the authenticator of the endpoint.

Owns which proofs are accepted together. Imports what a single token does not need only when another proof is presented.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Final

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.engine.transport.http.server.authentication import Authenticator, BearerToken
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.cli.http_token import HttpToken
    from mcp_workbench.engine.config.model import ReferringValue
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.engine.transport.http.server.pages import Page
    from mcp_workbench.engine.transport.http.server.tls import TlsCertificate
    from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
    from mcp_workbench.team.identity.callers import Callers
    from mcp_workbench.team.identity.named_keys import KeysInForce

REVOKED: Final = "the key was revoked"
LITERAL: Final = (
    "a secret of `auth` or `trustedProxy` is written in the configuration itself; refer to it, for example with "
    "`${file:/run/secrets/name}`"
)


class HttpCallers:
    """Everyone who may call one endpoint."""

    def __init__(self, parsed: Parsed, gateway: Gateway, token: HttpToken, *, is_unix: bool) -> None:
        """Raises `UsageError`, and `ConfigError` if a secret cannot be fetched."""
        self._parsed = parsed
        self._gateway = gateway
        self._token = token
        self._is_unix = is_unix
        self._server: HttpServer | None = None
        if parsed.has("allow-user") and not is_unix:
            # TCP does not reveal which user is at the other end.
            raise UsageError("--allow-user requires --http unix:PATH")
        config = gateway.config
        # The configuration keeps the references as written, because it is compared with versions read later.
        self._auth, self._proxy = config.auth, config.trusted_proxy
        if self._auth is not None or self._proxy is not None:
            self._fetch_secrets()

    def _fetch_secrets(self) -> None:
        """Fetch the secrets that `auth` and `trustedProxy` refer to, before any client is served."""
        from msgspec.structs import replace

        if self._auth is not None:
            issuers = list(self._auth.issuers)
            for value in self._gateway.config.references:
                if value.field[0] == "auth":
                    index = value.field[1] if isinstance(value.field[1], int) else 0
                    issuers[index] = replace(issuers[index], client_secret=self._fetched(value))
            self._auth = self._gateway.runtime.auth = replace(self._auth, issuers=tuple(issuers))
        for value in self._gateway.config.references:
            if self._proxy is not None and value.field[0] == "trustedProxy":
                self._proxy = replace(self._proxy, secret=self._fetched(value))
        if any(each.has_literal_secret for each in (*(self._auth.issuers if self._auth else ()), self._proxy) if each):
            remark("warning", LITERAL)

    def _fetched(self, value: ReferringValue) -> str:
        from mcp_workbench.engine.run import run as run_loop
        from mcp_workbench.signin.secrets.resolve import ReferenceUnresolved, resolve_value

        try:
            found = run_loop(resolve_value(value, os.environ))
        except ReferenceUnresolved as error:
            raise ConfigError(error.message, hint=error.hint) from None
        self._gateway.runtime.redactor.replace(value, found.secrets)
        for warning in found.warnings:
            remark("warning", warning)
        return found.text

    @property
    def _is_plain(self) -> bool:
        """Whether there is only the single token, and perhaps keys."""
        config = self._gateway.config
        return config.auth is None and config.trusted_proxy is None and not self._is_unix

    @cached_property
    def authenticator(self) -> Authenticator | None:
        """Return the authenticator; None if every caller is served. Raises `ConfigError`."""
        if not self._is_plain:
            return self.callers
        if self._token.value is not None:
            # Callers with the single token pay for nothing else.
            return BearerToken(self._token.value, lambda head: self.callers.authenticate(head))
        # `--no-token` opens the endpoint to everyone, even if there are keys.
        return None if self._parsed.has("no-token") or not self._has_keys() else self.callers

    @cached_property
    def callers(self) -> Callers:
        from mcp_workbench.team.identity.callers import Callers, CallerSettings

        users = None
        if self._is_unix:
            from mcp_workbench.team.identity.unix_users import UnixUsers

            users = UnixUsers(self._parsed.values("allow-user"))
        settings = CallerSettings(
            token=self._token.value,
            keys=self._keys,
            auth=self._auth,
            proxy=self._proxy,
            users=users,
            subjects=self._gateway.runtime.subject_tokens() if self._wants("token_exchange") else None,
        )
        remember = self._gateway.identities().remember
        runtime = self._gateway.runtime
        return Callers(settings, remember, self._fetch, lambda work: runtime.start_task(work), self._load)

    def _load(self, principal: str) -> Coroutine[None, None, None] | None:
        access = self._gateway.access
        unread = [] if access is None else access.unread(principal)
        return self._gateway.lists.load(unread) if unread else None

    @property
    def header_names(self) -> tuple[str, ...]:
        return () if self._is_plain else self.callers.header_names

    @property
    def hosts(self) -> tuple[str, ...]:
        """The name by which clients reach us, if it is configured."""
        if self._gateway.config.auth is None:
            return ()
        from mcp_workbench.team.identity.callers import hosts_of

        return tuple(hosts_of(self._gateway.config.auth))

    def pages(self) -> dict[str, Page]:
        auth = self._gateway.config.auth
        found: dict[str, Page] = {}
        if auth is not None:
            from mcp_workbench.engine.transport.http.server.endpoint import MCP_PATH
            from mcp_workbench.team.identity.callers import metadata_pages

            found |= metadata_pages(auth, MCP_PATH)
        if self._wants("forward_identity"):
            from mcp_workbench.team.identity.callers import keys_page

            found |= keys_page(self._gateway.runtime.identity_assertions().jwks())
        return found

    def _wants(self, setting: str) -> bool:
        return any(getattr(server, setting) is not None for _, server in self._gateway.config.servers())

    def watched(self, certificate: TlsCertificate | None) -> tuple[tuple[tuple[str, ...], Callable[[], None]], ...]:
        """Return files that affect who may call, and what to do when they change."""
        found: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        folder = _folder_of_keys()
        if self.authenticator is not None and folder is not None:
            # The folder, not its files: a new key is a new file.
            found.append(((folder,), self._on_keys_changed))
        if certificate is not None:
            found.append((certificate.files, certificate.reload))
        return tuple(found)

    def started(self, server: HttpServer) -> None:
        """Note the running server: revoking a key closes its connections there."""
        self._server = server
        if self._auth is not None:
            self.callers.prepare()

    @cached_property
    def _keys(self) -> KeysInForce | None:
        folder = _folder_of_keys()
        if folder is None:
            return None
        from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce

        keys = KeysInForce(KeyFolder(folder))
        keys.on_revoked.append(self._on_revoked)
        return keys

    def _on_keys_changed(self) -> None:
        # Keys are read only once one is presented.
        if "_keys" in self.__dict__ and self._keys is not None:
            self._keys.reload()

    def _on_revoked(self, names: frozenset[str]) -> None:
        if self._server is None:
            return
        self._server.end_those_of(names, REVOKED)
        # Somebody else may be given the name: nothing of its former holder is for them. Sign-ins stay, so that a key
        # can be replaced; `key` warns of them.
        gateway = self._gateway
        if gateway.access is not None:
            gateway.access.approvals.forget(names)
        gateway.parking.close(names)
        if gateway.users is not None:
            gateway.users.revoke(names, REVOKED)
        _ = gateway.runtime.start_task(asyncio.to_thread(gateway.catalog.store.drop_users))

    def _has_keys(self) -> bool:
        folder = _folder_of_keys()
        return folder is not None and os.path.isdir(folder) and self._keys is not None and len(self._keys) > 0

    async def _fetch(self, request: OAuthRequest) -> OAuthResponse:
        from mcp_workbench.signin.flow_runner import send

        return await send(self._gateway.runtime.http(), request)


def certificate_of(parsed: Parsed) -> TlsCertificate | None:
    """Return the certificate that the command line names. Raises `UsageError` and `ConfigError`."""
    certificate, key = parsed.value("tls-cert"), parsed.value("tls-key")
    if (certificate is None) != (key is None):
        raise UsageError("--tls-cert and --tls-key belong together", hint="give both, or neither")
    if certificate is None or key is None:
        if parsed.has("tls-client-ca"):
            raise UsageError("--tls-client-ca requires --tls-cert and --tls-key")
        return None
    from mcp_workbench.engine.transport.http.server.tls import TlsCertificate

    return TlsCertificate(certificate, key, parsed.value("tls-client-ca"))


def _folder_of_keys() -> str | None:
    from mcp_workbench.team.identity.named_keys import folder

    return folder()
