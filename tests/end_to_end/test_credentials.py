"""What clients prove themselves with at the workbench stays there: servers get their own credentials and no others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import port_of
from tests.signin.authority import sign_in_setup
from tests.signin.command_line import CommandLine
from tests.support.client import RawClient
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes

TOKEN = "inbound-token-of-the-workbench"
BROUGHT = {
    "Authorization": f"Bearer {TOKEN}",
    "Cookie": "session=inbound-cookie",
    "X-Api-Key": "inbound-key",
    "Proxy-Authorization": "Basic inbound-proxy",
    "X-Forwarded-Access-Token": "inbound-forwarded",
}


@pytest.mark.requirement("signin.never-elsewhere")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("signs_in", [True, False], ids=["signed-in", "signed-out"])
async def test_nothing_that_a_client_brings_along_reaches_a_server(tmp_path: Path, era: str, signs_in: bool) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        if signs_in:
            await user.run("login", "files")
        before = len(at.server.requests)
        command = workbench_command(user.config, "--http", "127.0.0.1:0")
        async with RawClient.spawn(command, env={**user.environment, "WORKBENCH_TOKEN": TOKEN}) as process:
            client = HttpConversation(await port_of(process), BROUGHT)
            try:
                if era == "modern":
                    client.stamp()
                else:
                    await client.initialize()
                answered = await client.use_tool("box", "files", "read")
            finally:
                await client.close()
                os.kill(process.pid, signal.SIGTERM)
        assert answered.get("isError", False) is not signs_in
        sent = at.server.requests[before:]
        assert sent and {request.path for request in sent if request.method == "POST"} == {"/mcp"}
        assert not any("inbound" in f"{request.path} {request.headers} {request.body!r}" for request in sent)
        authorizations = {request.headers.get("authorization") for request in sent}
        assert authorizations == ({"Bearer access-1"} if signs_in else {None})
