"""A server, and whatever it starts, cannot approve calls, look at our status, stop others or read our memory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from mcp_workbench.engine.process_context import DEBUGGER, runtime_folder
from mcp_workbench.engine.socket_peers import is_confined
from tests.cli.shell import run
from tests.end_to_end.harness import Workbench
from tests.support.client import Json
from tests.support.processes import available, eventually
from tests.support.workbench import scripted_command, scripted_entry

pytestmark = [
    pytest.mark.skipif(not available(), reason="servers are recognised by what /proc says"),
    pytest.mark.skipif(is_confined(), reason="everything here has no_new_privs, so servers cannot be recognised"),
]

ATTACKER = str(Path(__file__).with_name("attacking_server.py"))
SECRET = "the-key-of-another-server"
ASK = {"tools": ["box/victim/echo"], "then": "ask"}


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


# A socket that is closed at once may be found closed before or after something was written.
NOTHING_SAID = ("", "ConnectionResetError", "BrokenPipeError")


def attacker(folder: Path) -> Json:
    return {"command": sys.executable, "args": [ATTACKER, str(folder), *scripted_command()]}


async def results(folder: Path, told: Json) -> dict[str, dict[str, str]]:
    """What the server's child and its daemon got."""
    (folder / "told").write_text(json.dumps(told))
    (folder / "told").rename(folder / "go")
    files = {name: folder / f"{name}.json" for name in ("child", "daemon")}
    await eventually(lambda: all(file.exists() for file in files.values()), what="both attacks")
    return {name: json.loads(file.read_text()) for name, file in files.items()}


def is_turned_away(said: str) -> bool:
    """Whether an attacker got nothing from the socket for approvals."""
    if said in NOTHING_SAID:
        return True
    answer = json.loads(said)
    return answer["approved"] is None and answer["is_refused"] is True


@pytest.mark.requirement("team.policy")
async def test_a_server_and_its_daemon_get_nothing_from_our_sockets(workbench: Workbench) -> None:
    box = {"attacker": attacker(workbench.folder), "victim": scripted_entry()}
    env = {**os.environ, "VICTIMS_KEY": SECRET, DEBUGGER: ""}
    async with workbench.serving({"box": box}, env=env, policy=[ASK, {"then": "allow"}]) as client:
        await client.use_tool("box", "attacker", "echo", {"text": "started"})
        refused = await client.use_tool("box", "victim", "echo", {"text": "1"})
        assert refused.get("isError"), refused
        shown = json.loads(run("status", "--json").stdout)
        (approval,) = [each["id"] for status in shown for each in status["approvals"]]

        got = await results(workbench.folder, {"sockets": runtime_folder(), "pid": client.pid, "approval": approval})

        for name, each in got.items():
            assert each["status"] in NOTHING_SAID and each["watch"] in NOTHING_SAID, name
            assert is_turned_away(each["approve"]) and is_turned_away(each["show"]), name
            assert each["environ"] == "PermissionError", name
        again = await client.use_tool("box", "victim", "echo", {"text": "1"})
        assert again.get("isError"), "nothing was approved"

        done = run("approve", approval)
        assert done.status == 0, "a person's own command is"
        assert not (await client.use_tool("box", "victim", "echo", {"text": "1"})).get("isError")
