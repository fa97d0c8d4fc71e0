"""Tokens that really end, grants that are taken back, and signing in again: by elicitation, by device code, by hand."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.real_authorities.conftest import Site
from tests.real_authorities.servers import oidc_provider, resource_server
from tests.real_authorities.user import User, open_page
from tests.support.processes import eventually
from tests.support.workbench import workbench_command

pytestmark = [pytest.mark.node, pytest.mark.network]

# Long enough for a call on a busy machine, short enough to wait for.
SHORT = 3
# "legacy" shakes hands; "auto" probes, and finds the modern era.
MODES = {"legacy": "legacy", "modern": "auto"}


def has_ended(user: User) -> bool:
    ends = user.record.expires_at
    assert ends is not None
    return time.time() > ends


@pytest.fixture(scope="session")
def short_lived(packages: None) -> Iterator[Site]:
    with oidc_provider(SHORT) as authority, resource_server("sdk", authority.origin) as url:
        yield Site(url, authority)


async def test_a_token_that_has_really_ended_is_refreshed_with_rotation(tmp_path: Path, short_lived: Site) -> None:
    user = User(tmp_path, short_lived.url)
    await user.log_in()
    async with user.workbench() as workbench:
        used = set()
        for _ in range(2):
            assert await workbench.said() == "hello you"
            used.add(user.record.refresh_token)
            await eventually(partial(has_ended, user))
        assert await workbench.said() == "hello you"
        assert len(used) == 2
    assert set(short_lived.authority.refreshes) == {200}
    assert len(short_lived.authority.seen("authorization_code")) == 1


async def test_after_a_revocation_a_legacy_sdk_client_is_shown_the_page_and_its_call_goes_on(
    tmp_path: Path, workers_site: Site
) -> None:
    await revoke_and_call(tmp_path, workers_site, "legacy")


async def test_after_a_revocation_a_modern_sdk_client_is_shown_the_page_and_its_call_goes_on(
    tmp_path: Path, sdk_site: Site
) -> None:
    await revoke_and_call(tmp_path, sdk_site, "modern")


async def revoke_and_call(folder: Path, site: Site, era: str) -> None:
    user = User(folder, site.url)
    await user.log_in()
    site.authority.end_grants()
    await user.expire()
    asked: list[str] = []

    async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params.message)
        assert "Signed in" in await open_page(params.url)
        return types.ElicitResult(action="accept")

    program, *arguments = workbench_command(user.config)
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(user.environment))
    async with Client(parameters, mode=MODES[era], read_timeout_seconds=60, elicitation_callback=elicit) as client:
        tool = {"toolbox": "box", "server": "greeter", "tool": "greet"}
        result = await client.call_tool("use_tool", {"tool": tool})
    assert [block.text for block in result.content if isinstance(block, types.TextContent)] == ["hello you"]
    assert len(asked) == 1, "one page, however many requests it takes"
    assert "wants you to sign in again" in asked[0]
    assert user.record.signed_in_at > 0 and not user.record.ended


async def test_a_device_code_signs_in_without_a_browser_here(tmp_path: Path, sdk_site: Site) -> None:
    user = User(tmp_path, sdk_site.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_workbench", "login", "greeter", "--config", str(user.config), "--device"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**user.environment, "BROWSER": "false"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            page = (await process.stdout.readline()).decode().strip()
            code = (await process.stdout.readline()).decode().strip()
            assert page.startswith(sdk_site.authority.origin)
            assert code
            await open_page(page)
            rest = (await process.stdout.read()).decode()
            assert await process.wait() == 0, rest
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert "signed in to greeter" in rest
    assert user.record.refresh_token is not None
    async with user.workbench() as workbench:
        assert await workbench.said() == "hello you"


async def test_signing_out_revokes_the_grant_at_the_server(tmp_path: Path, sdk_site: Site) -> None:
    user = User(tmp_path, sdk_site.url)
    await user.log_in()
    record = user.record
    status, out, _ = await user.run("logout", "greeter", "--config", str(user.config))
    assert (status, "the server has revoked the token" in out) == (0, True)
    form = {"grant_type": "refresh_token", "refresh_token": record.refresh_token, "client_id": record.client.id}
    with pytest.raises(HTTPError) as refused:
        await asyncio.to_thread(urlopen, record.token_endpoint, urlencode(form).encode(), 20)
    assert b"invalid_grant" in refused.value.read()
    async with user.workbench() as workbench:
        assert "wants you to sign in" in await workbench.said()
