"""Access with an identity: a company's identity provider for all servers (ID-JAG), or the token of a workload."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.app.server_access import ServerAccess
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin.flow_io import SignInFailed
from mcp_workbench.signin.identity_grant import ID_JAG, ID_TOKEN, JWT_BEARER, TOKEN_EXCHANGE_GRANT
from mcp_workbench.signin.sign_in_target import SignInTarget
from tests.engine.transport.http.listening import Reply, Request, scripted_http
from tests.signin.authority import Authority, Fields, SignInSetup, _json, another, sign_in_setup
from tests.signin.command_line import CommandLine

pytestmark = pytest.mark.processes


def signed(**claims: object) -> str:
    """Looks like a JWT. Nobody here verifies it; the conformance suite does."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.sig"


@dataclass
class Provider(Authority):
    """An identity provider: people sign in to it, and it vouches for them elsewhere."""

    metadata: Fields | None = field(default_factory=lambda: {"scopes_supported": ["openid", "offline_access"]})
    life: float = 3600
    exchange_error: str = ""
    issued_type: str = ID_JAG
    exchanges: list[Fields] = field(default_factory=list)

    async def _token(self, asked: Fields, request: Request, reply: Reply) -> None:
        if asked["grant_type"] == TOKEN_EXCHANGE_GRANT:
            self.exchanges.append(asked)
            if self.exchange_error:
                await _json(reply, 400, {"error": self.exchange_error})
            else:
                given = {"access_token": signed(aud=asked["audience"]), "token_type": "N_A"}
                await _json(reply, 200, {**given, "issued_token_type": self.issued_type})
            return
        claims = {"email": "ada@example.com", "exp": time.time() + self.life, "n": self.number}
        self.token_answer = {"id_token": signed(**claims)}
        await super()._token(asked, request, reply)


@contextlib.asynccontextmanager
async def company(folder: Path, **switches: object) -> AsyncIterator[tuple[Provider, SignInSetup]]:
    """A provider, and a server whose authorization server trusts it."""
    provider = Provider(**switches)  # type: ignore[arg-type]
    async with scripted_http(provider.handle) as listening:
        provider.origin = f"http://127.0.0.1:{listening.port}"
        settings = OAuthConfig(
            grant="jwt_bearer",
            client_id="workbench",
            client_secret="s3cret-of-server",
            identity_provider=provider.origin,
            identity_client_id="workbench-at-idp",
        )
        async with sign_in_setup(folder, settings, gives_refresh_tokens=False) as at:
            yield provider, at


def at_another_server(at: SignInSetup, other: Authority) -> SignInSetup:
    target = SignInTarget("", other.url, at.target.settings, "mcp-workbench auth login other")
    return SignInSetup(other, at.server, at.client, at.sign_ins, target, at.sign_ins.source(target, {}))


@pytest.mark.requirement("signin.machines")
async def test_one_sign_in_at_the_provider_opens_every_server_that_trusts_it(tmp_path: Path) -> None:
    async with company(tmp_path) as (provider, at):
        with pytest.raises(SignInNeeded, match=f"{provider.origin} wants you to sign in"):
            await at.call()
        record = await at.log_in()
        assert record.issuer == provider.origin and record.account == "ada@example.com"
        assert provider.authorizations[0]["scope"] == "openid offline_access"
        assert "resource" not in provider.authorizations[0]
        assert await at.call() == 200
        (exchange,) = provider.exchanges
        assert exchange == {
            "grant_type": TOKEN_EXCHANGE_GRANT,
            "requested_token_type": ID_JAG,
            "audience": at.authority.origin,
            "resource": at.authority.url,
            "subject_token": record.id_token,
            "subject_token_type": ID_TOKEN,
            "client_id": "workbench-at-idp",
        }
        (asked,) = at.authority.token_requests
        assert asked["grant_type"] == JWT_BEARER and asked["assertion"] == signed(aud=at.authority.origin)
        assert asked["resource"] == at.authority.url
        assert at.authority.token_headers[0]["authorization"].startswith("Basic ")
        assert at.record.id_token == "", "only the provider's record has one"
        other = Authority()
        async with scripted_http(other.handle) as listening:
            other.origin = f"http://127.0.0.1:{listening.port}"
            assert await at_another_server(at, other).call() == 200
        assert len(provider.authorizations) == 1
        assert provider.exchanges[1]["audience"] == other.origin


async def test_an_expired_id_token_is_renewed_before_it_is_exchanged(tmp_path: Path) -> None:
    async with company(tmp_path, life=-1) as (provider, at):
        first = (await at.log_in()).id_token
        provider.life = 3600
        assert await at.call() == 200
        assert provider.refreshes == 1
        assert provider.exchanges[0]["subject_token"] != first
        at.authority.expire()
        assert await at.call() == 200
        assert (len(provider.exchanges), provider.refreshes) == (2, 1), "this one is still good"


async def test_another_process_uses_the_same_sign_in(tmp_path: Path) -> None:
    async with company(tmp_path) as (_, at):
        await at.log_in()
        assert await another(at).call() == 200
        with pytest.raises(SignInNeeded):
            await another(at, "somebody else").call()


async def test_a_provider_that_no_longer_vouches_wants_a_new_sign_in(tmp_path: Path) -> None:
    async with company(tmp_path) as (provider, at):
        await at.log_in()
        provider.exchange_error = "invalid_grant"
        with pytest.raises(SignInNeeded, match=r"sign in again: .* refused \(invalid_grant\)"):
            await at.call()
        provider.exchange_error = ""
        await at.log_in()
        assert await at.call() == 200


async def test_a_provider_without_assertions_for_others(tmp_path: Path) -> None:
    async with company(tmp_path, issued_type="urn:ietf:params:oauth:token-type:access_token") as (_, at):
        await at.log_in()
        with pytest.raises(SignInFailed, match="does not issue assertions for other authorization servers"):
            await at.call()
        assert not at.authority.token_requests, "another kind of token is not presented anywhere"


async def test_signing_out_ends_the_sign_in_at_the_provider(tmp_path: Path) -> None:
    async with company(tmp_path) as (provider, at):
        await at.log_in()
        assert await at.call() == 200
        record, is_revoked = await at.sign_ins.sign_out(at.target)
        assert record is not None and record.issuer == provider.origin and is_revoked
        assert provider.revoked and not at.sign_ins.store.read().records
        with pytest.raises(SignInNeeded):
            await at.call()


async def test_the_token_of_a_workload_is_fetched_for_each_access_token(tmp_path: Path) -> None:
    settings = OAuthConfig(grant="jwt_bearer", client_id="workload", identity_token="as of the start")
    async with sign_in_setup(tmp_path, settings) as at:
        assert await at.call() == 200
        assert at.authority.token_requests[0] == {
            "grant_type": JWT_BEARER,
            "assertion": "as of the start",
            "resource": at.authority.url,
            "client_id": "workload",
        }
        tokens = iter(["second", "third"])

        async def fetch() -> str:
            return next(tokens)

        at.target.fetch_identity = fetch
        for number in (1, 2):
            at.authority.expire()
            await at.change(lambda record: replace(record, expires_at=0.0, refresh_token=None))
            assert await at.call() == 200
            assert at.authority.token_requests[number]["assertion"] == ("second", "third")[number - 1]


async def test_a_refused_identity_is_not_presented_again(tmp_path: Path) -> None:
    settings = OAuthConfig(grant="jwt_bearer", client_id="workload", identity_token="expired")
    faults = [(400, b'{"error": "invalid_grant"}')] * 5
    async with sign_in_setup(tmp_path, settings, token_faults=faults) as at:
        with pytest.raises(SignInFailed, match="invalid_grant"):
            await at.call()
        assert [each["grant_type"] for each in at.authority.token_requests] == [JWT_BEARER]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (OAuthConfig(grant="jwt_bearer", client_id="workload"), "`jwt_bearer` needs an identity"),
        (OAuthConfig(grant="jwt_bearer", identity_token="t"), "`jwt_bearer` needs a client"),
    ],
)
async def test_missing_settings_are_named(tmp_path: Path, settings: OAuthConfig, message: str) -> None:
    async with sign_in_setup(tmp_path, settings) as at:
        with pytest.raises(SignInFailed, match=message):
            await at.call()


async def test_a_provider_needs_a_client_for_the_exchange(tmp_path: Path) -> None:
    async with company(tmp_path) as (_, at):
        assert at.target.settings is not None
        # With a token of its own, nobody signs in there, and nothing is registered.
        at.target.settings = replace(at.target.settings, identity_client_id=None, identity_token="t")
        with pytest.raises(SignInFailed, match="`identityProvider` needs a client there"):
            await at.call()


async def test_the_commands_for_people(tmp_path: Path) -> None:
    async with company(tmp_path) as (provider, at):
        oauth = {
            "grant": "jwt_bearer",
            "clientId": "workbench",
            "clientSecret": "s3cret-of-server",
            "identityProvider": provider.origin,
            "identityClientId": "workbench-at-idp",
        }
        user = CommandLine(tmp_path, at.authority, oauth=oauth)
        status, printed, said = await user.run("login", "files")
        assert (status, printed) == (0, "signed in to files as ada@example.com\nfiles offers 1 tool\n"), said
        _, printed, _ = await user.run("auth")
        assert provider.origin in printed and at.authority.url in printed and "needs sign-in" not in printed
        status, printed, _ = await user.run("logout", "files")
        assert status == 0 and not user.store.read().records and provider.revoked


async def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    token.chmod(0o600)
    settings = {"grant": "jwt_bearer", "clientId": "workload", "identityToken": f"${{file:{token}}}"}
    async with sign_in_setup(tmp_path) as at:
        config = tmp_path / "workbench-config.json"
        config.write_text(json.dumps({"mcpServers": {"files": {"url": at.authority.url, "oauth": settings}}}))
        access = ServerAccess(load(str(config), {}), Redactor(()))
        (entry,) = access.catalog.entries()
        target = await access.target(entry, OWN_USER)
        assert target.settings is not None and target.settings.identity_token == "first"
        token.write_text("second\n")
        assert target.fetch_identity is not None and await target.fetch_identity() == "second"
