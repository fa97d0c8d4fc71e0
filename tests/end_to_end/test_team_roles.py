"""Two users with keys of their own and two roles, with the official client of both eras, in every face."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from mcp_workbench.team.identity.named_keys import KeyFolder
from tests.support.client import RawClient
from tests.support.two_roles import BOXES, EXPECTED, LOOKS, MODES, Seen, policy
from tests.support.workbench import workbench_command, write_config

pytestmark = pytest.mark.processes

PATIENCE = 100.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


@pytest.mark.requirement("team.principals", "team.policy")
@pytest.mark.parametrize("look", LOOKS)
async def test_two_keys_two_roles_with_the_official_client_of_both_eras(folder: Path, look: str) -> None:
    environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    keys = KeyFolder(str(folder / "state" / "mcp-workbench" / "keys"))
    tokens = {"lead": keys.create("ann"), "member": keys.create("ben")}
    config = write_config(folder, BOXES, policy=policy("ann"))
    command = workbench_command(config, "--http", "127.0.0.1:0", "--face", LOOKS[look][0])
    async with (
        asyncio.timeout(PATIENCE),
        RawClient.spawn(command, env=environment, expect_exit=False) as process,
    ):
        await process.wait_for(lambda: "serving MCP at" in process.stderr, "address")
        url = process.stderr.partition("serving MCP at ")[2].split()[0]
        served: dict[str, set[object]] = {}
        for era, mode in MODES.items():
            for role, token in tokens.items():
                seen = Seen(look)
                async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http:
                    transport = streamable_http_client(url, http_client=http)
                    async with Client(transport, mode=mode, **seen.options) as client:
                        assert await seen.of(client) == EXPECTED[role], (role, era)
                served.setdefault(role, set()).add(seen.process)
        assert not served["lead"] & served["member"], "no process is both's"


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("look", ["proxy", "flat"])
@pytest.mark.parametrize("era", MODES)
async def test_the_official_client_over_stdio_under_a_policy(folder: Path, look: str, era: str) -> None:
    config = write_config(folder, BOXES, policy=policy("somebody else"))
    program, *arguments = workbench_command(config, "--face", LOOKS[look][0])
    seen = Seen(look)
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with asyncio.timeout(PATIENCE), Client(parameters, mode=MODES[era], **seen.options) as client:
        assert await seen.of(client) == EXPECTED["member"]
