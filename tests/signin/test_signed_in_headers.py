"""Tokens that last: refreshed in time, once for everybody, across restarts and processes, and never lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import signed_in_headers
from mcp_workbench.signin.back_off import FIRST_BACK_OFF_DELAY
from mcp_workbench.signin.flow_io import NotNow, SignInFailed
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.store import SignInRecord, lock_name
from tests.signin.authority import SignInSetup, another, sign_in_setup

pytestmark = pytest.mark.processes


def due(record: SignInRecord) -> SignInRecord:
    """The same, with a token that should be refreshed now."""
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() + 100)


def over(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() - 1)


async def test_sign_in_once_and_call(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        with pytest.raises(SignInNeeded) as needed:
            await at.call()
        assert "mcp-workbench auth login files" in (needed.value.hint or "")
        await at.log_in()
        assert await at.call() == 200
        assert len(at.authority.registrations) == 1


async def test_after_a_restart_a_stale_token_is_refreshed_without_a_browser(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        await at.change(over)
        restarted = another(at)
        assert await restarted.call() == 200
        assert (at.authority.refreshes, len(at.authority.authorizations)) == (1, 1)
        assert at.authority.token_requests[-1]["refresh_token"] == "refresh-1"


async def test_a_long_lived_token_without_a_refresh_token_is_simply_used(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, gives_refresh_tokens=False, ttl=365 * 86400) as at:
        await at.log_in()
        await at.change(lambda record: replace(record, obtained_at=0.0))
        assert await at.call() == 200
        assert at.authority.refreshes == 0


async def test_a_refreshed_token_that_is_refused_too_ends_in_a_sign_in_and_no_loop(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.refuses_all = True
        for _ in range(3):
            with pytest.raises(SignInNeeded):
                await at.call()
        assert at.authority.refreshes == 1


async def test_every_refresh_answer_is_saved_before_it_is_used(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        for number in (2, 3, 4):
            await at.change(due)
            assert await at.call() == 200
            assert (at.record.access_token, at.record.refresh_token) == (f"access-{number}", f"refresh-{number}")


async def test_parallel_sign_ins_share_one_page_and_one_registration(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        begun = await asyncio.gather(*(at.sign_ins.begin(at.target) for _ in range(3)))
        assert len({sign_in.page.result() for sign_in in begun}) == 1
        assert len(at.authority.registrations) == 1


@pytest.mark.requirement("signin.one-refresh")
async def test_twenty_calls_at_the_moment_of_expiry_make_one_refresh(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        await at.change(over)
        assert await asyncio.gather(*(at.call() for _ in range(20))) == [200] * 20
        assert at.authority.refreshes == 1


async def test_calls_that_are_refused_side_by_side_make_one_refresh(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        at.authority.expire()
        assert await asyncio.gather(*(at.call() for _ in range(20))) == [200] * 20
        assert at.authority.refreshes == 1


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_refusal_beside_a_look_at_the_store_is_followed_by_a_refresh(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        sent = at.source.headers()
        assert sent is not None
        at.authority.expire()
        # A look that is under way, and that finds the same token again.
        over = asyncio.Event()
        at.source._task = asyncio.ensure_future(_until(over))
        refused = asyncio.create_task(at.source.refused(CredentialRefusal(401, "Bearer", sent)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not refused.done()
        over.set()
        assert await refused
        assert at.authority.refreshes == 1
        assert await at.call() == 200


@pytest.mark.requirement("signin.never-lost")
async def test_two_processes_at_the_moment_of_expiry_make_one_refresh(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        await at.change(over)
        others = [another(at) for _ in range(3)]
        assert await asyncio.gather(*(each.call() for each in [at, *others] for _ in range(5))) == [200] * 20
        assert at.authority.refreshes == 1


@pytest.mark.requirement("signin.never-lost")
async def test_a_cancelled_call_does_not_lose_a_rotated_token(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(due)
        call = asyncio.create_task(at.call())
        while not at.authority.refreshes:
            await asyncio.sleep(0)
        call.cancel()
        await at.source.settle()
        assert at.record.refresh_token == "refresh-2"
        assert await at.call() == 200


@pytest.mark.requirement("signin.never-lost")
async def test_a_passing_fault_clears_nothing_and_the_old_token_serves_on(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, token_faults=[]) as at:
        await at.log_in()
        await at.change(due)
        at.authority.token_faults = [(503, b"later")]
        assert await at.call() == 200
        assert at.record.refresh_token == "refresh-1"
        assert not at.record.ended


async def test_a_page_in_place_of_a_token_clears_nothing_either(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        for status, body in [(200, b"<html>Sign in to the Wi-Fi</html>"), (403, b"<html>blocked</html>"), (404, b"")]:
            await at.change(due)
            at.authority.token_faults = [(status, body)]
            assert await at.call() == 200
        assert (at.record.refresh_token, at.record.ended) == ("refresh-1", "")


async def test_after_a_failed_refresh_it_is_tried_again_before_the_token_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(lambda record: replace(record, obtained_at=time.time() - 900, expires_at=time.time() + 90))
        at.authority.token_faults = [(503, b"later")]
        assert await at.call() == 200
        let_time_pass(monkeypatch, 91)
        before = len(at.server.requests)
        assert await at.call() == 200
        assert "/mcp" not in [request.path for request in at.server.requests[before:-1]], "nothing was refused"
        assert at.authority.refreshes == 2


async def test_a_token_that_was_taken_for_a_while_is_refreshed_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        assert await at.call() == 200
        # The server forgets its tokens once more, much later.
        later = time.time() + signed_in_headers.NEW_TOKEN_GRACE + 1
        monkeypatch.setattr(time, "time", lambda: later)
        at.authority.expire()
        assert await at.call() == 200
        assert at.authority.refreshes == 2


async def test_a_passing_fault_with_a_token_that_is_over_fails_the_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.expire()
        await at.change(over)
        at.authority.token_faults = [(502, b"<html>")]
        with pytest.raises(NotNow):
            await at.call()
        let_time_pass(monkeypatch, FIRST_BACK_OFF_DELAY)
        assert await at.call() == 200


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error":"invalid_grant"}',
        b'{"error":"unauthorized_client","error_description":"refresh_token is invalid"}',
        b'{"error_code":"refresh_token_not_found"}',
        b'{"error":"invalid_request"}',
        b'{"error":"invalid_target"}',
    ],
)
async def test_dead_refresh_token_needs_a_sign_in_under_any_error_code(tmp_path: Path, answer: bytes) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(due)
        at.authority.token_faults = [(400, answer)]
        at.authority.expire()
        with pytest.raises(SignInNeeded):
            await at.call()
        with pytest.raises(SignInNeeded):
            await another(at).call()
        assert at.authority.refreshes == 1, "a dead token is not tried again"
        await at.log_in()
        assert await at.call() == 200
        assert len(at.authority.registrations) == 1


async def test_a_forgotten_client_is_registered_again_at_the_next_sign_in(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(due)
        at.authority.token_faults = [(401, b'{"error":"invalid_client"}')]
        at.authority.expire()
        with pytest.raises(SignInNeeded):
            await at.call()
        await at.log_in()
        assert (await at.call(), len(at.authority.registrations)) == (200, 2)


async def test_a_refresh_token_that_is_not_returned_is_kept(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, rotates=False) as at:
        await at.log_in()
        for _ in range(2):
            await at.change(due)
            assert await at.call() == 200
        assert at.record.refresh_token == "refresh-1"


@pytest.mark.parametrize("life", [None, -5, "soon", True, 1e300])
async def test_a_life_that_is_missing_or_nonsense_means_until_refused(tmp_path: Path, life: object) -> None:
    async with sign_in_setup(tmp_path, token_answer={"expires_in": life}) as at:
        await at.log_in()
        assert at.record.expires_at is None
        assert await at.call() == 200
        at.authority.expire()
        assert await at.call() == 200
        assert at.authority.refreshes == 1


@pytest.mark.parametrize("answer", [{"access_token": ""}, {"access_token": None}, {"ok": False}])
async def test_an_answer_without_a_usable_token_is_never_saved(tmp_path: Path, answer: dict[str, object]) -> None:
    async with sign_in_setup(tmp_path, token_answer=answer) as at:
        with pytest.raises(SignInFailed):
            await at.log_in()
        assert at.sign_ins.store.read().records == []


async def test_header_is_bearer_for_any_token_type(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, token_answer={"token_type": "bearer"}) as at:
        await at.log_in()
        await at.call()
        assert at.server.requests[-1].headers["authorization"] == "Bearer access-1"


async def test_a_refresh_uses_the_stored_client_and_endpoint_and_looks_nothing_up(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        at.authority.metadata = at.authority.resource_metadata = None
        await at.change(due)
        assert await another(at).call() == 200
        asked = at.authority.token_requests[-1]
        assert (asked["client_id"], asked["resource"]) == ("client-1", at.authority.url)


@pytest.mark.requirement("signin.principals")
async def test_one_principal_never_gets_the_token_of_another(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        bob = another(at, "bob")
        with pytest.raises(SignInNeeded):
            await bob.call()
        await bob.log_in()
        assert await bob.call() == 200
        assert {request.headers.get("authorization") for request in at.server.requests[-1:]} == {"Bearer access-2"}
        assert at.record.access_token == "access-1"


@pytest.mark.requirement("signin.principals")
async def test_two_principals_at_the_moment_of_expiry_refresh_each_for_themselves(tmp_path: Path) -> None:
    """In one process, at one server, side by side: what waits for one refresh is not served by the other's."""
    async with sign_in_setup(tmp_path) as at:
        people = {}
        for name in ("alice", "bob"):
            target = SignInTarget(name, at.authority.url, None, "mcp-workbench auth login files")
            source = at.sign_ins.source(target, {"x-who": name})
            people[name] = SignInSetup(at.authority, at.server, at.client, at.sign_ins, target, source)
            await people[name].log_in()
            await people[name].change(over)
        at.authority.expire()
        before = len(at.server.requests)
        calls = [each.call() for _ in range(10) for each in people.values()]
        assert await asyncio.gather(*calls) == [200] * 20
        assert at.authority.refreshes == 2
        for name, person in people.items():
            sent = [each.headers for each in at.server.requests[before:] if each.headers.get("x-who") == name]
            assert {headers["authorization"] for headers in sent} == {f"Bearer {person.record.access_token}"}
        assert lock_name("alice", at.authority.url) != lock_name("bob", at.authority.url)


async def test_signing_out_affects_only_that_principal(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        bob = another(at, "bob")
        await bob.log_in()
        await bob.sign_ins.sign_out(bob.target)
        assert await at.call() == 200
        assert at.authority.revoked == ["refresh-2"]
        with pytest.raises(SignInNeeded):
            await bob.call()


async def test_two_accounts_at_one_address_are_two_sign_ins(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        work = another(at, settings=OAuthConfig(account="work"))
        with pytest.raises(SignInNeeded):
            await work.call()
        await work.log_in()
        assert (at.record.access_token, work.record.access_token) == ("access-1", "access-2")


async def test_signing_out_revokes_and_forgets(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        _, is_revoked = await at.sign_ins.sign_out(at.target)
        assert (is_revoked, at.authority.revoked) == (True, ["refresh-1"])
        with pytest.raises(SignInNeeded):
            await at.call()
        await at.log_in()
        assert len(at.authority.registrations) == 1, "the registration stays"


async def test_another_process_uses_the_stored_sign_in(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await another(at).call() == 200


async def test_more_scopes_are_asked_for_once_together_with_the_old_ones(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, challenge='Bearer scope="read"', needed_scope="write") as at:
        with pytest.raises(SignInNeeded):
            await at.call()
        await at.log_in()
        with pytest.raises(SignInNeeded) as needed:
            await at.call()
        assert "allow more (write)" in needed.value.message
        await at.log_in()
        assert at.authority.authorizations[-1]["scope"] == "read write"
        assert await at.call() == 200


async def test_scopes_that_were_asked_for_and_not_given_are_not_asked_for_again(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, needed_scope="admin", resource_metadata={"scopes_supported": ["admin"]}) as at:
        await at.log_in()
        at.authority.valid = dict.fromkeys(at.authority.valid, "")
        assert await at.call() == 403


@pytest.mark.requirement("signin.machines")
async def test_a_machine_signs_in_by_itself_and_again_when_its_token_ends(tmp_path: Path) -> None:
    settings = OAuthConfig(client_id="robot", client_secret="s3cret!", grant="client_credentials")
    async with sign_in_setup(tmp_path, settings) as at:
        assert await at.call() == 200
        at.authority.expire()
        assert await at.call() == 200
        basic = at.authority.token_headers[-1]["authorization"]
        assert basic.startswith("Basic ")
        assert "client_id" not in at.authority.token_requests[-1]


async def test_a_large_token_is_stored(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, token_answer={"access_token": "x" * 6000}) as at:
        await at.log_in()
        at.authority.valid["x" * 6000] = ""
        assert await at.call() == 200


def ports(at: SignInSetup) -> list[str]:
    return [asked["redirect_uri"] for asked in at.authority.authorizations]


async def test_the_port_of_the_callback_stays_and_so_does_the_registration(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.log_in()
        assert len(set(ports(at))) == 1
        assert len(at.authority.registrations) == 1


async def test_two_servers_at_one_address_share_a_sign_in_and_keep_their_own_headers(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        other = replace_source(at, {"x-project": "two"})
        assert [await at.call(), await other.call()] == [200, 200]
        seen = [request.headers.get("x-project") for request in at.server.requests[-2:]]
        assert sorted(map(str, seen)) == ["None", "two"]


def replace_source(at: SignInSetup, base: dict[str, str]) -> SignInSetup:
    return SignInSetup(at.authority, at.server, at.client, at.sign_ins, at.target, at.sign_ins.source(at.target, base))


def let_time_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


async def test_signing_out_elsewhere_reaches_running_workbenches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path, metadata={"revocation_endpoint": None}) as at:
        await at.log_in()
        assert await at.call() == 200
        other = another(at)
        await other.sign_ins.sign_out(other.target)
        let_time_pass(monkeypatch, signed_in_headers.STORE_CHECK_INTERVAL + 1)
        with pytest.raises(SignInNeeded):
            await at.call()
        assert "access-1" in at.authority.valid, "it would have been taken"


async def test_signing_in_elsewhere_as_another_user_takes_effect_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        await another(at).log_in()
        let_time_pass(monkeypatch, signed_in_headers.STORE_CHECK_INTERVAL + 1)
        assert await at.call() == 200
        assert at.server.requests[-1].headers["authorization"] == "Bearer access-2"
        assert at.authority.refreshes == 0


async def test_a_store_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        assert await at.call() == 200
        headers = at.source.headers()
        monkeypatch.setattr(at.sign_ins.store, "read", lambda: pytest.fail("it was read"))
        for _ in range(3):
            let_time_pass(monkeypatch, signed_in_headers.STORE_CHECK_INTERVAL + 1)
            assert await at.call() == 200
        assert at.source.headers() is headers, "and what was written of heads is still good"
