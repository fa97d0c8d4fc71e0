"""Signed in once, at authorization servers that others wrote: calls, expiry, rotation, restarts, several processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.real_authorities.conftest import Site
from tests.real_authorities.user import User

pytestmark = [pytest.mark.node, pytest.mark.network]


async def test_sign_in_with_a_browser_call_and_restart(tmp_path: Path, site: Site) -> None:
    user = User(tmp_path, site.url)
    async with user.workbench() as workbench:
        assert "mcp-workbench auth login greeter" in await workbench.said()
        before = len(site.authority.seen())
        out = await user.log_in()
        assert "signed in to greeter" in out
        assert "greeter offers 1 tool" in out
        assert await workbench.said() == "hello you", "the running workbench finds the sign-in"
    async with user.workbench() as restarted:
        assert await restarted.said() == "hello you"
    asked = site.authority.seen()[before:]
    assert [each["grant"] for each in asked] == ["authorization_code"], "nobody refreshed, nobody signed in again"
    assert asked[0]["resource"] == site.url


@pytest.mark.requirement("signin.one-refresh")
async def test_at_the_moment_of_expiry_there_is_one_refresh_for_all_calls_and_all_processes(
    tmp_path: Path, site: Site
) -> None:
    user = User(tmp_path, site.url)
    await user.log_in()
    before = len(site.authority.refreshes)
    await user.expire()
    async with user.workbench() as workbench:
        assert await asyncio.gather(*(workbench.said() for _ in range(20))) == ["hello you"] * 20
    assert site.authority.refreshes[before:] == [200]
    first = user.record.refresh_token
    await user.expire()
    async with user.workbench() as one, user.workbench() as other:
        calls = [each.said() for _ in range(10) for each in (one, other)]
        assert await asyncio.gather(*calls) == ["hello you"] * 20
    # Had both of them refreshed, the strict server would have revoked everything, and the other would have given two
    # tokens of which one is dead.
    assert site.authority.refreshes[before:] == [200, 200]
    assert user.record.refresh_token != first
    await user.expire()
    async with user.workbench() as later:
        assert await later.said() == "hello you", "what was kept is alive"
