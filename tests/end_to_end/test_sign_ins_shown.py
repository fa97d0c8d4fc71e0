"""What clients are shown of a server that needs a sign-in, or whose sign-in ends soon."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_workbench.signin.grant_end import DAY
from tests.signin.authority import sign_in_setup
from tests.signin.command_line import CommandLine
from tests.support.client import RawClient, RpcError
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes


def text_of(result: dict[str, Any]) -> str:
    return " ".join(block.get("text", "") for block in result["content"])


async def status_of(client: RawClient) -> dict[str, Any]:
    read = await client.request("resources/read", {"uri": "workbench://status"})
    (server,) = json.loads(read["contents"][0]["text"])["servers"]
    found: dict[str, Any] = server
    return found


async def test_the_tools_that_are_remembered_are_shown_while_a_sign_in_is_needed(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        await user.run("login", "files")
        await user.run("logout", "files")
        async with RawClient.spawn(workbench_command(user.config), env=user.environment) as client:
            await client.initialize()
            opened = text_of(await client.call_tool("open_toolbox", {"toolbox_name": "box"}))
            assert "read" in opened, "the tool, from what is remembered"
            failed = await client.use_tool("box", "files", "read")
            assert failed["isError"]
            assert "wants you to sign in" in text_of(failed)
            assert (await status_of(client))["state"] == "needs sign-in"
            # Signed in beside it: the next call works, and nothing is restarted.
            await user.run("login", "files")
            assert text_of(await client.use_tool("box", "files", "read")) == "read it"
            assert (await status_of(client))["state"] == "ready"


async def test_a_sign_in_that_ends_soon_is_said_to_the_agent_and_in_the_status(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority, oauth={"grantDays": 30})
        await user.run("login", "files")
        async with RawClient.spawn(workbench_command(user.config), env=user.environment) as client:
            await client.initialize()
            assert text_of(await client.use_tool("box", "files", "read")) == "read it"
            opened = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
            assert "sign-in" not in json.dumps(opened)
            status = await status_of(client)
            assert abs(status["signInEndsAt"] - time.time() - 30 * DAY) < 3600
            assert status["signInNote"] is None
        soon = replace(user.record, signed_in_at=time.time() - 28 * DAY, grant_limit_at=time.time() + 2 * DAY)
        await user.store.change(lambda contents: contents.put(soon))
        async with RawClient.spawn(workbench_command(user.config), env=user.environment) as client:
            await client.initialize()
            assert text_of(await client.use_tool("box", "files", "read")) == "read it"
            opened = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
            said = f"files: the sign-in ends on {time.strftime('%Y-%m-%d', time.localtime(soon.grant_limit_at))}"
            assert said in text_of(opened)
            assert f"mcp-workbench auth login files --config {user.config} --again" in text_of(opened)
            assert "--again" in (await status_of(client))["signInNote"]
            assert "the sign-in ends on" in client.stderr


@pytest.mark.requirement("signin.lazy")
async def test_a_server_that_needs_no_sign_in_loads_nothing_of_it(tmp_path: Path) -> None:
    """But for the place where sign-ins would lie."""
    async with sign_in_setup(tmp_path) as at:
        at.authority.valid[""] = "everybody"
        user = CommandLine(tmp_path, at.authority)
        code = (
            "import sys, atexit; sys.argv = ['mcp-workbench', 'serve', '--config', sys.argv[1]];"
            "atexit.register(lambda: sys.stderr.write('LOADED ' + ' '.join(m for m in sys.modules if 'signin' in m)));"
            "from mcp_workbench.cli.main import main; sys.exit(main())"
        )
        command = [workbench_command(user.config)[0], "-c", code, str(user.config)]
        async with RawClient.spawn(command, env=user.environment) as client:
            await client.initialize()
            assert text_of(await client.use_tool("box", "files", "read")) == "read it"
            client.close_stdin()
            await client.wait_exit()
            await client.wait_for(lambda: "LOADED" in client.stderr, "list of modules")
            loaded = client.stderr.partition("LOADED ")[2].split()
    assert sorted(loaded) == ["mcp_workbench.signin", "mcp_workbench.signin.store_location"]


async def test_status_is_no_place_for_tokens(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        await user.run("login", "files")
        async with RawClient.spawn([*workbench_command(user.config), "--debug"], env=user.environment) as client:
            await client.initialize()
            assert text_of(await client.use_tool("box", "files", "read")) == "read it"
            at.authority.token_faults = [(400, b'{"error":"invalid_grant"}')]
            at.authority.expire()
            failed = text_of(await client.use_tool("box", "files", "read"))
            said = json.dumps(await status_of(client)) + client.stderr + failed
            for secret in ("access-1", "refresh-1", "code-1"):
                assert secret not in said
            with pytest.raises(RpcError):
                await client.request("resources/read", {"uri": "workbench://sign-ins"})
