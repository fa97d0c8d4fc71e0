"""How servers are doing is told truthfully, in all three places, also in the middle of faults.

`mcp-workbench status`, `/readyz` and the resource `workbench://status` say the same of each server: its state, for how
long it has been up, how often it was started and failed, its last error, calls under way, bytes in both directions.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from tests.faults.http_wire import Wire, written
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry
from tests.support.client import Json

# Of these each place may give another number: time passes, and asking is traffic too.
MOVING = ("uptimeSeconds", "lastErrorSecondsAgo", "tasks")


async def by_command(faults: Faults) -> Json:
    """`mcp-workbench status --json`, as another process of the same user sees it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_workbench", "status", "--json"),
        env=faults.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await process.communicate()
    (found,) = json.loads(shown)
    # Where the token lies is told to the user alone, not to whoever may ask for the status over HTTP.
    found.pop("tokenFile")
    found.pop("clusterState")
    # So is who uses what.
    found.pop("clientNames")
    for server in found["servers"]:
        for member in ("user", "clientNames", "changed"):
            server.pop(member, None)
    # What waits for somebody to decide is for the user, and for no client.
    assert found.pop("approvals") == []
    return dict(found)


async def by_address(workbench: RunningWorkbench) -> Json:
    wire = await Wire.open(workbench.port)
    status, answer = await wire.ask(written(b"", verb="GET", path="/readyz"))
    wire.close()
    assert status == 200
    return dict(json.loads(answer))


def lasting(found: Any) -> Any:
    if isinstance(found, list):
        return [lasting(each) for each in found]
    if isinstance(found, dict):
        return {key: lasting(value) for key, value in found.items() if key not in MOVING}
    return found


@pytest.mark.requirement("status.truth")
async def test_the_three_places_agree_and_are_right_while_things_go_wrong(faults: Faults) -> None:
    servers = {"bad": bad_entry(), "unused": bad_entry(name="unused")}
    async with faults.serving_http(servers, era="modern") as workbench:
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}
        hanging = await workbench.start("bad", "hang")
        while (await workbench.server_status())["callsInFlight"] != 1:
            await asyncio.sleep(0.01)
        told = await workbench.status()
        assert lasting(await by_command(faults)) == lasting(await by_address(workbench)) == lasting(told)
        up = await workbench.server_status()
        assert (up["state"], up["starts"], up["failures"], up["lastError"]) == ("ready", 1, 0, None)
        assert up["uptimeSeconds"] > 0 and up["bytesSent"] > 100 and up["bytesReceived"] > 100
        unused = await workbench.server_status("unused")
        assert (unused["state"], unused["starts"], unused["bytesSent"]) == ("configured", 0, 0)

        assert "status 3" in await workbench.failure("bad", "crash")
        assert "status 3" in (await hanging.result())["content"][0]["text"]
        down = await workbench.server_status()
        assert (down["state"], down["failures"], down["callsInFlight"]) == ("backoff", 1, 0)
        assert down["lastError"].startswith("the server exited with status 3")
        assert down["uptimeSeconds"] is None

        assert await workbench.value("bad", "echo", {"n": 2}) == {"n": 2}
        again = await workbench.server_status()
        assert (again["state"], again["starts"], again["failures"]) == ("ready", 2, 1)
        assert again["lastError"] == down["lastError"], "what happened is not forgotten"
        assert again["bytesSent"] > down["bytesSent"] and again["bytesReceived"] > down["bytesReceived"]


async def test_callers_waiting_for_a_start_are_counted(faults: Faults) -> None:
    async with faults.serving({"slow": {"command": "sleep", "args": ["600"], "startupTimeout": 2}}) as workbench:
        calls = [await workbench.start("slow", "echo") for _ in range(3)]
        while (found := await workbench.server_status("slow"))["waitingForStart"] != 3:
            await asyncio.sleep(0.01)
        assert (found["state"], found["callsInFlight"]) == ("starting", 0)
        for call in calls:
            assert "did not answer the handshake" in (await call.result())["content"][0]["text"]
        assert (await workbench.server_status("slow"))["waitingForStart"] == 0


async def test_a_server_that_cannot_be_started_is_told_as_it_is(faults: Faults) -> None:
    async with faults.serving({"lost": {"command": "/does/not/exist"}}) as workbench:
        assert "does not exist" in await workbench.failure("lost", "echo")
        lost = await workbench.server_status("lost")
        assert (lost["state"], lost["starts"], lost["failures"], lost["tools"]) == ("backoff", 1, 1, None)
        assert lost["lastError"].startswith("command `/does/not/exist` does not exist")


async def test_servers_in_a_folder_whose_name_is_not_unicode_are_shown_as_any_other(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.folder /= os.fsdecode(b"caf\xe9")
    faults.folder.mkdir()
    # The private home of one is part of its report, and the folder of the other part of its error.
    monkeypatch.setenv("XDG_DATA_HOME", str(faults.folder))
    contained = bad_entry(sandbox={"profile": "contained", "bestEffort": True})
    servers = {"bad": contained, "lost": {"command": "cat", "cwd": "missing"}}
    async with faults.serving_http(servers, era="modern") as workbench:
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}
        assert "does not exist" in await workbench.failure("lost", "echo")
        told = await workbench.status()
        assert lasting(await by_command(faults)) == lasting(await by_address(workbench)) == lasting(told)
        assert "/caf\\udce9/" in (await workbench.server_status())["sandbox"]["home"]
        assert "/caf\\udce9/missing" in (await workbench.server_status("lost"))["lastError"]
