"""Over HTTP each session has a server that keeps a person's state to itself; clients without sessions share one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp import Client

from tests.faults.running_workbench import port_of
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

pytestmark = pytest.mark.processes


@pytest.mark.requirement("sharing.state")
async def test_each_legacy_session_has_its_own_and_modern_clients_share(tmp_path: Path) -> None:
    servers = {"own": scripted_entry(share="session"), "common": scripted_entry()}
    config = write_config(tmp_path, {"box": servers})
    command = workbench_command(config, "--http", "127.0.0.1:0", "--no-token")
    async with RawClient.spawn(command, expect_exit=False) as workbench, AsyncExitStack() as stack:
        url = f"http://127.0.0.1:{await port_of(workbench)}/mcp"

        async def process(client: Client, server: str) -> object:
            tool = {"toolbox": "box", "server": server, "tool": "pid"}
            result = await client.call_tool("use_tool", {"tool": tool, "arguments": {}})
            assert result.structured_content is not None, result
            return result.structured_content["pid"]

        async def joined(mode: str) -> Client:
            return await stack.enter_async_context(Client(url, mode=mode, read_timeout_seconds=30))

        one, other = await joined("legacy"), await joined("legacy")
        first, second = await joined("auto"), await joined("auto")
        assert await process(one, "own") != await process(other, "own")
        assert await process(one, "own") == await process(one, "own")
        assert await process(one, "common") == await process(other, "common")
        assert await process(first, "own") == await process(second, "own")
        assert await process(first, "own") not in (await process(one, "own"), await process(other, "own"))
