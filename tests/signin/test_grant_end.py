"""Grants that end whatever happens: the date is known, shown, and told ahead."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin.grant_end import DAY, ends_at, is_near, note
from mcp_workbench.signin.profiles import profile_for
from mcp_workbench.signin.store import SignInRecord
from tests.signin.authority import SignInSetup, another, sign_in_setup

pytestmark = pytest.mark.processes

MONTH = OAuthConfig(grant_days=30)


async def age(at: SignInSetup, days: float) -> None:
    """The user signed in this long ago."""

    def earlier(record: SignInRecord) -> SignInRecord:
        assert record.grant_limit_at is not None
        moved = replace(record, signed_in_at=record.signed_in_at - days * DAY)
        return replace(moved, grant_limit_at=record.grant_limit_at - days * DAY)

    await at.change(earlier)


@pytest.mark.requirement("signin.told-ahead")
@pytest.mark.parametrize("host", ["mcp.notion.com", "mcp.sentry.dev", "docs.mcp.cloudflare.com", "mcp.cloudflare.com"])
def test_servers_that_end_grants_after_a_month_are_known(host: str) -> None:
    assert profile_for(f"https://{host}/mcp", None).grant_days == 30


async def test_a_refresh_does_not_move_the_end_of_such_a_grant(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, MONTH) as at:
        await at.log_in()
        end = ends_at(at.record)
        assert end is not None and abs(end - time.time() - 30 * DAY) < 60
        await at.change(lambda record: replace(record, expires_at=time.time() - 1, obtained_at=time.time() - 99))
        assert await at.call() == 200
        assert (at.authority.refreshes, ends_at(at.record)) == (1, end)


@pytest.mark.requirement("signin.told-ahead")
@pytest.mark.parametrize("name", ["refresh_token_expires_in", "refresh_expires_in"])
async def test_an_end_that_the_server_says_is_believed_and_moves_with_each_refresh(tmp_path: Path, name: str) -> None:
    async with sign_in_setup(tmp_path, token_answer={name: 1000}) as at:
        await at.log_in()
        first = ends_at(at.record)
        assert first is not None and abs(first - time.time() - 1000) < 60
        at.authority.token_answer = {name: 5000}
        await at.change(lambda record: replace(record, expires_at=time.time() - 1, obtained_at=time.time() - 99))
        assert await at.call() == 200
        later = ends_at(at.record)
        assert later is not None and later - first > 3000


@pytest.mark.parametrize("said", [0, -1, "soon", None, 1e300])
async def test_an_end_that_is_nonsense_is_no_end(tmp_path: Path, said: object) -> None:
    async with sign_in_setup(tmp_path, token_answer={"refresh_expires_in": said}) as at:
        await at.log_in()
        assert ends_at(at.record) is None
        assert note(at.record, "mcp-workbench auth login files", time.time()) == ""


@pytest.mark.requirement("signin.told-ahead")
async def test_the_user_is_told_three_days_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sign_in_setup(tmp_path, MONTH) as at:
        await at.log_in()
        assert await at.call() == 200
        assert at.source.note() == ""
        await age(at, 26.9)
        assert await at.call() == 200
        assert at.source.note() == ""
        await age(at, 0.2)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await at.call() == 200
        assert "run `mcp-workbench auth login files --again`" in at.source.note()
        told = [each.getMessage() for each in caplog.records if "the sign-in ends on" in each.getMessage()]
        assert len(told) == 1, "once, not with every call"
        await at.log_in()
        assert await at.call() == 200
        assert at.source.note() == ""


async def test_a_token_that_cannot_be_refreshed_is_told_of_in_its_last_tenth(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, gives_refresh_tokens=False, ttl=1000) as at:
        await at.log_in()
        now = time.time()
        assert not is_near(at.record, now + 800)
        assert is_near(at.record, now + 950)


async def test_sign_ins_of_other_principals_are_not_shown(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path, MONTH) as at:
        bob = another(at, "bob")
        await bob.log_in()
        await age(bob, 29)
        assert await bob.call() == 200
        assert bob.source.note()
        assert at.source.note() == ""
