"""What servers are told of the user: an assertion of ours, or a token made from the user's; never that itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.engine.config.auth_settings import (
    AuthConfig,
    ForwardedIdentityConfig,
    IssuerConfig,
    ProxyConfig,
    TokenExchangeConfig,
)
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, FixedHeaders
from mcp_workbench.errors import DownstreamError
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
from mcp_workbench.team.identity.identities import Identities, Identity
from mcp_workbench.team.identity.identity_assertions import ASSERTION_LIFETIME, IdentityAssertions
from mcp_workbench.team.identity.token_exchange import SubjectToken, SubjectTokens, TokenExchanges
from mcp_workbench.team.identity.user_headers import (
    ASSERTION_RENEWAL_MARGIN,
    MAX_EXCHANGED_TOKENS,
    AssertedIdentity,
    ExchangedToken,
)
from tests.engine.transport.http.listening import Reply, Request, scripted_http

ISSUER = "https://id.example.com"
ALICE = f"{ISSUER}#alice"
AUTH = AuthConfig(
    public_url="https://tools.example.com/mcp",
    issuers=(IssuerConfig(issuer=ISSUER, client_id="we", client_secret="s3cret"),),
)
WANTED = TokenExchangeConfig(audience="tickets", scopes=("read",))
REFUSED = 401


@pytest.mark.requirement("team.identity")
def test_an_assertion_names_the_user_for_one_server_and_expires(tmp_path: Path) -> None:
    assertions = IdentityAssertions(str(tmp_path / "state" / "key.json"), "https://tools.example.com/mcp")
    now = time.time()
    written = assertions.sign(Identity(principal=ALICE, groups=frozenset({"b", "a"})), "https://server/mcp", now)

    token = jwt.decode(written, KeySet.import_key_set(json.loads(assertions.jwks())))
    assert {name: token.claims[name] for name in ("iss", "sub", "aud", "groups")} == {
        "iss": "https://tools.example.com/mcp",
        "sub": ALICE,
        "aud": "https://server/mcp",
        "groups": ["a", "b"],
    }
    assert token.claims["exp"] - token.claims["iat"] == ASSERTION_LIFETIME
    assert b'"d"' not in assertions.jwks(), "what is private stays so"


def test_the_key_is_the_same_at_every_start_and_only_ours_to_read(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    first = IdentityAssertions(str(path)).jwks()
    assert path.stat().st_mode & 0o777 == 0o600
    assert IdentityAssertions(str(path)).jwks() == first
    path.chmod(0o644)
    with pytest.raises(DownstreamError, match="cannot be used"):
        IdentityAssertions(str(path)).jwks()
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(DownstreamError, match="cannot be used"):
        IdentityAssertions(str(path)).jwks()


class Inner:
    """Headers that have to be waited for at first."""

    def __init__(self) -> None:
        self.given: Mapping[str, str] | None = None
        self.refusals: list[CredentialRefusal] = []

    def headers(self) -> Mapping[str, str] | None:
        return self.given

    async def fetch(self) -> Mapping[str, str]:
        self.given = {"authorization": "Bearer own"}
        return self.given

    async def refused(self, refusal: CredentialRefusal) -> bool:
        self.refusals.append(refusal)
        return True


async def test_an_assertion_goes_with_the_servers_own_headers_and_is_renewed_in_time() -> None:
    now, age, made, inner = 0.0, 0.0, [], Inner()

    identity = Identity(principal=ALICE, groups=frozenset({"admins"}))

    def sign(of: Identity, at: float) -> str:
        made.append(at)
        return f"assertion {len(made)} of {sorted(of.groups)}"

    source = AssertedIdentity(inner, "x-identity", lambda: identity, sign, lambda: now, lambda: age)
    assert source.headers() is None
    first = await source.fetch()
    assert first == {"authorization": "Bearer own", "x-identity": "assertion 1 of ['admins']"}
    assert source.headers() is first, "the same object until something changes"
    now = ASSERTION_LIFETIME - ASSERTION_RENEWAL_MARGIN
    second = source.headers()
    assert second is not None and second["x-identity"] == "assertion 2 of ['admins']"
    assert await source.refused(CredentialRefusal(REFUSED, "", second))
    assert inner.refusals[0].sent is inner.given, "the other source is told of what it gave"
    now = 10.0
    source.headers()
    assert len(made) == 3, "the clock was set back: what was made lies in the future"
    age = ASSERTION_LIFETIME - ASSERTION_RENEWAL_MARGIN
    source.headers()
    assert len(made) == 4, "the clock stands, and time passes"
    former, identity = source.headers(), Identity(principal=ALICE)
    bare = source.headers()
    assert bare is not None and bare["x-identity"] == "assertion 5 of []", "another token of the user has other groups"
    assert former is not None and await source.refused(CredentialRefusal(REFUSED, "", former))
    assert inner.refusals[1].sent is inner.given, "also of what was sent with another assertion"


def subjects(token: str = "inbound") -> SubjectTokens:
    found = SubjectTokens()
    found.keep(ALICE, SubjectToken(token, ISSUER, time.time() + 60))
    return found


class Provider:
    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.headers: list[Mapping[str, str]] = []
        self.answer: tuple[int, dict[str, Any]] = (200, {"access_token": "for tickets", "expires_in": 100})

    async def fetch(self, request: OAuthRequest) -> OAuthResponse:
        if ".well-known" in request.url:
            document = {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token"}
            return OAuthResponse(200, json.dumps(document).encode())
        self.asked.append(parse_qs((request.body or b"").decode()))
        self.headers.append(request.headers)
        return OAuthResponse(self.answer[0], json.dumps(self.answer[1]).encode())


@pytest.mark.requirement("team.identity")
async def test_the_users_token_is_exchanged_at_its_provider_for_one_for_the_server() -> None:
    provider, now = Provider(), 0.0
    exchanges = TokenExchanges(AUTH, subjects(), provider.fetch)
    source = ExchangedToken(exchanges, ALICE, WANTED, {"x": "1"}, lambda: now)
    assert source.headers() is None
    found = await asyncio.gather(*(source.fetch() for _ in range(5)))
    assert found[0] == {"x": "1", "authorization": "Bearer for tickets"} and all(each is found[0] for each in found)
    (asked,) = provider.asked
    assert asked == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": ["inbound"],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "requested_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "audience": ["tickets"],
        "scope": ["read"],
    }
    assert provider.headers[0]["authorization"].startswith("Basic ")
    now = 95.0
    assert source.headers() is None, "it is exchanged again before it ends"
    await source.fetch()
    assert len(provider.asked) == 2


async def test_a_token_that_the_server_refuses_is_exchanged_once_more() -> None:
    provider = Provider()
    source = ExchangedToken(TokenExchanges(AUTH, subjects(), provider.fetch), ALICE, WANTED, {})
    sent = await source.fetch()
    assert await source.refused(CredentialRefusal(REFUSED, "", sent))
    assert await source.refused(CredentialRefusal(REFUSED, "", sent)), "another request has seen to it"
    assert len(provider.asked) == 2


async def test_an_exchanged_token_is_used_only_with_the_token_it_was_exchanged_for() -> None:
    provider, kept = Provider(), subjects("of all groups")
    source = ExchangedToken(TokenExchanges(AUTH, kept, provider.fetch), ALICE, WANTED, {})
    first = await source.fetch()
    kept.keep(ALICE, SubjectToken("of none", ISSUER, time.time() + 60))
    assert source.headers() is None
    other = await source.fetch()
    assert [asked["subject_token"] for asked in provider.asked] == [["of all groups"], ["of none"]]
    kept.keep(ALICE, SubjectToken("of all groups", ISSUER, time.time() + 60))
    assert source.headers() is first is not other
    for number in range(MAX_EXCHANGED_TOKENS):
        kept.keep(ALICE, SubjectToken(f"refreshed {number}", ISSUER, time.time() + 60))
        await source.fetch()
    assert len(source._made) == MAX_EXCHANGED_TOKENS


async def test_a_waiting_request_keeps_its_own_credentials() -> None:
    """Another token of the same user comes meanwhile, with other groups."""
    identities, kept, arrived = Identities(), SubjectTokens(), asyncio.Event()

    async def come(token: str, *groups: str) -> tuple[list[str], str]:
        identities.remember(Identity(principal=ALICE, groups=frozenset(groups)))
        kept.keep(ALICE, SubjectToken(token, ISSUER, time.time() + 60))
        await arrived.wait()
        return sorted(identities.of_request(ALICE).groups), kept.of(ALICE).token

    requests = [asyncio.ensure_future(come(*each)) for each in (("a", "admins"), ("b",), ("c", "dev"))]
    await asyncio.sleep(0)
    arrived.set()
    assert await asyncio.gather(*requests) == [(["admins"], "a"), ([], "b"), (["dev"], "c")]
    assert identities.of_request(ALICE).groups == {"dev"} and kept.of(ALICE).token == "c", "of no request: the latest"


@pytest.mark.parametrize(
    ("principal", "auth", "answer", "said"),
    [
        ("key", AUTH, None, "yours is not one of an identity provider"),
        (ALICE, None, None, "needs `clientId` and `clientSecret`"),
        (ALICE, AUTH, (400, {"error": "invalid_target"}), "refused"),
        (ALICE, AUTH, (500, {}), "did not answer"),
        (ALICE, AUTH, (200, {}), "issued no token"),
    ],
)
async def test_without_a_token_for_the_server_the_call_says_why(
    principal: str, auth: AuthConfig | None, answer: tuple[int, dict[str, Any]] | None, said: str
) -> None:
    provider = Provider()
    provider.answer = answer or provider.answer
    source = ExchangedToken(TokenExchanges(auth, subjects(), provider.fetch), principal, WANTED, {})
    with pytest.raises(DownstreamError, match=said):
        await source.fetch()


def test_a_token_that_has_ended_is_not_exchanged() -> None:
    kept = SubjectTokens()
    kept.keep(ALICE, SubjectToken("old", ISSUER, time.time() - 1))
    with pytest.raises(DownstreamError, match="has expired"):
        kept.of(ALICE)


@pytest.mark.processes
@pytest.mark.requirement("team.identity")
async def test_a_server_gets_the_user_identity_but_never_their_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    seen: list[Mapping[str, str]] = []
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
        "tools/list": {"tools": []},
    }

    async def answer(request: Request, reply: Reply) -> None:
        seen.append(request.headers)
        message = json.loads(request.body) if request.body else {}
        if "id" in message:
            result = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
            await reply.send(200, json.dumps(result).encode())
        else:
            await reply.send(202 if message else 405, b"")

    async with scripted_http(answer) as server:
        config = ServerConfig(
            name="server",
            url=server.url,
            transport="http",
            protocol="legacy",
            headers={"x-own": "1"},
            forward_identity=ForwardedIdentityConfig(),
        )
        box = ToolboxConfig(name="box", description="A box.", servers={"server": config})
        gateway = Gateway(WorkbenchConfig(path="c.json", toolboxes={"box": box}, auth=AUTH), Options(use_cache=False))
        entry = gateway.catalog.toolboxes["box"]["server"]
        async with asyncio.timeout(20), gateway.running():
            gateway.gate.identities().remember(Identity(principal=ALICE, groups=frozenset({"dev"})))
            await gateway.runtime.pool.connection(entry, Caller(ALICE, "legacy")).ensure_listed()
        keys = KeySet.import_key_set(json.loads(gateway.runtime.identity_assertions().jwks()))
    token = jwt.decode(seen[0]["x-workbench-identity"], keys)
    assert (token.claims["sub"], token.claims["groups"]) == (ALICE, ["dev"])
    assert (token.claims["aud"], token.claims["iss"]) == (server.url, AUTH.public_url)
    assert all(headers["x-own"] == "1" and "authorization" not in headers for headers in seen)


def test_headers_with_an_assertion_are_reused_while_the_inner_ones_are_fixed() -> None:
    inner = FixedHeaders({"A": "1"})
    source = AssertedIdentity(inner, "x-identity", lambda: Identity(principal=ALICE), lambda of, at: "signed")
    assert source.headers() == {"a": "1", "x-identity": "signed"} and source.headers() is source.headers()


@pytest.mark.requirement("team.principals")
@pytest.mark.parametrize(
    ("serving", "file"),
    [
        ("https://10.0.0.1:8443/mcp", {}),
        ("http://127.0.0.1:8420/mcp", {"auth": AUTH}),
        ("http://127.0.0.1:8420/mcp", {"trusted_proxy": ProxyConfig(peers=("127.0.0.1",), secret="s")}),
    ],
)
async def test_users_elsewhere_are_shown_no_page_that_another_could_follow(serving: str, file: dict[str, Any]) -> None:
    config = ServerConfig(name="server", url="https://server.example.com/mcp", transport="http")
    box = ToolboxConfig(name="box", description="A box.", servers={"server": config})
    gateway = Gateway(WorkbenchConfig(path="c.json", toolboxes={"box": box}, **file), Options(use_cache=False))
    gateway._serving = serving
    entry = gateway.catalog.toolboxes["box"]["server"]
    with pytest.raises(DownstreamError, match="connected over the network"):
        await gateway.sign_ins().begin_sign_in(entry, ALICE)
    assert gateway.sign_ins().target(entry, "alice").command.endswith("--as alice")
    assert "--as" not in gateway.sign_ins().target(entry, "default").command
