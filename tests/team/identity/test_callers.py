"""The authenticator of an endpoint: which proof counts, and what somebody is told who has none."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.auth_settings import AuthConfig, IssuerConfig, ProxyConfig
from mcp_workbench.engine.transport.http.server.authentication import AuthenticationChallenge
from mcp_workbench.engine.transport.http.server.endpoint import OpenStream
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.shared_timer import SharedTimer
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.identity.callers import Callers, CallerSettings, hosts_of, metadata_pages, metadata_url
from mcp_workbench.team.identity.identities import Identities
from mcp_workbench.team.identity.introspection import MAX_REQUESTS_PER_PEER
from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce
from mcp_workbench.team.identity.unix_users import UnixUsers
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import initialize, modern, modern_headers, written
from tests.engine.transport.http.server.test_endpoint_open_streams import Writer
from tests.team.identity_provider import AUDIENCE, ISSUER, Provider

PROXY = ProxyConfig(peers=("10.0.0.0/8", "2001:db8::5"), secret="s3cret", groups_header="x-groups")


def callers(provider: Provider | None = None, identities: Identities | None = None, **settings: Any) -> Callers:
    provider = provider or Provider()
    remember = (Identities() if identities is None else identities).remember
    return Callers(CallerSettings(**settings), remember, provider.fetch, provider.start_task)


def auth(*issuers: IssuerConfig) -> AuthConfig:
    return AuthConfig(public_url=AUDIENCE, issuers=issuers or (IssuerConfig(issuer=ISSUER),))


def arrived(peer: str = "192.0.2.1", names: tuple[str, ...] = (), **headers: str) -> RequestHead:
    head = RequestHead("POST", "/mcp", peer)
    head.peer_names = names
    head.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return head


def challenge(found: object) -> str:
    assert isinstance(found, AuthenticationChallenge), found
    return found.www_authenticate.decode()


@pytest.mark.requirement("team.keys")
def test_a_key_is_its_name_and_its_limits(tmp_path: Path) -> None:
    folder = KeyFolder(str(tmp_path / "keys"))
    token = folder.create("alice", toolboxes=("dev",))
    identities = Identities()
    rules = callers(identities=identities, token="secret", keys=KeysInForce(folder))

    assert rules.authenticate(arrived(authorization=f"Bearer {token}")) == "alice"
    assert identities.of("alice").toolboxes == ("dev",)
    assert rules.authenticate(arrived(authorization="bearer secret")) == "default"
    assert 'error="invalid_token"' in challenge(rules.authenticate(arrived(authorization=f"Bearer {token}x")))
    assert "error" not in challenge(rules.authenticate(arrived()))
    assert "error" not in challenge(rules.authenticate(arrived(authorization=f"Basic {token}")))
    assert not rules.depends_on_peer


@pytest.mark.requirement("team.challenge")
async def test_a_request_without_a_token_gets_the_metadata_address() -> None:
    provider = Provider()
    rules = callers(provider, auth=auth(IssuerConfig(issuer=ISSUER, scopes=("mcp:use", "mcp:list"))))
    told = challenge(rules.authenticate(arrived()))
    assert f'resource_metadata="{metadata_url(AUDIENCE)}"' in told and 'scope="mcp:use mcp:list"' in told
    assert "error" not in told

    found = rules.authenticate(arrived(authorization=f"Bearer {provider.token(iss='https://evil.example')}"))
    told = challenge(found)
    assert 'error="invalid_token"' in told and "resource_metadata" in told
    assert 'error_description="this token is from another issuer"' in told


@pytest.mark.requirement("team.challenge")
async def test_a_missing_scope_is_a_403_that_names_it() -> None:
    provider = Provider()
    provider.clock.wall = time.time()
    rules = callers(provider, auth=auth(IssuerConfig(issuer=ISSUER, scopes=("mcp:use",))))
    later = rules.authenticate(arrived(authorization=f"Bearer {provider.token()}"))
    assert isinstance(later, asyncio.Future)
    found = await later
    assert isinstance(found, AuthenticationChallenge) and found.status == 403
    assert 'error="insufficient_scope"' in challenge(found) and 'scope="mcp:use"' in challenge(found)


async def test_a_provider_that_cannot_be_reached_is_no_reason_to_sign_in_again() -> None:
    provider = Provider()
    provider.status = 0
    rules = callers(provider, auth=auth())
    later = rules.authenticate(arrived(authorization=f"Bearer {provider.token()}"))
    assert isinstance(later, asyncio.Future)
    found = await later
    assert isinstance(found, AuthenticationChallenge) and found.status == 503


async def test_a_flood_of_opaque_tokens_from_one_address_leaves_others_their_places() -> None:
    provider = Provider()
    provider.clock.wall = time.time()
    provider.opaque["right"] = {"sub": "alice", "aud": AUDIENCE}
    provider.gate = asyncio.Event()
    issuer = IssuerConfig(issuer=ISSUER, introspection=f"{ISSUER}/introspect", client_id="we", client_secret="s3cret")
    rules = callers(provider, auth=auth(issuer))
    flood = [rules.authenticate(arrived("192.0.2.9", authorization=f"Bearer guess{n}")) for n in range(120)]
    pending = [each for each in flood if isinstance(each, asyncio.Future)]
    assert len(pending) == MAX_REQUESTS_PER_PEER
    assert {each.status for each in flood if isinstance(each, AuthenticationChallenge)} == {503}

    found = rules.authenticate(arrived("192.0.2.1", authorization="Bearer right"))
    assert isinstance(found, asyncio.Future)
    provider.gate.set()
    assert await found == f"{ISSUER}#alice"
    await asyncio.gather(*pending)

    slowed = arrived("192.0.2.9", authorization="Bearer guess")
    slowed.is_slowed = lambda peer: peer == "192.0.2.9"
    asked = len(provider.asked)
    later = rules.authenticate(slowed)
    assert isinstance(later, asyncio.Future)
    await asyncio.sleep(0)
    assert not later.done() and len(provider.asked) == asked, "its peer has failed too often to be asked for at once"
    for task in provider.tasks:
        task.cancel()
    assert isinstance(await later, AuthenticationChallenge)


async def test_a_cancelled_answer_does_not_disturb_the_check() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    rules = callers(provider, auth=auth())
    later = rules.authenticate(arrived(authorization=f"Bearer {provider.token()}"))
    assert isinstance(later, asyncio.Future)
    later.cancel()
    provider.gate.set()
    await asyncio.gather(*provider.tasks)


async def test_tokens_of_several_providers_are_distinguished() -> None:
    one, other = Provider(), Provider(issuer="https://other.example.com")
    for each in (one, other):
        each.clock.wall = time.time()
    providers = {one.issuer: one, other.issuer: other}

    async def fetch(request: Any) -> Any:
        owner = next(each for name, each in providers.items() if request.url.startswith(name))
        return await owner.fetch(request)

    issuers = tuple(IssuerConfig(issuer=name) for name in providers)
    rules = Callers(CallerSettings(auth=auth(*issuers)), lambda identity: None, fetch, one.start_task)
    for provider in (one, other):
        later = rules.authenticate(arrived(authorization=f"Bearer {provider.token()}"))
        assert isinstance(later, asyncio.Future) and await later == f"{provider.issuer}#alice"
    forged = one.token(iss=other.issuer)
    assert isinstance(rules.authenticate(arrived(authorization=f"Bearer {forged}")), AuthenticationChallenge)


# ── the proxy ──


@pytest.mark.requirement("team.proxy")
@pytest.mark.parametrize("peer", ["10.1.2.3", "2001:db8::5"])
def test_the_proxy_header_identifies_the_caller(peer: str) -> None:
    identities = Identities()
    rules = callers(identities=identities, proxy=PROXY)
    head = arrived(peer, x_forwarded_user="alice", x_proxy_secret="s3cret", x_groups="dev, ops,,")
    assert rules.authenticate(head) == "proxy#alice"
    assert identities.of("proxy#alice").groups == {"dev", "ops"}
    assert rules.depends_on_peer and "x-forwarded-user" in rules.header_names


@pytest.mark.requirement("team.proxy")
@pytest.mark.parametrize(
    "head",
    [
        arrived("192.0.2.1", x_forwarded_user="alice", x_proxy_secret="s3cret"),
        arrived("", x_forwarded_user="alice", x_proxy_secret="s3cret"),
        arrived("uid:0", x_forwarded_user="alice", x_proxy_secret="s3cret"),
        arrived("2001:db8::6", x_forwarded_user="alice", x_proxy_secret="s3cret"),
        arrived("2001:db8::/64", x_forwarded_user="alice", x_proxy_secret="s3cret"),
        arrived("10.1.2.3", x_forwarded_user="alice"),
        arrived("10.1.2.3", x_forwarded_user="alice", x_proxy_secret=""),
        arrived("10.1.2.3", x_forwarded_user="alice", x_proxy_secret="S3cret"),
        arrived("10.1.2.3", x_forwarded_user="", x_proxy_secret="s3cret"),
        arrived("10.1.2.3", x_forwarded_user="a\tb", x_proxy_secret="s3cret"),
        arrived("10.1.2.3", x_forwarded_user="a" * 300, x_proxy_secret="s3cret"),
        arrived("10.1.2.3", x_forwarded_user="\xff", x_proxy_secret="s3cret"),
        arrived("10.1.2.3", x_forwarded_user="a", x_proxy_secret="s3cret", x_groups=",".join("x" * 300)),
        arrived("10.1.2.3", x_proxy_secret="s3cret"),
    ],
)
def test_from_anybody_else_the_header_means_nothing(head: RequestHead) -> None:
    rules = callers(proxy=PROXY, token="secret")
    if "x-groups" in head.headers:
        head.headers["x-groups"] = "x" * 300
    assert isinstance(rules.authenticate(head), AuthenticationChallenge)
    head.headers["authorization"] = "Bearer secret"
    named = head.headers.get("x-forwarded-user")
    if not (named is not None and head.headers.get("x-proxy-secret") == "s3cret" and head.peer.startswith("10.")):
        assert rules.authenticate(head) == "default", "and a token is as good as without it"


def test_a_name_may_be_in_any_script() -> None:
    name = "Zoë".encode().decode("latin-1")
    head = arrived("10.0.0.1", x_forwarded_user=name, x_proxy_secret="s3cret")
    assert callers(proxy=PROXY).authenticate(head) == "proxy#Zoë"


def test_a_secret_may_have_any_letters() -> None:
    rules = callers(proxy=ProxyConfig(peers=("10.0.0.1",), secret="schlüssel"))
    written = "schlüssel".encode().decode("latin-1")
    assert rules.authenticate(arrived("10.0.0.1", x_forwarded_user="a", x_proxy_secret=written)) == "proxy#a"
    for wrong in ("schl\xfcssel", "schlssel", "\xff"):
        head = arrived("10.0.0.1", x_forwarded_user="a", x_proxy_secret=wrong)
        assert isinstance(rules.authenticate(head), AuthenticationChallenge)


@pytest.mark.requirement("team.proxy")
def test_a_proxy_may_prove_itself_with_a_certificate() -> None:
    rules = callers(proxy=ProxyConfig(peers=("10.0.0.0/8",), certificate="proxy.example.com"))
    assert rules.authenticate(arrived("10.0.0.1", ("proxy.example.com",), x_forwarded_user="a")) == "proxy#a"
    for names in ((), ("other.example.com",)):
        assert isinstance(rules.authenticate(arrived("10.0.0.1", names, x_forwarded_user="a")), AuthenticationChallenge)
    both = callers(proxy=ProxyConfig(peers=("10.0.0.0/8",), certificate="proxy.example.com", secret="x"))
    head = arrived("10.0.0.1", ("proxy.example.com",), x_forwarded_user="a")
    assert isinstance(both.authenticate(head), AuthenticationChallenge), "where both are wanted, both are"


def test_a_proxy_may_be_a_user_of_this_machine() -> None:
    rules = callers(proxy=ProxyConfig(peers=("unix:4711",), secret="x"))
    assert rules.authenticate(arrived("uid:4711", x_forwarded_user="a", x_proxy_secret="x")) == "proxy#a"
    assert isinstance(
        rules.authenticate(arrived("uid:4712", x_forwarded_user="a", x_proxy_secret="x")), AuthenticationChallenge
    )
    with pytest.raises(ConfigError, match="there is no user"):
        callers(proxy=ProxyConfig(peers=("unix:nobody-of-this-name",), secret="x"))


@pytest.mark.requirement("team.proxy")
@pytest.mark.parametrize("uid", [4711, os.geteuid()])
@pytest.mark.parametrize("headers", [{}, {"x_forwarded_user": "a"}, {"x_forwarded_user": "a", "x_proxy_secret": "y"}])
def test_a_proxied_request_without_a_user_is_not_the_proxys_own(uid: int, headers: dict[str, Any]) -> None:
    """Whoever reaches the proxy would otherwise be the user that it runs as."""
    proxy = ProxyConfig(peers=(f"unix:{uid}",), secret="x")
    rules = callers(proxy=proxy, users=UnixUsers(["4711", "4712"]), token="secret")
    found = rules.authenticate(arrived(f"uid:{uid}", **headers))
    assert isinstance(found, AuthenticationChallenge) and found.status == 401 and "error" not in challenge(found)
    assert rules.authenticate(arrived(f"uid:{uid}", authorization="Bearer secret", **headers)) == "default"
    assert rules.authenticate(arrived(f"uid:{uid}", x_forwarded_user="a", x_proxy_secret="x")) == "proxy#a"
    assert rules.authenticate(arrived("uid:4712", **headers)) == "unix#4712", "others are who they are"


# ── users of this machine ──


@pytest.mark.requirement("team.unix")
def test_on_a_unix_socket_the_kernel_identifies_the_caller() -> None:
    rules = callers(users=UnixUsers(["4711"]), token="secret")
    assert rules.authenticate(arrived(f"uid:{os.geteuid()}")) == "local"
    assert rules.authenticate(arrived("uid:4711")) == "unix#4711"
    assert "error" not in challenge(rules.authenticate(arrived("uid:4712")))
    assert rules.authenticate(arrived("uid:4712", authorization="Bearer secret")) == "default"
    assert rules.depends_on_peer


# ── what clients find out by themselves ──


@pytest.mark.requirement("team.challenge")
@pytest.mark.parametrize(
    ("public", "expected"),
    [
        ("https://t.example.com/mcp", "https://t.example.com/.well-known/oauth-protected-resource/mcp"),
        ("https://t.example.com/", "https://t.example.com/.well-known/oauth-protected-resource"),
        ("https://t.example.com", "https://t.example.com/.well-known/oauth-protected-resource"),
        ("https://t.example.com:8443/a/mcp", "https://t.example.com:8443/.well-known/oauth-protected-resource/a/mcp"),
    ],
)
def test_metadata_lies_before_the_path(public: str, expected: str) -> None:
    assert metadata_url(public) == expected


@pytest.mark.processes
async def test_metadata_is_there_for_anybody_at_path_and_root_and_says_the_same_to_everyone() -> None:
    settings = auth(IssuerConfig(issuer=ISSUER, scopes=("mcp:use",)), IssuerConfig(issuer="https://other.example.com"))
    rules = callers(auth=settings)
    async with echoing(
        authenticator=rules, pages=metadata_pages(settings, "/mcp"), allow_hosts=tuple(hosts_of(settings))
    ) as rig:
        for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
            for host in ("127.0.0.1", "tools.example.com"):
                response = await rig.client.request("GET", path, host=host, x_forwarded_host="evil.example")
                assert response.status == 200 and "evil" not in response.body.decode()
                assert json.loads(response.body) == {
                    "resource": AUDIENCE,
                    "authorization_servers": [ISSUER, "https://other.example.com"],
                    "bearer_methods_supported": ["header"],
                    "resource_name": "MCP Workbench",
                    "scopes_supported": ["mcp:use"],
                }
        refused = await rig.client.request(body=initialize(), host="tools.example.com")
        assert refused.status == 401 and metadata_url(AUDIENCE) in refused.headers["www-authenticate"]


@pytest.mark.requirement("team.oauth")
@pytest.mark.processes
async def test_bad_input_over_the_wire() -> None:
    provider = Provider()
    provider.clock.wall = time.time()
    rules = callers(provider, auth=auth())
    async with echoing(authenticator=rules) as rig:
        good = await rig.client.request(
            body=modern("echo"), authorization=f"Bearer {provider.token()}", **modern_headers("echo")
        )
        assert good.json["result"]["principal"] == f"{ISSUER}#alice"
        long = await rig.client.request(body=initialize(), authorization="Bearer " + "x" * 30_000)
        assert long.status == 401 and "longer than 16 KiB" in long.headers["www-authenticate"]
        connection = await rig.client.connect()
        await connection.send(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer " + b"x" * 1_000_000)
        assert b" 431 " in await connection.closed()
        connection = await rig.client.connect()
        twice = f"authorization: Bearer {provider.token()}\r\n" * 2
        await connection.send(f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n{twice}content-length: 0\r\n\r\n".encode())
        response = await connection.response()
        assert response.status == 400 and b"more than once" in response.body


class TwoTokens:
    """One user with two tokens, which have different groups."""

    def __init__(self) -> None:
        provider = Provider()
        provider.clock.wall = time.time()
        self.identities = Identities()
        self.rules = callers(provider, self.identities, auth=auth())
        self.wide, self.narrow = (f"Bearer {provider.token(groups=[group])}" for group in ("wide", "narrow"))

    @property
    def groups(self) -> str:
        return ",".join(self.identities.of(f"{ISSUER}#alice").groups)


@pytest.mark.requirement("team.policy")
@pytest.mark.processes
@pytest.mark.parametrize("size", [10, 2_000_000])
async def test_a_request_is_served_with_the_groups_of_its_own_token(size: int) -> None:
    """Its body comes after a request of the same user that has others."""
    user = TwoTokens()
    async with echoing(authenticator=user.rules) as rig:
        headers = modern_headers("echo")
        for token in (user.narrow, user.wide):
            assert (await rig.client.request(body=modern("echo"), authorization=token, **headers)).status == 200
        slow = await rig.client.connect()
        whole = written("POST", "/mcp", modern("echo", {"text": "x" * size}), authorization=user.narrow, **headers)
        await slow.send(whole[:-5])
        await wait_until(lambda: user.groups == "narrow")
        assert (await rig.client.request(body=modern("echo"), authorization=user.wide, **headers)).status == 200
        assert user.groups == "wide"
        await slow.send(whole[-5:])
        assert (await slow.response()).status == 200
        assert user.groups == "narrow"


@pytest.mark.requirement("team.streams")
async def test_the_token_of_an_open_stream_does_not_decide_about_requests_with_another() -> None:
    user = TwoTokens()
    principal = f"{ISSUER}#alice"
    head = arrived(authorization=user.wide)
    later = user.rules.authenticate(head)
    assert isinstance(later, asyncio.Future)
    head.principal = str(await later)
    writer = Writer()
    timer: SharedTimer[OpenStream] = SharedTimer(3600.0)
    stream = OpenStream(head, writer, user.rules.authenticate, timer)  # type: ignore[arg-type]
    assert user.rules.authenticate(arrived(authorization=user.narrow)) == principal and user.groups == "narrow"
    stream.on_timer(0.0)
    assert user.groups == "narrow" and not writer.is_over
    assert user.rules.authenticate(head) == principal and user.groups == "wide", "a request with the same head counts"
    timer.stop()


def test_open_stream_is_no_arrival_of_its_user(tmp_path: Path) -> None:
    folder = KeyFolder(str(tmp_path / "keys"))
    token = folder.create("alice")
    asked: list[str] = []
    settings = CallerSettings(keys=KeysInForce(folder))
    rules = Callers(settings, Identities().remember, Provider().fetch, Provider().start_task, asked.append)
    head = arrived(authorization=f"Bearer {token}")
    head.principal = "alice"
    assert rules.authenticate(head) == "alice" and asked == ["alice"]
    assert rules.authenticate(head.for_stream()) == "alice" and asked == ["alice"]


@pytest.mark.parametrize(
    ("peer", "secret", "written", "origin"),
    [
        ("192.0.2.1", "s", "198.51.100.7", "198.51.100.7"),
        ("192.0.2.1", "s", "10.0.0.1, 198.51.100.7", "198.51.100.7"),
        ("192.0.2.1", "s", "[2001:db8::1]", "2001:db8::1"),
        ("192.0.2.1", "s", "unknown", "192.0.2.1"),
        ("192.0.2.1", "wrong", "198.51.100.7", "192.0.2.1"),
        ("192.0.2.9", "s", "198.51.100.7", "192.0.2.9"),
    ],
)
def test_only_the_proxy_says_where_a_request_came_from(peer: str, secret: str, written: str, origin: str) -> None:
    proxy = ProxyConfig(peers=("192.0.2.1",), secret="s", address_header="x-forwarded-for")
    found = callers(proxy=proxy)
    assert "x-forwarded-for" in found.header_names
    head = arrived(peer, x_proxy_secret=secret, x_forwarded_for=written)
    found.authenticate(head)
    assert head.origin == origin
