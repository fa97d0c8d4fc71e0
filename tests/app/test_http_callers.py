"""Who may call `serve --http`: what the command line, the file and the keys add up to."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.http_callers import CallerOptions, HttpCallers, fetch_secrets
from mcp_workbench.cli.flags import UsageError, parse
from mcp_workbench.cli.serve import SERVE_FLAGS, certificate_of
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.config.auth_settings import (
    AuthConfig,
    ForwardedIdentityConfig,
    IssuerConfig,
    ProxyConfig,
    TokenExchangeConfig,
)
from mcp_workbench.engine.config.fixed_settings import with_fixed_settings
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.page_settings import PageConfig
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.transport.http.server.authentication import AuthenticationChallenge, BearerToken
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.check_references import look
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
from mcp_workbench.team.identity.named_keys import KeyFolder
from mcp_workbench.team.policy.approval import GrantedApproval
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import initialize
from tests.engine.transport.http.server.test_tls import certificate
from tests.support.processes import eventually

AUTH = AuthConfig(public_url="https://tools.example.com/mcp", issuers=(IssuerConfig(issuer="https://id.example.com"),))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyFolder:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return KeyFolder(str(tmp_path / "state" / "mcp-workbench" / "keys"))


async def callers(
    token: str | None = "secret",
    *,
    serves_everyone: bool = False,
    users: tuple[str, ...] = (),
    is_unix: bool = False,
    server: dict[str, Any] | None = None,
    **file: Any,
) -> HttpCallers:
    config = ServerConfig(name="server", url="http://127.0.0.1:9/mcp", transport="http", **(server or {}))
    box = ToolboxConfig(name="box", description="A box.", servers={"server": config})
    gateway = Gateway(WorkbenchConfig(path="c.json", toolboxes={"box": box}, **file), Options(use_cache=False))
    proxy = gateway.config.trusted_proxy
    options = CallerOptions(token=token, serves_everyone=serves_everyone, is_unix=is_unix, users=users, proxy=proxy)
    return HttpCallers(gateway, options)


def arrived(token: str | None = None, peer: str = "192.0.2.1", **headers: str) -> RequestHead:
    head = RequestHead("POST", "/mcp", peer)
    head.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    if token is not None:
        head.headers["authorization"] = f"Bearer {token}"
    return head


async def test_with_one_token_there_is_nothing_but_that_until_a_key_is_shown(keys: KeyFolder) -> None:
    found = await callers()
    authenticator = found.authenticator
    assert isinstance(authenticator, BearerToken)
    assert authenticator.authenticate(arrived("secret")) == "default"
    assert "callers" not in found.__dict__, "nothing else is made for it"
    token = keys.create("alice")
    assert authenticator.authenticate(arrived(token)) == "alice"
    assert isinstance(authenticator.authenticate(arrived("x")), AuthenticationChallenge)
    assert not found.header_names and not found.hosts and not found.pages()


async def test_without_a_token_keys_are_enough_and_without_either_there_is_none(keys: KeyFolder) -> None:
    assert (await callers(token=None)).authenticator is None
    token = keys.create("alice")
    assert (await callers(token=None, serves_everyone=True)).authenticator is None
    authenticator = (await callers(token=None)).authenticator
    assert authenticator is not None and authenticator.authenticate(arrived(token)) == "alice"


@pytest.mark.processes
async def test_a_revoked_key_loses_its_sessions_and_approvals(keys: KeyFolder) -> None:
    token = keys.create("alice")
    found = await callers(policy=(PolicyRule(then="ask"),))
    gateway = found._gateway
    async with gateway.running(), echoing(authenticator=found.authenticator) as rig:
        found.started(rig.server)
        assert gateway.gate.access is not None
        for name in ("alice", "bob"):
            gateway.gate.access.approvals.grant(name, "digest", GrantedApproval(float("inf")))
        faces = [gateway.gate.whole_face_of(name) for name in ("alice", "bob")]
        opened = await rig.client.request(body=initialize(), authorization=f"Bearer {token}")
        assert opened.status == 200 and rig.server.session_count == 1
        ((files, changed),) = found.watched(None)
        assert files == (keys.path,)
        keys.revoke("alice")
        changed()
        assert rig.server.session_count == 0
        took = [gateway.gate.access.approvals.take(name, 1, "digest") for name in ("alice", "bob")]
        assert took == [False, True], "the next `alice` may be somebody else"
        assert gateway.gate.whole_face_of("alice") is not faces[0] and gateway.gate.whole_face_of("bob") is faces[1]
        await rig.refused(rig.client.request(body=initialize(), authorization=f"Bearer {token}"), 401)


async def test_a_change_before_anybody_has_shown_a_key_reads_none(keys: KeyFolder) -> None:
    found = await callers()
    ((_, changed),) = found.watched(None)
    changed()
    assert "_keys" not in found.__dict__


async def test_an_identity_provider_brings_pages_and_its_host(keys: KeyFolder) -> None:
    found = await callers(token=None, auth=AUTH)
    assert found.hosts == ("tools.example.com",)
    assert "/.well-known/oauth-protected-resource/mcp" in found.pages()
    assert found.authenticator is found.callers and not found.authenticator.depends_on_peer


async def test_a_proxy_brings_its_headers(keys: KeyFolder) -> None:
    found = await callers(token=None, trusted_proxy=ProxyConfig(peers=("192.0.2.1",), secret="s"))
    assert found.header_names == ("x-forwarded-user", "x-proxy-secret")
    assert found.authenticator is not None and found.authenticator.depends_on_peer
    head = arrived(x_forwarded_user="alice", x_proxy_secret="s")
    assert found.authenticator.authenticate(head) == "proxy#alice"


async def test_on_a_socket_users_are_recognised(keys: KeyFolder) -> None:
    found = await callers(token=None, users=("4711",), is_unix=True)
    assert found.authenticator is not None
    assert found.authenticator.authenticate(arrived(peer="uid:4711")) == "unix#4711"
    assert found.authenticator.authenticate(arrived(peer=f"uid:{os.geteuid()}")) == "local"
    with pytest.raises(ConfigError, match="there is no user"):
        _ = (await callers(users=("nobody-of-this-name",), is_unix=True)).authenticator


async def test_servers_that_want_to_know_the_user_bring_our_key(keys: KeyFolder) -> None:
    found = await callers(server={"forward_identity": ForwardedIdentityConfig()})
    page = found.pages()["/.well-known/jwks.json"].respond("")
    assert page.status == 200 and b'"kid"' in page.body and b'"d"' not in page.body


async def test_tokens_are_kept_only_where_they_are_exchanged(keys: KeyFolder) -> None:
    plain, exchanging = (
        await callers(token=None, auth=AUTH),
        await callers(token=None, auth=AUTH, server={"token_exchange": TokenExchangeConfig(audience="x")}),
    )
    assert plain.callers._subjects is None and exchanging.callers._subjects is not None


async def test_a_provider_that_cannot_be_reached_is_reported_as_such(keys: KeyFolder) -> None:
    from tests.team.identity_provider import Provider

    provider = Provider(issuer="http://127.0.0.1:9")
    auth = AuthConfig(public_url="http://127.0.0.1/mcp", issuers=(IssuerConfig(issuer=provider.issuer),))
    found = await callers(token=None, auth=auth)
    gateway = found._gateway
    async with asyncio.timeout(20), gateway.running():
        later = found.callers.authenticate(arrived(provider.token()))
        assert isinstance(later, asyncio.Future)
        answer = await later
    assert isinstance(answer, AuthenticationChallenge) and answer.status == 503


def parsed(*flags: str) -> Any:
    return parse(flags, SERVE_FLAGS, positionals=1)


def test_a_certificate_and_its_key_belong_together(tmp_path: Path) -> None:
    chain, key = map(str, certificate(tmp_path, "name"))
    assert certificate_of(parsed()) is None
    found = certificate_of(parsed("--tls-cert", chain, "--tls-key", key))
    assert found is not None and found.files == (chain, key)
    for flags in (("--tls-cert", chain), ("--tls-key", key)):
        with pytest.raises(UsageError, match="belong together"):
            certificate_of(parsed(*flags))
    with pytest.raises(UsageError, match="requires --tls-cert"):
        certificate_of(parsed("--tls-client-ca", chain))


async def test_a_certificate_is_watched_beside_the_keys(keys: KeyFolder, tmp_path: Path) -> None:
    chain, key = map(str, certificate(tmp_path, "name"))
    found = certificate_of(parsed("--tls-cert", chain, "--tls-key", key))
    watched = (await callers()).watched(found)
    assert [files for files, _ in watched] == [(keys.path,), (chain, key)]


def referring(tmp_path: Path, secret: str) -> WorkbenchConfig:
    path = tmp_path / "workbench-config.json"
    provider = {"issuer": "https://id.example.com", "introspection": "https://id.example.com/introspect"}
    first = {"issuer": "https://other.example.com", "publicUrl": "https://tools.example.com/mcp"}
    settings = {
        "auth": [first, {**provider, "clientId": "we", "clientSecret": secret}],
        "trustedProxy": {"peers": "127.0.0.1", "secret": secret},
        "mcpServers": {"time": {"command": "time"}},
    }
    path.write_text(json.dumps(settings))
    return load(str(path), os.environ)


@pytest.mark.processes
@pytest.mark.parametrize("how", ["file", "cmd"])
def test_secrets_of_callers_are_fetched_before_anybody_is_served(tmp_path: Path, how: str) -> None:
    (tmp_path / "kept").write_text("s3cret-of-ours\n")
    (tmp_path / "kept").chmod(0o600)
    config, redactor, warnings = referring(tmp_path, "${file:kept}" if how == "file" else "${cmd:cat kept}"), *noted()
    auth, proxy = fetch_secrets(config, redactor, warnings.append)
    assert auth is not None and auth.issuers[1].client_secret == "s3cret-of-ours"
    assert proxy is not None and proxy.secret == "s3cret-of-ours"
    assert redactor.text("it is s3cret-of-ours") != "it is s3cret-of-ours"
    gateway = Gateway(config, Options(use_cache=False), redactor, auth=auth)
    assert gateway.runtime.owner.auth is auth, "tokens are exchanged with it too"
    assert with_fixed_settings(gateway.config, referring(tmp_path, gateway_secret(config)))[1] == [], (
        "nothing to restart"
    )
    assert not warnings


def noted() -> tuple[Redactor, list[str]]:
    return Redactor(()), []


def gateway_secret(config: WorkbenchConfig) -> str:
    assert config.trusted_proxy is not None and config.trusted_proxy.secret is not None
    return config.trusted_proxy.secret


def test_a_secret_that_cannot_be_fetched_keeps_us_from_serving(tmp_path: Path) -> None:
    config, redactor, warnings = referring(tmp_path, "${file:gone}"), *noted()
    with pytest.raises(ConfigError, match=r"auth\.1\.clientSecret.*cannot be resolved"):
        fetch_secrets(config, redactor, warnings.append)
    assert [each.label for each in look(config, redactor).unfetched] == ["auth", "trustedProxy"]


def test_a_secret_in_the_file_itself_is_warned_of(tmp_path: Path) -> None:
    config, redactor, warnings = referring(tmp_path, "in-the-file"), *noted()
    fetch_secrets(config, redactor, warnings.append)
    assert "written in the configuration itself" in warnings[0] and "in-the-file" not in warnings[0]


async def test_the_keys_of_a_provider_are_fetched_when_we_begin_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def fetch(self: HttpCallers, request: OAuthRequest) -> OAuthResponse:
        asked.append(request.url)
        return OAuthResponse(0, b"no such host")

    monkeypatch.setattr(HttpCallers, "_fetch", fetch)
    config = WorkbenchConfig(path="", toolboxes={}, auth=AUTH)
    gateway = Gateway(config, Options(use_cache=False))
    async with gateway.running(), echoing() as rig:
        HttpCallers(gateway, CallerOptions()).started(rig.server)
        await eventually(lambda: len(asked) == 2, what="a look at both places where its metadata may be")
    assert all(url.startswith("https://id.example.com/.well-known/") for url in asked)


@pytest.mark.parametrize("hidden", [True, False])
async def test_a_users_cached_offer_is_read_in_a_thread_before_serving_them(
    keys: KeyFolder, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    rules = (PolicyRule(tools=("box/server/drop",), then="hide" if hidden else "deny"), PolicyRule(then="allow"))
    found = await callers(policy=rules)
    token = keys.create("alice")
    threads: list[threading.Thread] = []
    read = ServerEntry.read_manifest

    def noted(entry: ServerEntry) -> Manifest:
        threads.append(threading.current_thread())
        return read(entry)

    monkeypatch.setattr(ServerEntry, "read_manifest", noted)
    gateway = found._gateway
    async with gateway.running():
        assert found.authenticator is not None
        first = found.authenticator.authenticate(arrived(token))
        assert isinstance(first, asyncio.Future) is hidden
        assert (await first if isinstance(first, asyncio.Future) else first) == "alice"
        assert gateway.router.views.face_of("alice") is not None
        assert found.authenticator.authenticate(arrived(token)) == "alice", "the next time there is nothing to wait for"
    assert bool(threads) is hidden and threading.main_thread() not in threads


async def test_a_page_that_keeps_everything_is_for_one_user_alone(keys: KeyFolder) -> None:
    whole = PageConfig(capture="full")
    assert (await callers(page=whole)).page(list).takes("/")
    with pytest.raises(ConfigError, match="not possible with several users"):
        (await callers(page=whole, auth=AUTH)).page(list)
    keys.create("ada")
    with pytest.raises(ConfigError, match="not possible with several users"):
        (await callers(page=whole)).page(list)
    assert (await callers(page=PageConfig(), auth=AUTH)).page(list).takes("/")
