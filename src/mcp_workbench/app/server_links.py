"""From a connection to a link: a program that is started, or an address that is connected to.

Owns what a server is given: its environment and folder, which are its client's, or the headers of the principal that it
is used for. Knows nothing about when a server is started. Imported with the first server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec.json import encode

from mcp_workbench.app.optional_parts import has_part
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.environment import advice, server_environment
from mcp_workbench.engine.config.model import LOCK_NAME, ServerConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.process_context import WITHIN
from mcp_workbench.engine.sandbox.denials import explanation
from mcp_workbench.engine.sandbox.sandbox import RefusedHost, Sandbox
from mcp_workbench.engine.sandbox.sandbox_runner import SandboxRunner
from mcp_workbench.engine.sandbox.server_sandbox import Enforced, Owner, enforce, sandbox_of
from mcp_workbench.engine.sandbox.thread_backend import make_private_folders
from mcp_workbench.engine.transport.child import find_program, spawn
from mcp_workbench.engine.transport.link import AnswerReceiver
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.stderr import StderrRing
from mcp_workbench.engine.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    from mcp_workbench.app.foreign_secrets import SecretFilter
    from mcp_workbench.engine.config.auth_settings import AuthConfig, ProxyConfig
    from mcp_workbench.engine.downstream.server_link import ServerLink
    from mcp_workbench.engine.steps import EventKind
    from mcp_workbench.engine.transport.http.client.headers import HeaderSource
    from mcp_workbench.engine.transport.http.client.http_client import HttpClient
    from mcp_workbench.signin.sign_in_target import SignInTarget
    from mcp_workbench.signin.sign_ins import SignIns
    from mcp_workbench.team.identity.identities import Identity
    from mcp_workbench.team.identity.identity_assertions import IdentityAssertions
    from mcp_workbench.team.identity.token_exchange import TokenExchanges
    from mcp_workbench.team.lock.verified_packages import VerifiedProgram

log = logging.getLogger(__name__)

# A server could make up as many as it likes; further ones are counted together.
MAX_REFUSED_HOSTS: Final = 100
OTHER_HOSTS: Final = "other hosts"


class Means(Protocol):
    """What the process provides for all of its servers."""

    redactor: Redactor
    processes: ProcessTable
    batch: WriteBatch | None

    header_source: Callable[[Connection], HeaderSource]

    def http(self) -> HttpClient: ...

    def sign_ins(self, keychain: bool | None) -> SignIns:
        """All sign-ins to servers."""

    def reap_strays_when_they_end(self) -> None:
        """Called with the first server."""

    def identity_of(self, principal: str) -> Identity:
        """What is known about a user whose identity is forwarded to servers."""

    def identity_assertions(self) -> IdentityAssertions:
        """Signs who the user is, for servers that require it."""

    def token_exchanges(self) -> TokenExchanges:
        """Exchanges users' tokens for tokens that are valid at servers."""

    def record(self, entry: ServerEntry, kind: EventKind, /, **fields: str) -> None:
        """Record an event about a server in the audits of those who show it."""

    def resolved(self, entry: ServerEntry) -> ServerConfig:
        """A server's configuration with all references resolved."""


async def open_link(means: Means, connection: Connection, config: ServerConfig, receiver: AnswerReceiver) -> ServerLink:
    """Open the link of this connection. `config` has all references resolved. Raises `DownstreamError`."""
    mode = connection.entry.context.redact_results
    if mode is None:
        return await _open(means, connection, config, receiver)
    filtering = _filtering(means, connection, config, receiver, mode)
    link = await _open(means, connection, config, filtering)
    filtering.link = link
    return link


async def _open(means: Means, connection: Connection, config: ServerConfig, receiver: AnswerReceiver) -> ServerLink:
    if config.command is None:
        return _open_http(means, connection, config, receiver)
    return await _start(means, connection, config, receiver)


def _filtering(
    means: Means,
    connection: Connection,
    config: ServerConfig,
    receiver: AnswerReceiver,
    mode: Literal["warn", "block"],
) -> SecretFilter:
    from mcp_workbench.app.foreign_secrets import ForeignSecrets, SecretFilter

    given = server_environment(connection.entry.context.environ, config.inherit_env, config.env)
    own = (*given.values(), *config.args, *config.headers.values(), config.url or "")
    secrets = ForeignSecrets(means.redactor, own, lambda: connection.secrets_owner)

    def report(method: str) -> None:
        means.record(
            connection.entry,
            "secret",
            principal=connection.principal,
            toolbox=connection.entry.toolbox,
            server=config.name,
            item=method,
            decision="denied" if mode == "block" else "passed",
            reason="it contains a secret of another server",
        )

    return SecretFilter(receiver, secrets, mode, connection.label, report)


async def _start(means: Means, connection: Connection, config: ServerConfig, receiver: AnswerReceiver) -> ServerLink:
    context = connection.entry.context
    assert means.batch is not None and config.command is not None
    # With the first process: from then on there may be strays, which only we can reap.
    if not means.processes.is_prepared:
        means.reap_strays_when_they_end()
    _keep_secrets_to_ourselves(means)
    environment = {
        **server_environment(context.environ, config.inherit_env, config.env),
        WITHIN: os.pathsep.join(filter(None, (context.environ.get(WITHIN), context.path))),
    }
    # A server runs in its client's folder, as if the client had started it itself.
    owner = Owner(context.path, connection.entry.toolbox, _user_of(connection))
    refused = _RefusedHosts(means, connection)
    runner = SandboxRunner(means.processes)

    def prepare() -> tuple[Enforced, VerifiedProgram | None]:
        sandbox = sandbox_of(config, environment, context.folder, owner)
        program = None
        # Starting a process holds up everything, and these may be on a disk that does not answer.
        os.path.isdir(sandbox.folder or "/")
        if sandbox.image is None:
            find_program(config.command or "", environment.get("PATH"), sandbox.folder)
            program = _verified_program(connection, config, sandbox, runner)
        return enforce(sandbox, refused.note), program

    try:
        enforced, program = await aside(prepare, lambda found: found[0].launch.abandon())
    except asyncio.CancelledError:
        runner.cancel()
        raise
    label = connection.label

    def on_line(line: str) -> None:
        connection.on_stderr_line()
        log.debug("[%s] stderr: %s", label, line)

    link = spawn(
        config.command if program is None else program.path,
        config.args if program is None else program.args,
        enforced.sandbox.environment,
        enforced.sandbox.folder,
        table=means.processes,
        batch=means.batch,
        receiver=receiver,
        limit=context.max_message_bytes,
        launch=enforced.launch,
        stderr=StderrRing(on_line, means.redactor.text),
    )
    command_line = config.name, config.command, *config.args

    def advise(said: str) -> str | None:
        found = explanation(
            enforced.sandbox,
            said,
            quote(label),
            hides=enforced.backend != "landlock",
            refused=list(refused.told.values()),
        )
        return found or advice(context.environ, config.inherit_env, config.env, command_line, said)

    connection.on_process(_report(enforced), advise)
    return link


def _verified_program(
    connection: Connection, config: ServerConfig, sandbox: Sandbox, runner: SandboxRunner
) -> VerifiedProgram | None:
    """What to start instead of what its entry says, if its package was recorded. Blocks; may install it. Raises
    `DownstreamError` if it is another one now."""
    path = connection.entry.context.path
    lock = os.path.join(os.path.dirname(path), LOCK_NAME)
    if not os.path.exists(lock) or not has_part("team"):
        return None
    from mcp_workbench.team.lock.packages import package_of

    if not package_of(config):
        return None
    from mcp_workbench.team.lock.verified_packages import recorded, verify

    entry = connection.entry
    locked = recorded(lock, os.path.basename(path), entry.toolbox, config.name)
    if locked is None:
        return None
    make_private_folders(sandbox)
    # Nothing of the package runs, so that its own network is not the limit.
    wider = sandbox if sandbox.network == "none" else sandbox._replace(network="all")
    return verify(locked, config, quote(connection.label), sandbox.environment, partial(runner.run, wider))


class _RefusedHosts:
    """Counts the hosts that a server is refused, and tells of each once; lets those pass that a person has allowed
    since."""

    def __init__(self, means: Means, connection: Connection) -> None:
        self._means = means
        self._connection = connection
        # What was said about each, in this run of the server.
        self.told: dict[str, str] = {}

    def note(self, host: str, port: int, refusal: RefusedHost) -> bool:
        from mcp_workbench.engine.config.host_names import MAX_HOST_NAME_LENGTH

        if refusal.entry and self._connection.entry.host_decisions.get(refusal.entry):
            return True
        entry = refusal.entry or f"{host[:MAX_HOST_NAME_LENGTH]}:{port}"
        counts = self._connection.refused_hosts
        if entry not in counts and len(counts) >= MAX_REFUSED_HOSTS:
            entry = OTHER_HOSTS
        counts[entry] = counts.get(entry, 0) + 1
        remedy = f"; to allow it, add {encode(refusal.entry).decode()} to `network` of its `sandbox`"
        told = f"its sandbox refused a host: {refusal.reason}{remedy if refusal.entry else ''}"
        self.told.setdefault(entry, told)
        if counts[entry] > 1:
            return False
        label, toolbox = self._connection.label, self._connection.entry.toolbox
        log.warning("[%s] %s", label, told)
        self._means.record(
            self._connection.entry,
            "egress",
            principal=self._connection.principal,
            toolbox=toolbox,
            server=self._connection.config.name,
            item=entry,
            decision="denied",
            reason=refusal.reason,
        )
        return False


def _user_of(connection: Connection) -> str:
    return "" if connection.principal in OWN_PRINCIPALS else connection.principal


def _report(enforced: Enforced) -> dict[str, object]:
    """What `status` says about a server's sandbox."""
    sandbox = enforced.sandbox
    report: dict[str, object] = {"profile": sandbox.profile, "missing": list(enforced.missing)}
    if sandbox.is_best_effort and sandbox.is_asked:
        report["bestEffort"] = True
    if not sandbox.limits_files:
        return report
    granted = {"read": sandbox.read, "write": sandbox.write, "network": sandbox.network, "skipped": sandbox.skipped}
    if sandbox.image is not None:
        report["image"] = sandbox.image
    if sandbox.home is not None:
        report["home"] = sandbox.home
    kept = {"readOnly": [each for each in sandbox.read_only if each not in enforced.unprotected]}
    return {**report, "backend": enforced.backend, **granted, **kept, "unprotected": enforced.unprotected}


def _keep_secrets_to_ourselves(means: Means) -> None:
    """Erase secrets before a new process is started: servers can read our environment as the system shows it."""
    if not means.redactor.has_news():
        return
    from mcp_workbench.engine.transport.environment_block import erase

    harmless, hides = server_environment(os.environ, (), {}), means.redactor.hides
    erase([name for name, value in os.environ.items() if name not in harmless and hides(value.strip())])


def _open_http(means: Means, connection: Connection, config: ServerConfig, receiver: AnswerReceiver) -> ServerLink:
    from mcp_workbench.engine.transport.http.client.http_link import HttpLink
    from mcp_workbench.engine.transport.http.parameter_cache import HeaderParameterCache

    entry = connection.entry
    assert config.url is not None
    return HttpLink(
        means.http(),
        config.url,
        means.header_source(connection),
        receiver,
        limit=entry.context.max_message_bytes,
        environ=entry.context.environ,
        # `stdio` is the default of every server, and means nothing for one with a `url`.
        transport="auto" if config.transport == "stdio" else config.transport,
        # Read again after the server was listed again: its tools are another object then.
        parameters_of=HeaderParameterCache(lambda tool: entry.tools.get(tool), lambda _: entry.tools),
    )


def header_source(means: Means, connection: Connection) -> HeaderSource:
    """The configured headers until the server requires a sign-in. A token configured by the user always stays."""
    config = means.resolved(connection.entry)
    assert config.url is not None
    if config.forward_identity is not None or config.token_exchange is not None:
        return _headers_of_user(means, connection, config)
    return _own_headers(means, connection, config)


def _headers_of_user(means: Means, connection: Connection, config: ServerConfig) -> HeaderSource:
    """Headers for a server that requires to know who the user is."""
    from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
    from mcp_workbench.team.identity.user_headers import AssertedIdentity, ExchangedToken

    principal, source = connection.principal, None
    if config.token_exchange is not None:
        # Other configured headers are sent along with the exchanged token.
        base = FixedHeaders(config.headers).headers()
        source = ExchangedToken(means.token_exchanges(), principal, config.token_exchange, base)
    inner = source or _own_headers(means, connection, config)
    asked = config.forward_identity
    if asked is None:
        return inner
    assertions, audience = means.identity_assertions(), asked.audience or config.url or ""
    return AssertedIdentity(
        inner,
        asked.header,
        lambda: means.identity_of(principal),
        lambda identity, now: assertions.sign(identity, audience, now),
    )


def _own_headers(means: Means, connection: Connection, config: ServerConfig) -> HeaderSource:
    from mcp_workbench.engine.transport.http.client.headers import FixedHeaders, UntilRefused

    assert config.url is not None
    # If it is refused, the user has to fix it: nothing else is tried.
    if any(name.lower() == "authorization" for name in config.headers) or not has_part("signin"):
        return FixedHeaders(config.headers)
    from mcp_workbench.signin.store_location import may_hold

    entry, principal = connection.entry, connection.caller.principal

    def signed_in(headers: Mapping[str, str]) -> HeaderSource:
        target = sign_in_target(entry, config, principal)
        source = means.sign_ins(entry.context.keychain).source(target, headers)
        connection.secrets_owner = source.owner
        if target.principal == entry.context.principal:
            # A sign-in is private to its principal, and so is an entry, unless it is shown to all users.
            entry.sign_in = source
        return source

    # Nothing about signing in is loaded for a server that has never required it.
    if config.oauth is not None or may_hold(config.url):
        return signed_in(FixedHeaders(config.headers).headers())
    return UntilRefused(config.headers, signed_in)


def sign_in_target(entry: ServerEntry, config: ServerConfig, principal: str) -> SignInTarget:
    """Where this principal signs in to this server. `config` has all references resolved."""
    from mcp_workbench.signin.sign_in_target import SignInTarget

    assert config.url is not None
    beside = entry.catalogs[0].entries() if entry.catalogs else (entry,)
    # A name that is used in two toolboxes does not identify the server to sign in to.
    named = [each for each in beside if each.name == entry.name]
    name = entry.name if len(named) == 1 else f"{entry.toolbox}/{entry.name}"
    command = f"mcp-workbench auth login {quote(name)} --config {quote(entry.context.path)}"
    own = principal in OWN_PRINCIPALS
    if not own:
        command += f" --as {quote(principal)}"
    environ = entry.context.environ
    return SignInTarget(
        "" if own else principal, config.url, config.oauth, command, environ, _identity_fetcher(entry, environ)
    )


def _identity_fetcher(entry: ServerEntry, environ: Mapping[str, str]) -> Callable[[], Awaitable[str]] | None:
    """What fetches `identityToken` of a server anew, if it refers to something that can change."""
    field = ("oauth", "identity_token")
    value = next((each for each in entry.config.references if each.field == field), None)
    if value is None or any(getattr(part, "kind", "") == "variable" for part in value.parts):
        return None

    async def fetch() -> str:
        from mcp_workbench.signin.secrets.resolve import resolve_value

        return (await resolve_value(value, environ)).text

    return fetch


def are_users_here(auth: AuthConfig | None, proxy: ProxyConfig | None, serving: str | None) -> bool:
    """Whether a page that leads back to this machine can only be followed by the user it was shown to. Another user's
    browser would bring us that user's sign-in, and at a public address there is no way to tell whose it is."""
    from mcp_workbench.signin.flow_io import is_loopback

    # Behind a proxy, or at a public address, users are on other machines.
    if proxy is not None or (auth is not None and not is_loopback(auth.public_url)):
        return False
    return serving in (None, "stdio") or serving.startswith("unix:") or is_loopback(serving)
