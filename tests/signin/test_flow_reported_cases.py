"""What broke in other clients, and must not here: 25 cases that were reported and mended somewhere, each with the test
that is named after its lesson. The cases that are tested nowhere else are in this file."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from mcp_workbench.cli.commands.auth import state_of
from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import sign_ins
from mcp_workbench.signin.store import SignInRecord, TokenStore
from tests.signin.authority import another, follow, sign_in_setup

pytestmark = pytest.mark.processes

# Number, where it was reported, and the tests.
CASES: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (
        1,
        "modelcontextprotocol/python-sdk#3328",
        (
            "test_after_a_restart_a_stale_token_is_refreshed_without_a_browser",
            "test_a_refresh_uses_the_stored_client_and_endpoint_and_looks_nothing_up",
        ),
    ),
    (2, "aaif-goose/goose#11235", ("test_a_long_lived_token_without_a_refresh_token_is_simply_used",)),
    (3, "aaif-goose/goose#9673", ("test_a_refreshed_token_that_is_refused_too_ends_in_a_sign_in_and_no_loop",)),
    (
        4,
        "aaif-goose/goose#5259",
        (
            "test_every_refresh_answer_is_saved_before_it_is_used",
            "test_offline_access_is_asked_for_where_it_is_offered",
        ),
    ),
    (5, "aaif-goose/goose#9181", ("test_parallel_sign_ins_share_one_page_and_one_registration",)),
    (
        6,
        "hAcKlyc/MyAgents#77",
        (
            "test_two_processes_that_write_side_by_side_lose_nothing",
            "test_at_the_moment_of_expiry_there_is_one_refresh_for_all_calls_and_all_processes",
        ),
    ),
    (7, "geelen/mcp-remote#315", ("test_two_processes_sign_in_at_once_each_with_a_verifier_and_state_of_its_own",)),
    (8, "openclaw/mcporter#290", ("test_another_callback_port_throws_away_neither_client_nor_refresh_token",)),
    (
        9,
        "knowsuchagency/mcp2cli#54",
        ("test_a_sign_in_that_was_cancelled_after_registering_works_at_the_next_try",),
    ),
    (10, "MoonshotAI/kimi-code#2620", ("test_a_redirect_that_is_not_registered_registers_again_and_keeps_the_tokens",)),
    (11, "smart-mcp-proxy/mcpproxy-go#1069", ("test_a_client_of_the_users_own_has_the_same_port_at_every_sign_in",)),
    (12, "smart-mcp-proxy/mcpproxy-go#305", ("test_a_client_without_a_token_is_not_signed_in",)),
    (
        13,
        "smart-mcp-proxy/mcpproxy-go#975",
        ("test_where_registration_is_closed_the_error_says_which_app_to_create",),
    ),
    (
        14,
        "NousResearch/hermes-agent#29680",
        (
            "test_a_secret_that_comes_with_none_is_used_where_it_is_demanded",
            "test_a_secret_that_comes_without_a_method_is_used_and_any_2xx_counts",
        ),
    ),
    (15, "apify/mcpc#388", ("test_a_refresh_sends_the_stored_secret_to_the_server_found_at_the_sign_in",)),
    (16, "BerriAI/litellm#31912", ("test_a_registered_client_survives_a_restart_and_is_named_on_refresh",)),
    (17, "stacklok/toolhive#3078", ("test_registration_asks_for_refresh_tokens_as_a_native_client",)),
    (18, "modelcontextprotocol/python-sdk#1631", ("test_a_challenge_is_read_however_it_is_written",)),
    (19, "Cloudgeni-ai/opengeni#307", ("test_header_is_bearer_for_any_token_type",)),
    (20, "anthropics/claude-code#59725", ("test_an_answer_without_a_usable_token_is_never_saved",)),
    (21, "anthropics/claude-code#51716", ("test_a_configured_secret_reaches_the_token_request",)),
    (
        22,
        "anthropics/claude-code#57674",
        ("test_another_process_uses_the_stored_sign_in",),
    ),
    (23, "openai/codex#25903", ("test_a_token_that_has_really_ended_is_refreshed_with_rotation",)),
    (24, "google-gemini/gemini-cli#26571", ("test_the_keychain_is_not_looked_at_where_tokens_are_in_a_file",)),
    (25, "avivsinai/bitbucket-cli#298", ("test_a_large_token_is_stored",)),
)
TESTS = Path(__file__).parent.parent


@pytest.mark.requirement("signin.lessons")
def test_every_case_has_its_test() -> None:
    files = [*(TESTS / "signin").glob("test_*.py"), *(TESTS / "real_authorities").glob("test_*.py")]
    named = {name for path in files for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)}
    assert [number for number, _, _ in CASES] == list(range(1, 26))
    assert {name for _, _, names in CASES for name in names} <= named


def over(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() - 1)


@contextmanager
def taken(uri: str) -> Iterator[None]:
    """Somebody else listens where this redirect leads."""
    with socket.create_server(("127.0.0.1", urlsplit(uri).port or 0)):
        yield


async def test_offline_access_is_asked_for_where_it_is_offered(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, metadata={"scopes_supported": ["read", "offline_access"]}) as at:
        await at.log_in()
        asked = at.authority.authorizations[-1]
        assert (asked["scope"], asked["prompt"]) == ("offline_access", "consent")
    async with sign_in_setup(tmp_path, metadata={"scopes_supported": ["read"]}) as at:
        await at.log_in()
        assert "scope" not in at.authority.authorizations[-1]


WRITER = """
import asyncio, sys
from msgspec.structs import replace
from mcp_workbench.signin.store import TokenStore, WantedSignIn
folder, name = sys.argv[1:]
store = TokenStore(folder)
async def write():
    for number in range(20):
        wanted = WantedSignIn(principal="", server=f"https://{name}.example.com/{number}", challenge="")
        await store.change(lambda contents: contents.want(wanted))
asyncio.run(write())
"""


async def test_two_processes_that_write_side_by_side_lose_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path / "sign-ins")
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, folder, name) for name in ("one", "two")
    ]
    assert [await writer.wait() for writer in writers] == [0, 0]
    kept = {wanted.server for wanted in TokenStore(folder).read().wanted}
    assert kept == {f"https://{name}.example.com/{number}" for name in ("one", "two") for number in range(20)}


async def test_two_processes_sign_in_at_once_each_with_a_verifier_and_state_of_its_own(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        other = another(at)
        first, second = await at.sign_ins.begin(at.target), await other.sign_ins.begin(other.target)
        asked = [dict(parse_qsl(urlsplit(each.url).query)) for each in (first, second)]
        for member in ("state", "code_challenge", "redirect_uri"):
            assert asked[0][member] != asked[1][member], member
        # What belongs to one is nothing to the other.
        assert first.paste(f"{asked[0]['redirect_uri']}?code=x&state={asked[1]['state']}") is not None
        await follow(second.url)
        await second.wait()
        assert await other.call() == 200
        await follow(first.url)
        await first.wait()
        assert await at.call() == 200
        await other.sign_ins.close()


async def test_another_callback_port_throws_away_neither_client_nor_refresh_token(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        with taken(at.record.client.redirect_uris[0]):
            await at.sign_ins.begin(at.target)
            # The user goes away; what there was still serves.
            await at.sign_ins.close()
        assert (at.record.client.id, at.record.refresh_token) == ("client-1", "refresh-1")
        await at.change(over)
        assert await another(at).call() == 200
        assert at.authority.token_requests[-1]["client_id"] == "client-1"


async def test_a_redirect_that_is_not_registered_registers_again_and_keeps_the_tokens(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        earlier = at.record.client.redirect_uris[0]
        with taken(earlier):
            sign_in = await at.sign_ins.begin(at.target)
            assert await at.call() == 200, "until the new sign-in is done"
            await follow(sign_in.url)
            await sign_in.wait()
        redirects = [asked["redirect_uris"] for asked in at.authority.registrations]
        assert len(redirects) == 2 and redirects[1] != [earlier]
        assert (at.record.client.id, await at.call()) == ("client-2", 200)


async def test_a_client_of_the_users_own_has_the_same_port_at_every_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this machine may sign in there at the same time.
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(sign_ins, "USUAL_PORT", free.getsockname()[1])
    async with sign_in_setup(tmp_path, OAuthConfig(client_id="mine")) as at:
        sign_in = await at.sign_ins.begin(at.target)
        first = dict(parse_qsl(urlsplit(sign_in.url).query))["redirect_uri"]
        await at.sign_ins.close()
        await at.log_in()
        await another(at, settings=OAuthConfig(client_id="mine")).log_in()
        assert {asked["redirect_uri"] for asked in at.authority.authorizations} == {first}


async def test_a_client_without_a_token_is_not_signed_in(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(lambda record: replace(record, access_token="", refresh_token=None, expires_at=None))
        assert state_of(at.record) == "needs sign-in"
        with pytest.raises(SignInNeeded):
            await another(at).call()


async def test_a_secret_that_comes_without_a_method_is_used_and_any_2xx_counts(tmp_path: Path) -> None:
    given = {"client_secret": "shh", "token_endpoint_auth_method": None}
    async with sign_in_setup(tmp_path, registration=given, registration_status=200, token_status=201) as at:
        await at.log_in()
        assert at.authority.token_requests[-1]["client_secret"] == "shh"
        assert await at.call() == 200


async def test_a_refresh_sends_the_stored_secret_to_the_server_found_at_the_sign_in(tmp_path: Path) -> None:
    given = {"client_secret": "shh", "token_endpoint_auth_method": "client_secret_post"}
    async with sign_in_setup(tmp_path, registration=given) as at:
        await at.log_in()
        at.authority.metadata = {"token_endpoint": f"{at.authority.origin}/elsewhere"}
        await at.change(over)
        assert await another(at).call() == 200
        asked = at.authority.token_requests[-1]
        assert (asked["grant_type"], asked["client_secret"]) == ("refresh_token", "shh")


async def test_a_registered_client_survives_a_restart_and_is_named_on_refresh(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        restarted = another(at)
        assert await restarted.call() == 200
        assert at.authority.token_requests[-1]["client_id"] == "client-1"
        await restarted.log_in()
        assert len(at.authority.registrations) == 1


def test_the_keychain_is_not_looked_at_where_tokens_are_in_a_file(tmp_path: Path) -> None:
    code = (
        "import sys; from mcp_workbench.signin import sign_ins; from mcp_workbench.signin.store import TokenStore;"
        "TokenStore(sys.argv[1]).read(); sys.exit(any(name.partition('.')[0] == 'keyring' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


# Beside the list: races between a refresh and the user.


async def test_signing_out_during_a_refresh_wins(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        other = another(at)
        at.authority.before_token = lambda: other.sign_ins.sign_out(other.target)
        with pytest.raises(SignInNeeded):
            await at.call()
        assert at.sign_ins.store.read().records == []


@pytest.mark.parametrize("faults", [[], [(400, b'{"error":"invalid_grant"}')]])
async def test_a_sign_in_during_a_refresh_wins(tmp_path: Path, faults: list[tuple[int, bytes]]) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)

        async def sign_in_again() -> None:
            await another(at).log_in()
            at.authority.token_faults = faults

        at.authority.before_token = sign_in_again
        assert await at.call() == 200
        assert at.authority.refreshes == 1
        assert (at.record.refresh_token, at.record.ended) == ("refresh-2", "")
