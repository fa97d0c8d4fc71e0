"""Servers as they are: what is tolerated, what is refused, and what the user is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import challenge
from mcp_workbench.signin.client_registration import register
from mcp_workbench.signin.discovery import discover
from mcp_workbench.signin.flow_io import OAuthResponse, SignInFailed
from mcp_workbench.signin.profiles import known, profile_for
from mcp_workbench.signin.store_location import StoreUnusable
from tests.signin.authority import another, sign_in_setup

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "header",
    [
        'Bearer resource_metadata="https://a/m", scope="one two"',
        'Bearer resource_metadata=https://a/m,scope="one two"',
        'Bearer realm="x",resource_metadata="https://a/m",resource_metadata="https://b/m", scope="one two"',
        'Basic realm="x", Bearer authorization_uri="y", scope="one two", resource_metadata="https://a/m"',
    ],
)
def test_a_challenge_is_read_however_it_is_written(header: str) -> None:
    found = challenge.parse(header)
    assert (found.resource_metadata, found.scope) == ("https://a/m", ("one", "two"))


@pytest.mark.parametrize("said", ["", "Bearer", 'Bearer error="invalid_request"'])
async def test_a_challenge_that_names_nothing_is_enough(tmp_path: Path, said: str) -> None:
    async with sign_in_setup(tmp_path, challenge=said) as at:
        with pytest.raises(SignInNeeded):
            await at.call()
        await at.log_in()


async def test_where_registration_is_closed_the_error_says_which_app_to_create(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, metadata={"registration_endpoint": None}) as at:
        with pytest.raises(SignInFailed) as refused:
            await at.log_in()
        assert "does not let programs register" in refused.value.message
        assert "/callback" in (refused.value.hint or "")
        assert at.authority.authorizations == [], "no page is opened without a client"


async def test_a_secret_that_comes_with_none_is_used_where_it_is_demanded(tmp_path: Path) -> None:
    given = {"client_secret": "shh", "token_endpoint_auth_method": "none"}
    async with sign_in_setup(tmp_path, registration=given) as at:
        await at.log_in()
        assert at.authority.token_requests[-1]["client_secret"] == "shh"


async def test_registration_asks_for_refresh_tokens_as_a_native_client(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        asked = at.authority.registrations[0]
        assert (asked["application_type"], "refresh_token" in asked["grant_types"]) == ("native", True)


async def test_a_configured_secret_reaches_the_token_request(tmp_path: Path) -> None:
    settings = OAuthConfig(client_id="mine", client_secret="shh", token_auth_method="client_secret_post")
    async with sign_in_setup(tmp_path, settings) as at:
        await at.log_in()
        assert at.authority.token_requests[-1]["client_secret"] == "shh"
        assert "shh" not in Path(at.sign_ins.store.path).read_text()


async def test_a_sign_in_that_was_cancelled_after_registering_works_at_the_next_try(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.sign_ins.begin(at.target)
        await at.sign_ins.close()
        await another(at).log_in()
        assert len(at.authority.registrations) == 1


@pytest.mark.parametrize("wrong", [{"state": "other"}, {"iss": "https://evil.example.com"}, {"code": None}])
async def test_an_invalid_callback_does_not_sign_in(tmp_path: Path, wrong: dict[str, str | None]) -> None:
    async with sign_in_setup(tmp_path, callback=wrong) as at:
        sign_in = await at.sign_ins.begin(at.target)
        assert sign_in.task is not None
        from tests.signin.authority import follow

        await follow(sign_in.page.result())
        if "state" in wrong:
            assert not sign_in.task.done(), "it changes nothing"
        else:
            with pytest.raises(SignInFailed):
                await sign_in.wait()
        assert at.authority.token_requests == []


async def test_empty_scopes_of_the_resource_mean_none(tmp_path: Path) -> None:
    metadata = {"scopes_supported": ["everything"]}
    async with sign_in_setup(tmp_path, resource_metadata={"scopes_supported": []}, metadata=metadata) as at:
        await at.log_in()
        assert "scope" not in at.authority.authorizations[-1]


async def test_a_damaged_store_is_set_aside(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        store = Path(at.sign_ins.store.path)
        store.write_text("{half")
        await at.log_in()
        assert [path.read_text() for path in store.parent.glob("*.damaged-*")] == ["{half"]


async def test_a_store_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        store = Path(at.sign_ins.store.path)
        newer = store.read_text().replace('"format": 1', '"format": 2')
        assert newer != store.read_text()
        store.write_text(newer)
        with pytest.raises(StoreUnusable, match="newer workbench"):
            at.sign_ins.store.read()
        assert store.read_text() == newer and not list(store.parent.glob("*.damaged-*"))


async def test_a_store_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert os.stat(at.sign_ins.store.path).st_mode & 0o777 == 0o600
        os.chmod(at.sign_ins.store.path, 0o644)
        with pytest.raises(StoreUnusable):
            await another(at).call()


def test_every_profile_is_one_and_says_why() -> None:
    for entry in known():
        assert entry.why
        assert entry.source
        assert entry.date
        for host in entry.hosts:
            profile_for(f"https://{host.replace('*', 'x')}/mcp", None)


async def test_slack_is_asked_for_user_scopes(tmp_path: Path) -> None:
    slack = profile_for("https://mcp.slack.com/mcp", None)
    settings = OAuthConfig(
        client_id="mine",
        scopes=("search:read", "chat:write"),
        scope_param=slack.scope_param,
        scope_separator=slack.scope_separator,
    )
    user = {"access_token": "access-1", "scope": "search:read,chat:write"}
    async with sign_in_setup(tmp_path, settings, token_answer={"ok": True, "scope": "", "authed_user": user}) as at:
        await at.log_in()
        asked = at.authority.authorizations[-1]
        assert (asked["user_scope"], "scope" in asked) == ("search:read,chat:write", False)
        assert at.record.scopes == ("search:read", "chat:write")


async def test_a_token_that_stands_beside_a_bots_is_found(tmp_path: Path) -> None:
    nested = {"access_token": None, "ok": True, "authed_user": {"access_token": "access-1", "scope": "a,b"}}
    async with sign_in_setup(tmp_path, token_answer=nested) as at:
        await at.log_in()
        assert (at.record.scopes, await at.call()) == (("a", "b"), 200)


async def test_slack_says_with_200_that_a_grant_is_over(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        at.authority.token_faults = [(200, b'{"ok":false,"error":"invalid_refresh_token"}')]
        with pytest.raises(SignInNeeded):
            await at.call()
        assert "invalid_refresh_token" in at.record.ended


async def test_where_registering_takes_a_token_it_is_brought_and_goes_nowhere_else(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, OAuthConfig(initial_access_token="let-me-in")) as at:
        await at.log_in()
        assert await at.call() == 200
        with_it = [each.path for each in at.server.requests if "let-me-in" in each.headers.get("authorization", "")]
        assert with_it == ["/register"]
        assert "let-me-in" not in Path(at.sign_ins.store.path).read_text()


def test_a_server_that_says_nothing_of_oauth_offers_no_sign_in() -> None:
    flow = discover("https://tools.example/mcp", challenge.parse(""), None)
    found = None
    try:
        next(flow)
        while True:
            flow.send(OAuthResponse(404, b'{"jsonrpc":"2.0"}', "application/json"))
    except StopIteration as end:
        found = end.value
    assert found is not None and found.server.registration_endpoint == "https://tools.example/register"
    registering = register(
        found, found.server.registration_endpoint, "http://127.0.0.1:1/callback", "https://tools.example/mcp"
    )
    next(registering)
    with pytest.raises(SignInFailed) as refused:
        registering.send(OAuthResponse(404, b'{"jsonrpc":"2.0"}', "application/json"))
    assert "offers no sign-in" in str(refused.value) and "`headers`" in (refused.value.hint or "")
