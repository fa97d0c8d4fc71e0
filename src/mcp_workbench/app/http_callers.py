"""Who may call an HTTP endpoint: turns options, keys and settings into its authenticator.

Owns which proofs are accepted together. Imports what a single token does not need only when another proof is presented.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from mcp_workbench.app.optional_parts import has_part
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.transport.http.server.authentication import Authenticator, BearerToken
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.app.cluster_instance import ClusterInstance
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.app.page_serving import LazySite
    from mcp_workbench.engine.config.auth_settings import AuthConfig, ProxyConfig
    from mcp_workbench.engine.config.model import ReferringValue, WorkbenchConfig
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.engine.transport.http.server.pages import Page
    from mcp_workbench.engine.transport.http.server.tls import TlsCertificate
    from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
    from mcp_workbench.team.identity.callers import Callers
    from mcp_workbench.team.identity.named_keys import KeysInForce

REVOKED: Final = "the key was revoked"
LITERAL_SECRET: Final = (
    "a secret of `auth` or `trustedProxy` is written in the configuration itself; refer to it, for example with "
    "`${file:/run/secrets/name}`"
)


class CallerOptions(Struct, frozen=True, kw_only=True):
    """Who may call, in addition to the configuration."""

    # The single token; None if there is none.
    token: str | None = None
    # Without a token, everyone is served, even if there are keys.
    serves_everyone: bool = False
    # Callers are the users of this machine at the other end of a Unix socket: we and these.
    is_unix: bool = False
    users: tuple[str, ...] = ()
    # `trustedProxy` of the configuration, with its references resolved.
    proxy: ProxyConfig | None = None


def fetch_secrets(
    config: WorkbenchConfig, redactor: Redactor, warn: Callable[[str], None]
) -> tuple[AuthConfig | None, ProxyConfig | None]:
    """Return `auth` and `trustedProxy` with the secrets that they refer to, fetched before any client is served. The
    configuration keeps the references as written, because it is compared with versions read later. Raises
    `ConfigError` if one cannot be fetched."""
    from msgspec.structs import replace

    auth, proxy = config.auth, config.trusted_proxy
    if auth is not None:
        issuers = list(auth.issuers)
        for value in config.references:
            if value.field[0] == "auth":
                index = value.field[1] if isinstance(value.field[1], int) else 0
                issuers[index] = replace(issuers[index], client_secret=_fetched(value, redactor, warn))
        auth = replace(auth, issuers=tuple(issuers))
    for value in config.references:
        if proxy is not None and value.field[0] == "trustedProxy":
            proxy = replace(proxy, secret=_fetched(value, redactor, warn))
    if any(each.has_literal_secret for each in (*(auth.issuers if auth else ()), proxy) if each):
        warn(LITERAL_SECRET)
    return auth, proxy


def fetch_password(config: WorkbenchConfig, redactor: Redactor, warn: Callable[[str], None]) -> str | None:
    """Return the password of the cluster's state. Raises `ConfigError`."""
    assert config.cluster is not None
    found = next((value for value in config.references if value.field == ("cluster", "password")), None)
    return config.cluster.password if found is None else _fetched(found, redactor, warn)


def _fetched(value: ReferringValue, redactor: Redactor, warn: Callable[[str], None]) -> str:
    from mcp_workbench.engine.run import run as run_loop
    from mcp_workbench.signin.secrets.resolve import ReferenceUnresolved, resolve_value

    try:
        found = run_loop(resolve_value(value, os.environ))
    except ReferenceUnresolved as error:
        raise ConfigError(error.message, hint=error.hint) from None
    redactor.replace(value, found.secrets)
    for warning in found.warnings:
        warn(warning)
    return found.text


class HttpCallers:
    """Everyone who may call one endpoint."""

    def __init__(self, gateway: Gateway, options: CallerOptions, cluster: ClusterInstance | None = None) -> None:
        """`cluster`: users may come from another instance."""
        self._gateway = gateway
        self._cluster = cluster
        self._options = options
        self._server: HttpServer | None = None
        self._page: LazySite | None = None

    @property
    def _is_plain(self) -> bool:
        """Whether there is only the single token, and perhaps keys."""
        config = self._gateway.config
        return config.auth is None and config.trusted_proxy is None and not self._options.is_unix

    @cached_property
    def authenticator(self) -> Authenticator | None:
        """Return the authenticator; None if every caller is served. Raises `ConfigError`."""
        if not self._is_plain:
            return self.callers
        if self._options.token is not None and self._cluster is None:
            # Callers with the single token pay for nothing else.
            # Other tokens are those of users.
            otherwise = (lambda head: self.callers.authenticate(head)) if has_part("team") else None
            return BearerToken(self._options.token, otherwise)
        is_proved = self._options.token is not None or self._has_keys()
        return None if self._options.serves_everyone or not is_proved else self.callers

    @cached_property
    def callers(self) -> Callers:
        from mcp_workbench.team.identity.callers import Callers, CallerSettings

        options, users = self._options, None
        if options.is_unix:
            from mcp_workbench.team.identity.unix_users import UnixUsers

            users = UnixUsers(options.users)
        settings = CallerSettings(
            token=options.token,
            keys=self._keys,
            auth=self._gateway.auth,
            proxy=options.proxy,
            users=users,
            subjects=self._gateway.runtime.subject_tokens if self._wants("token_exchange") else None,
        )
        remember = self._gateway.gate.identities().remember
        runtime = self._gateway.runtime
        return Callers(settings, remember, self._fetch, lambda work: runtime.start_task(work), self._load)

    def _load(self, principal: str) -> Coroutine[None, None, None] | None:
        cluster, access = self._cluster, self._gateway.gate.access
        if cluster is not None and principal not in cluster.here and cluster.is_arriving(principal):
            return self._arrive(cluster, principal)
        unread = None if access is None else access.unread(principal)
        return self._gateway.lists.load(unread) if unread else None

    async def _arrive(self, cluster: ClusterInstance, principal: str) -> None:
        access = self._gateway.gate.access
        if access is not None and (unread := access.unread(principal)):
            await self._gateway.lists.load(unread)
        await cluster.arrive(principal)

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

    def page(self, connect: Callable[[], list[dict[str, Any]]], *, is_tls: bool = False) -> LazySite:
        """The page at `/`. Raises `ConfigError`."""
        from mcp_workbench.app.page_serving import endpoint_page

        if self._gateway.config.page_in_force.capture == "full" and (not self._is_plain or self._has_keys()):
            raise ConfigError(
                "`page` keeps whole arguments and results (`full`), which is not possible with several users",
                hint='choose "capture": "redacted", or remove the named keys and `auth`',
            )
        takes_keys = self.authenticator is not None
        self._page = endpoint_page(self._gateway, is_tls=is_tls, takes_keys=takes_keys, connect=connect)
        return self._page

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
        if self._gateway.auth is not None:
            self.callers.prepare()
        if self._cluster is not None:
            # What is created or revoked here concerns other machines, whether a key is presented here or not.
            _ = self._keys

    @cached_property
    def _keys(self) -> KeysInForce | None:
        folder = _folder_of_keys()
        if folder is None:
            return None
        from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce

        keys = KeyFolder(folder)
        elsewhere = None
        if self._cluster is not None:
            from mcp_workbench.team.identity.shared_keys import SharedKeys

            elsewhere = SharedKeys(self._cluster.state, keys, lambda: in_force.reload())
        in_force = KeysInForce(keys, elsewhere=elsewhere)
        in_force.on_revoked.append(self._on_revoked)
        in_force.on_holders_gone.append(self._gateway.runtime.forget_use)
        self._gateway.runtime.follow_keys(in_force.holder_of)
        if self._cluster is not None:
            self._cluster.state.follow_keys(in_force.holder_of)
        return in_force

    def _on_keys_changed(self) -> None:
        # Keys are read only once one is presented.
        if "_keys" in self.__dict__ and self._keys is not None:
            self._keys.reload()

    def _on_revoked(self, names: frozenset[str]) -> None:
        if self._server is None:
            return
        from mcp_workbench.engine.blocking_work import aside

        self._server.end_those_of(names, REVOKED)
        if self._cluster is not None:
            self._cluster.forget(names)
        if self._page is not None:
            self._page.end_those_of(names)
        gateway = self._gateway
        gateway.parking.close(names)
        gateway.gate.revoke(names, REVOKED)
        _ = gateway.runtime.start_task(aside(gateway.catalog.store.drop_users))

    def _has_keys(self) -> bool:
        folder = _folder_of_keys()
        return folder is not None and os.path.isdir(folder) and self._keys is not None and len(self._keys) > 0

    async def _fetch(self, request: OAuthRequest) -> OAuthResponse:
        from mcp_workbench.signin.flow_runner import send

        return await send(self._gateway.runtime.http(), request)


def _folder_of_keys() -> str | None:
    if not has_part("team"):
        return None
    from mcp_workbench.team.identity.named_keys import folder

    return folder()
