"""Tokens, codes and secrets go where they are meant for and nowhere else, whatever servers say."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.transport.http.client.address import Address
from mcp_workbench.engine.transport.http.client.dialing import proxy_for
from mcp_workbench.engine.transport.http.client.http_client import HttpTarget
from mcp_workbench.errors import DownstreamError, SignInNeeded
from mcp_workbench.signin import flow
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.discovery import canonical
from mcp_workbench.signin.flow_io import AuthorizationRequest, OAuthRequest, OAuthResponse, SignInFailed
from mcp_workbench.signin.sign_in_target import SignInTarget
from tests.engine.transport.http.listening import Reply, Request, ScriptedHttp, scripted_http
from tests.signin.authority import Authority, SignInSetup, another, sign_in_setup
from tests.signin.test_signed_in_headers import due, over

pytestmark = pytest.mark.processes

SECRET = "s3cret-of-the-client"


def sent_to(server: ScriptedHttp) -> str:
    """Everything that somebody was sent."""
    return "".join(f"{request.path} {request.headers} {request.body!r}" for request in server.requests)


def configured(**settings: Any) -> OAuthConfig:
    return OAuthConfig(client_id="app", client_secret=SECRET, **settings)


# ── a token of one issuer or resource, and what proves who we are, sent to another ──


@pytest.mark.requirement("signin.never-elsewhere")
async def test_a_server_that_names_another_authorization_server_does_not_get_the_configured_secret(
    tmp_path: Path,
) -> None:
    evil = Authority()
    async with scripted_http(evil.handle) as server, sign_in_setup(tmp_path, configured()) as at:
        evil.origin = f"http://127.0.0.1:{server.port}"
        await at.log_in()
        at.authority.resource_metadata = {"authorization_servers": [evil.origin]}
        with pytest.raises(SignInFailed, match="now names another authorization server") as failed:
            await at.log_in()
        assert "`issuer`" in (failed.value.hint or "")
        assert SECRET not in sent_to(server) and evil.authorizations == []
        # The user says that it is right.
        moved = another(at, settings=configured(issuer=evil.origin))
        await moved.log_in()
        assert len(evil.token_requests) == 1


@pytest.mark.requirement("signin.never-elsewhere")
async def test_a_machine_does_not_take_its_secret_to_another_authorization_server(tmp_path: Path) -> None:
    evil = Authority()
    settings = configured(grant="client_credentials")
    async with scripted_http(evil.handle) as server, sign_in_setup(tmp_path, settings) as at:
        evil.origin = f"http://127.0.0.1:{server.port}"
        assert await at.call() == 200
        at.authority.resource_metadata = {"authorization_servers": [evil.origin]}
        at.authority.expire()
        with pytest.raises(SignInFailed, match="now names another authorization server"):
            await at.call()
        assert evil.token_requests == []


async def test_a_token_for_registering_is_not_taken_to_another_authorization_server(tmp_path: Path) -> None:
    evil = Authority()
    settings = OAuthConfig(initial_access_token="may-register")
    async with scripted_http(evil.handle) as server, sign_in_setup(tmp_path, settings) as at:
        evil.origin = f"http://127.0.0.1:{server.port}"
        await at.log_in()
        at.authority.resource_metadata = {"authorization_servers": [evil.origin]}
        with pytest.raises(SignInFailed, match="now names another authorization server"):
            await at.log_in()
        assert "may-register" not in sent_to(server)


@pytest.mark.requirement("signin.never-elsewhere")
@pytest.mark.parametrize(
    "after",
    [
        OAuthConfig(client_id="other-app", client_secret="new-secret"),
        configured(issuer="https://other.example.com"),
        configured(resource="https://other.example.com/mcp"),
        configured(grant="client_credentials", issuer="https://other.invalid"),
        None,
    ],
    ids=["client", "issuer", "resource", "grant", "removed"],
)
async def test_after_a_change_of_oauth_the_earlier_sign_in_is_neither_used_nor_refreshed(
    tmp_path: Path, after: OAuthConfig | None
) -> None:
    async with sign_in_setup(tmp_path, configured()) as at:
        await at.log_in()
        await at.change(due)
        changed = another(at)
        changed.target.settings = after
        changed.source.target = changed.target
        asked = len(at.authority.token_requests)
        with pytest.raises(DownstreamError):
            await changed.call()
        assert len(at.authority.token_requests) == asked
        assert "new-secret" not in sent_to(at.server)
        assert not any("authorization" in request.headers for request in at.server.requests if request.path == "/mcp")
        assert await at.call() == 200, "who has not changed anything goes on"


async def test_two_configurations_with_different_clients_share_a_process_and_no_sign_in(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, configured()) as at:
        target = SignInTarget("", at.authority.url, OAuthConfig(client_id="b", client_secret="b-secret"), "login b")
        other = SignInSetup(at.authority, at.server, at.client, at.sign_ins, target, at.sign_ins.source(target, {}))
        for each in (at, other):
            await each.log_in()
        assert at.source is not other.source
        for each in (at, other):
            await each.change(over)
        at.authority.expire()
        assert [await at.call(), await other.call()] == [200, 200]
        seen = [
            (asked["refresh_token"], headers["authorization"])
            for asked, headers in zip(at.authority.token_requests, at.authority.token_headers, strict=True)
            if asked["grant_type"] == "refresh_token"
        ]
        assert len({header for _, header in seen}) == len(seen) == 2
        assert {token for token, _ in seen} == {"refresh-1", "refresh-2"}
        await other.sign_ins.sign_out(other.target)
        assert at.record.client.id == "app", "who signs out signs the other out"


@pytest.mark.requirement("signin.never-elsewhere")
async def test_a_token_goes_to_the_address_that_it_is_for_and_to_no_other(tmp_path: Path) -> None:
    async def listen(request: Request, reply: Reply) -> None:
        await reply.send(401)

    async with sign_in_setup(tmp_path) as at, scripted_http(listen) as elsewhere:
        await at.log_in()
        for url in (f"http://127.0.0.1:{elsewhere.port}/mcp", f"{at.authority.origin}/mcp/other"):
            target = SignInTarget("", url, None, "mcp-workbench auth login files")
            moved = SignInSetup(at.authority, at.server, at.client, at.sign_ins, target, at.sign_ins.source(target, {}))
            before = len(at.server.requests)
            with pytest.raises((SignInNeeded, AssertionError)):
                assert await moved.call() == 200
            assert "access-1" not in sent_to(elsewhere)
            assert not any("authorization" in request.headers for request in at.server.requests[before:])


def test_a_key_in_an_address_is_not_shown_to_the_authorization_server() -> None:
    for url in ("https://ada:key@mcp.example.com/mcp", "https://mcp.example.com/mcp?api_key=key#part"):
        assert canonical(url) == "https://mcp.example.com/mcp"


# ── redirects that carry credentials to another origin ──


@pytest.mark.requirement("signin.never-elsewhere")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_redirects_elsewhere_does_not_take_the_token_along(
    tmp_path: Path, status: int, method: str
) -> None:
    async def collect(request: Request, reply: Reply) -> None:
        await reply.send(200, b"{}")

    async with scripted_http(collect) as evil, sign_in_setup(tmp_path) as at:
        await at.log_in()
        real = at.authority.handle

        async def handle(request: Request, reply: Reply) -> None:
            if request.path == "/mcp":
                await reply.send(status, location=f"http://127.0.0.1:{evil.port}/mcp")
            else:
                await real(request, reply)

        at.server._handler = handle
        with pytest.raises(DownstreamError, match="redirects"):
            await at.client.request(method, HttpTarget.of(at.target.url, at.source), {}, b"{}")
        assert evil.requests == []


@pytest.mark.requirement("signin.never-elsewhere")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_token_endpoint_that_redirects_elsewhere_does_not_take_the_refresh_token_along(
    tmp_path: Path, status: int
) -> None:
    async def collect(request: Request, reply: Reply) -> None:
        await reply.send(200, b'{"access_token": "evil"}')

    async with scripted_http(collect) as evil, sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(due)
        real = at.authority.handle

        async def handle(request: Request, reply: Reply) -> None:
            if request.path == "/token":
                await reply.send(status, location=f"http://127.0.0.1:{evil.port}/token")
            else:
                await real(request, reply)

        at.server._handler = handle
        assert await at.call() == 200, "the old token is good yet"
        assert evil.requests == []
        assert at.record.refresh_token == "refresh-1"


@pytest.mark.requirement("signin.never-elsewhere")
async def test_an_event_stream_that_names_another_origin_does_not_get_the_token(tmp_path: Path) -> None:
    from mcp_workbench.engine.transport.http.client.sse_transport import SseOwner, SseTransport

    async def collect(request: Request, reply: Reply) -> None:
        await reply.send(200, b"{}")

    async with scripted_http(collect) as evil, sign_in_setup(tmp_path) as at:
        await at.log_in()

        async def stream(request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(f"event: endpoint\ndata: http://127.0.0.1:{evil.port}/messages\n\n".encode())

        at.server._handler = stream
        target = HttpTarget.of(at.target.url, at.source)
        sse = SseTransport(at.client, target, 1024, cast(SseOwner, None))
        with pytest.raises(DownstreamError, match="another origin"):
            await sse.open()
        await sse.stop()
        assert evil.requests == [] and "access-1" in sent_to(at.server)


# ── plain `http` beyond loopback ──


@pytest.mark.requirement("signin.never-elsewhere")
async def test_signing_in_to_a_server_without_tls_is_refused() -> None:
    """Also where its metadata is encrypted: the challenge may name a place of its own."""
    attempt = flow.SignInRequest(
        url="http://mcp.example.com/mcp",
        challenge=Challenge(resource_metadata="https://mcp.example.com/metadata"),
        settings=configured(),
        redirect_uri="http://127.0.0.1:1/callback",
    )
    for steps in (flow.sign_in(attempt), flow.device_code(attempt), flow.client_credentials(attempt)):
        with pytest.raises(SignInFailed, match="which is not encrypted"):
            next(steps)


async def test_an_authorization_server_that_was_configured_with_plain_http_is_refused() -> None:
    settings = configured(issuer="http://auth.example.com", grant="client_credentials")
    steps = flow.client_credentials(flow.SignInRequest(url="https://mcp.example.com/mcp", settings=settings))

    def run() -> None:
        asked: OAuthRequest = next(steps)
        while True:
            assert asked.url.startswith("https://mcp.example.com/")
            asked = steps.send(OAuthResponse(404))

    with pytest.raises(SignInFailed, match="which is not encrypted"):
        run()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_requests_to_this_machine_bypass_the_proxy(host: str) -> None:
    environ = {"http_proxy": "http://proxy.example.com:3128", "all_proxy": "http://proxy.example.com:3128"}
    assert proxy_for(Address.parse(f"http://{host}:8080/mcp"), environ) is None
    assert proxy_for(Address.parse("http://mcp.example.com/mcp"), environ) is not None


# ── a server elsewhere that sends us around on this machine ──


def run_to_the_end(url: str, said: dict[str, dict[str, object]], settings: OAuthConfig | None = None) -> list[str]:
    """Sign in to a server of which this is said at these addresses; what was asked for, until it failed."""
    challenge = Challenge(resource_metadata="http://127.0.0.1:8080/shutdown" if "evil" in url else None)
    steps = flow.sign_in(
        flow.SignInRequest(url=url, challenge=challenge, settings=settings, redirect_uri="http://127.0.0.1:1/callback")
    )
    asked: list[str] = []
    step = next(steps)
    while isinstance(step, OAuthRequest):
        asked.append(step.url)
        found = said.get(step.url)
        step = steps.send(OAuthResponse(404) if found is None else OAuthResponse(200, json.dumps(found).encode()))
    return asked


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://evil.example.com/mcp", {}),
        (
            "https://mcp.example.com/mcp",
            {
                "https://mcp.example.com/.well-known/oauth-protected-resource/mcp": {
                    "authorization_servers": ["http://127.0.0.1:8080"]
                }
            },
        ),
        (
            "https://mcp.example.com/mcp",
            {
                "https://mcp.example.com/.well-known/oauth-authorization-server": {
                    "issuer": "https://mcp.example.com",
                    "authorization_endpoint": "https://mcp.example.com/authorize",
                    "token_endpoint": "https://mcp.example.com/token",
                    "registration_endpoint": "https://localhost:8080/shutdown",
                    "code_challenge_methods_supported": ["S256"],
                }
            },
        ),
    ],
    ids=["metadata", "authorization server", "endpoint"],
)
def test_a_server_elsewhere_does_not_send_us_around_on_this_machine(
    url: str, said: dict[str, dict[str, object]]
) -> None:
    with pytest.raises(SignInFailed, match="on this machine, but https://") as failed:
        run_to_the_end(url, said)
    assert "`issuer`" in (failed.value.hint or "")


def test_an_authorization_server_on_this_machine_may_be_configured() -> None:
    place = "http://127.0.0.1:8080/.well-known/oauth-authorization-server"
    with pytest.raises(SignInFailed, match="publishes no metadata"):
        run_to_the_end("https://mcp.example.com/mcp", {}, OAuthConfig(issuer="http://127.0.0.1:8080"))
    with pytest.raises(SignInFailed, match="has no sign-in page"):
        run_to_the_end(
            "https://mcp.example.com/mcp",
            {place: {"issuer": "http://127.0.0.1:8080", "token_endpoint": "http://127.0.0.1:8080/token"}},
            OAuthConfig(issuer="http://127.0.0.1:8080"),
        )


def test_every_address_from_elsewhere_records_its_source() -> None:
    """So that none of them is followed further inside than whoever named it."""
    server, issuer, endpoints = "https://mcp.example.com/mcp", "https://id.example.com", "https://api.example.net"
    said: dict[str, dict[str, object]] = {
        "https://meta.example.org/resource": {"authorization_servers": [issuer]},
        f"{issuer}/.well-known/oauth-authorization-server": {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{endpoints}/token",
            "registration_endpoint": f"{endpoints}/register",
            "code_challenge_methods_supported": ["S256"],
        },
        f"{endpoints}/register": {"client_id": "one"},
        f"{endpoints}/token": {"access_token": "a"},
    }
    challenge = Challenge(resource_metadata="https://meta.example.org/resource")
    callback = "http://127.0.0.1:1/callback"
    steps = flow.sign_in(flow.SignInRequest(url=server, challenge=challenge, redirect_uri=callback))
    named: dict[str, str | None] = {}
    answer: object = None
    with contextlib.suppress(StopIteration):
        while True:
            step = steps.send(answer)  # type: ignore[arg-type]
            answer = None
            if isinstance(step, OAuthRequest):
                named[step.url] = step.named_by
                answer = OAuthResponse(200, json.dumps(said[step.url]).encode())
            elif isinstance(step, AuthorizationRequest):
                answer = {"state": step.state, "code": "c"}
    assert named == {
        "https://meta.example.org/resource": server,
        f"{issuer}/.well-known/oauth-authorization-server": server,
        f"{endpoints}/register": issuer,
        f"{endpoints}/token": issuer,
    }
