"""Metadata that lies, callbacks that are not ours, clocks that differ: each has a clear text and loses nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import sign_ins
from mcp_workbench.signin.flow_io import NotNow, SignInFailed
from tests.engine.transport.http.listening import Reply, Request, scripted_http
from tests.signin.authority import Authority, SignInSetup, follow, sign_in_setup

pytestmark = pytest.mark.processes

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
LARGE = 10 * 1024 * 1024


async def refused(at: SignInSetup) -> str:
    """Why nobody was signed in; nothing was asked of the user, and nothing is kept."""
    with pytest.raises(SignInFailed) as failed:
        await at.log_in()
    assert at.authority.authorizations == []
    assert at.sign_ins.store.read().records == []
    assert failed.value.hint
    return failed.value.message


@pytest.mark.requirement("signin.discovery")
@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example.com"}, "names a different issuer: `https://evil.example.com`"),
        ({"issuer": None}, "names a different issuer"),
        ({"token_endpoint": "http://evil.example.com/token"}, "which is not encrypted"),
        ({"authorization_endpoint": "http://evil.example.com/authorize"}, "which is not encrypted"),
        ({"registration_endpoint": "http://evil.example.com/register"}, "which is not encrypted"),
        ({"token_endpoint": "javascript:alert(1)"}, "is not an address"),
        # What a program that hands addresses to a shell would run.
        ({"authorization_endpoint": "a:$(calc.exe)?response_type=code"}, "is not an address"),
        ({"authorization_endpoint": "file:///usr/bin/id"}, "is not an address"),
        ({"token_endpoint": "https://"}, "is not an address"),
        ({"token_endpoint": ["https://a"]}, "is not an address"),
        ({"code_challenge_methods_supported": None}, "does not support PKCE with S256"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        ({"authorization_endpoint": None}, "has no sign-in page"),
    ],
)
async def test_invalid_metadata_of_an_authorization_server_is_refused(
    tmp_path: Path, metadata: dict[str, Any], said: str
) -> None:
    async with sign_in_setup(tmp_path, metadata=metadata) as at:
        assert said in await refused(at)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"resource": "https://evil.example.com/mcp"}, "is for another resource, `https://evil.example.com/mcp`"),
        ({"authorization_servers": ["http://evil.example.com"]}, "which is not encrypted"),
        ({"authorization_servers": ["file:///etc/passwd"]}, "is not an address"),
    ],
)
async def test_invalid_metadata_of_a_resource_is_refused(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    async with sign_in_setup(tmp_path, resource_metadata=metadata) as at:
        assert said in await refused(at)


async def test_a_challenge_that_leads_to_plain_http_is_not_followed(tmp_path: Path) -> None:
    challenge = 'Bearer resource_metadata="http://evil.example.com/metadata"'
    async with sign_in_setup(tmp_path, challenge=challenge) as at:
        with pytest.raises(SignInNeeded):
            await at.call()
        assert "which is not encrypted" in await refused(at)


def instead(at: SignInSetup, path: str, answer: Any) -> None:
    """Have something else answered at one place."""
    real = at.authority.handle

    async def handle(request: Request, reply: Reply) -> None:
        await (answer(request, reply) if request.path.partition("?")[0] == path else real(request, reply))

    at.server._handler = handle


@pytest.mark.parametrize("path", [METADATA, RESOURCE])
async def test_metadata_without_end_is_not_read_to_its_end(tmp_path: Path, path: str) -> None:
    async with sign_in_setup(tmp_path) as at:
        instead(at, path, lambda request, reply: reply.send(200, b'{"a":"' + b"x" * LARGE + b'"}'))
        with pytest.raises(NotNow) as failed:
            await at.log_in()
        assert "cannot be read" in failed.value.message
        assert at.authority.authorizations == []


async def test_a_page_in_place_of_metadata_is_no_metadata(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        instead(at, METADATA, lambda request, reply: reply.send(200, b"<html>Welcome</html>", "text/html"))
        assert "publishes no metadata that can be used" in await refused(at)


async def test_metadata_nested_without_end_is_no_metadata(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        instead(at, METADATA, lambda request, reply: reply.send(200, b'{"token_endpoint":' * 50_000))
        assert "publishes no metadata that can be used" in await refused(at)


@pytest.mark.parametrize("path", [METADATA, "/register", "/token"])
async def test_a_redirect_to_another_origin_takes_nothing_along(tmp_path: Path, path: str) -> None:
    seen: list[Request] = []

    async def collect(request: Request, reply: Reply) -> None:
        seen.append(request)
        await reply.send(200, json.dumps({"issuer": "x", "token_endpoint": "https://evil.example.com"}).encode())

    async with scripted_http(collect) as evil, sign_in_setup(tmp_path) as at:
        target = f"http://127.0.0.1:{evil.port}/elsewhere"
        instead(at, path, lambda request, reply: reply.send(307, location=target))
        with pytest.raises(SignInFailed):
            await at.log_in()
        assert [request.method for request in seen if request.body] == [], "no code, no verifier, no secret"
        assert at.sign_ins.store.read().records == []


async def test_a_callback_counts_once_and_only_at_its_place(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        sign_in = await at.sign_ins.begin(at.target)
        asked = dict(parse_qsl(urlsplit(sign_in.url).query))
        state, callback = asked["state"], urlsplit(asked["redirect_uri"])

        def get(path: str, method: str = "GET") -> int:
            connection = http.client.HTTPConnection(callback.hostname or "", callback.port, timeout=10)
            connection.request(method, path)
            status = connection.getresponse().status
            connection.close()
            return status

        for path, method in [
            ("/", "GET"),
            ("/callback", "GET"),
            ("/callback?code=x", "GET"),
            ("/callback?code=x&state=", "GET"),
            (f"/callback?code=x&state={state[:-1]}", "GET"),
            (f"/callback?code=x&code=y&state={state}", "GET"),
            (f"/callback?code=x&state=wrong&state={state}", "GET"),
            (f"/callback?code=x&state={state}", "POST"),
            (f"/other?code=x&state={state}", "GET"),
        ]:
            assert await asyncio.to_thread(get, path, method) in (400, 404), path
            assert sign_in.task is not None
            assert not sign_in.task.done(), path
        await follow(sign_in.url)
        await sign_in.wait()
        assert len(at.authority.token_requests) == 1
        assert (
            sign_in.paste(f"{callback.geturl()}?code=again&state={state}") == "This sign-in has been answered already."
        )


async def test_declined_sign_in_returns_the_error_of_the_server(tmp_path: Path) -> None:
    said = {"code": None, "error": "access_denied", "error_description": "the user said no"}
    async with sign_in_setup(tmp_path, callback=said) as at:
        sign_in = await at.sign_ins.begin(at.target)
        await follow(sign_in.url)
        with pytest.raises(SignInFailed) as failed:
            await sign_in.wait()
        assert "refused the sign-in (access_denied: the user said no)" in failed.value.message
        assert at.authority.token_requests == []


async def test_a_missing_callback_times_out_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_ins, "BROWSER_SIGN_IN_TIMEOUT", 0.05)
    async with sign_in_setup(tmp_path) as at:
        sign_in = await at.sign_ins.begin(at.target)
        with pytest.raises(SignInFailed) as failed:
            await sign_in.wait()
        assert "the sign-in was not completed within" in failed.value.message
        assert "--new-client" in (failed.value.hint or "")
        monkeypatch.undo()
        await at.log_in()
        assert await at.call() == 200


@pytest.mark.parametrize("skew", [-86400.0, 86400.0])
async def test_a_clock_that_jumps_costs_at_most_a_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + skew)
        assert await at.call() == 200
        at.authority.expire()
        assert await at.call() == 200
        assert len(at.authority.authorizations) == 1
        assert at.authority.refreshes <= 2


async def test_a_token_that_the_server_holds_for_over_before_we_do_is_refreshed(tmp_path: Path) -> None:
    """Its clock is ahead of ours."""
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(lambda record: replace(record, expires_at=time.time() + 99_999))
        at.authority.expire()
        assert await at.call() == 200
        assert at.authority.refreshes == 1


# 2025-03-26: metadata at the server's own origin, or none at all.


async def test_a_server_of_2025_03_26_has_its_metadata_at_its_own_origin(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, resource_metadata=None, challenge="Bearer") as at:
        await at.log_in()
        assert await at.call() == 200
        assert at.authority.authorizations[0]["resource"] == at.authority.url


async def test_a_server_without_any_metadata_has_its_endpoints_at_the_usual_places(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, resource_metadata=None, metadata=None, challenge="") as at:
        await at.log_in()
        assert await at.call() == 200
        paths = [request.path.partition("?")[0] for request in at.server.requests]
        assert [path for path in paths if path in ("/register", "/authorize", "/token")] == [
            "/register",
            "/authorize",
            "/token",
        ]


async def test_a_passing_fault_is_not_taken_for_an_old_server(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        instead(at, RESOURCE, lambda request, reply: reply.send(503))
        with pytest.raises(NotNow):
            await at.log_in()
        assert at.authority.registrations == []


async def test_metadata_of_openid_connect_without_pkce_is_enough(tmp_path: Path) -> None:
    """Entra ID and Cognito: nothing in RFC 8414's place, and S256 without saying so."""
    async with sign_in_setup(tmp_path) as at:
        instead(at, METADATA, lambda request, reply: reply.send(404))
        real = at.server._handler
        document = {
            "issuer": at.authority.origin,
            "authorization_endpoint": f"{at.authority.origin}/authorize",
            "token_endpoint": f"{at.authority.origin}/token",
            "registration_endpoint": f"{at.authority.origin}/register",
        }

        async def handle(request: Request, reply: Reply) -> None:
            if request.path == "/.well-known/openid-configuration":
                await reply.send(200, json.dumps(document).encode())
            else:
                await real(request, reply)

        at.server._handler = handle
        await at.log_in()
        assert at.authority.authorizations[0]["code_challenge_method"] == "S256"


async def test_credentials_of_one_issuer_are_sent_to_no_other(tmp_path: Path) -> None:
    other = Authority()
    async with scripted_http(other.handle) as server, sign_in_setup(tmp_path) as at:
        other.origin = f"http://127.0.0.1:{server.port}"
        await at.log_in()
        # The server moves to another authorization server, and its tokens with it.
        at.authority.resource_metadata = {"authorization_servers": [other.origin]}
        at.authority.expire()
        at.authority.refresh_tokens.clear()
        with pytest.raises(SignInNeeded):
            await at.call()
        await at.log_in()
        assert (len(other.registrations), other.token_requests[0]["client_id"]) == (1, "client-1")
        sent = [request.body.decode() + str(request.headers) for request in server.requests]
        assert not any("refresh-1" in text or "access-1" in text for text in sent)


async def test_a_waived_issuer_is_only_waived_for_its_server(tmp_path: Path) -> None:
    metadata = {"issuer": "https://cf.example.com"}
    async with sign_in_setup(tmp_path, OAuthConfig(issuer_check="waive"), metadata=metadata) as at:
        await at.log_in()
        assert await at.call() == 200
        assert at.record.issuer == at.authority.origin, "credentials stay bound to what was asked"
