"""What servers learn of our environment: what they need, and nobody else's secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.end_to_end.harness import Workbench, open_toolbox, unavailable
from tests.support.client import RawClient
from tests.support.processes import available
from tests.support.workbench import scripted_entry

TOKEN = "token-of-the-workbench"
SECRET = "hunter2-of-another-server"


async def variable(client: RawClient, server: str, name: str) -> str | None:
    found = await client.use_tool("box", server, "env", {"name": name})
    value: str | None = found["structuredContent"]["value"]
    return value


def surroundings() -> dict[str, str]:
    return {**os.environ, "WORKBENCH_TOKEN": TOKEN, "OTHER_KEY": SECRET, "LC_CTYPE": "C.UTF-8", "EDITOR": "emacs"}


@pytest.mark.requirement("servers.environment")
async def test_server_gets_harmless_own_and_inherited_variables(workbench: Workbench) -> None:
    box = {
        "plain": scripted_entry(),
        "owner": scripted_entry(env={"KEY": "${OTHER_KEY}"}),
        "heir": scripted_entry(inheritEnv=["EDIT*"]),
        "trusted": scripted_entry(inheritEnv=["*"]),
    }
    names = ("PATH", "LC_CTYPE", "KEY", "EDITOR", "OTHER_KEY", "WORKBENCH_TOKEN")
    async with workbench.serving({"box": box}, env=surroundings()) as client:
        seen = {server: {name for name in names if await variable(client, server, name)} for server in box}
    assert seen == {
        "plain": {"PATH", "LC_CTYPE"},
        "owner": {"PATH", "LC_CTYPE", "KEY"},
        "heir": {"PATH", "LC_CTYPE", "EDITOR"},
        "trusted": {"PATH", "LC_CTYPE", "EDITOR", "OTHER_KEY"},
    }


@pytest.mark.requirement("servers.environment")
@pytest.mark.skipif(not available(), reason="reads /proc")
async def test_process_listing_holds_no_secret_once_a_server_runs(workbench: Workbench) -> None:
    box = {"server": scripted_entry(env={"KEY": "${OTHER_KEY}"})}
    async with workbench.serving({"box": box}, env=surroundings()) as client:
        assert await variable(client, "server", "KEY") == SECRET
        shown = Path(f"/proc/{client.pid}/environ").read_bytes()
        assert b"EDITOR=emacs" in shown
        assert TOKEN.encode() not in shown and SECRET.encode() not in shown


@pytest.mark.requirement("servers.environment")
async def test_failed_start_suggests_the_missing_variable(workbench: Workbench) -> None:
    script = "import os, sys; 'OTHER_KEY' in os.environ or sys.exit('OTHER_KEY is not set')"
    entry = {"command": "python3", "args": ["-c", script]}
    async with workbench.serving({"box": {"needy": entry, "good": scripted_entry()}}, env=surroundings()) as client:
        told = unavailable(await open_toolbox(client, "box"))["needy"]
    assert "OTHER_KEY is not set" in told["reason"]
    assert '`"inheritEnv": ["OTHER_KEY"]`' in told["retry"]


@pytest.mark.requirement("config.secrets")
async def test_inherited_values_and_the_token_are_redacted_in_the_log(workbench: Workbench) -> None:
    box = {"server": scripted_entry("--stderr", f"using {SECRET} and {TOKEN}", inheritEnv=["OTHER_KEY"])}
    async with workbench.serving({"box": box}, "--debug", env=surroundings()) as client:
        assert await variable(client, "server", "OTHER_KEY") == SECRET
        client.close_stdin()
        await client.wait_exit()
    assert "using *** and ***" in client.stderr
    assert SECRET not in client.stderr and TOKEN not in client.stderr


async def test_a_log_file_is_for_its_owner_and_one_that_is_not_is_reported(workbench: Workbench) -> None:
    file = workbench.path("log")
    previous = os.umask(0o022)
    try:
        for mode, warned in ((0o600, False), (0o644, True)):
            async with workbench.serving({"box": {"server": scripted_entry()}}, "--log-file", file) as client:
                pass
            assert (f"log file `{file}` can be read by other users; chmod 600" in client.stderr) is warned, (
                client.stderr
            )
            if not warned:
                assert stat.S_IMODE(file.stat().st_mode) == mode
            file.chmod(0o644)
    finally:
        os.umask(previous)
