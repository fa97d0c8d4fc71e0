"""Servers in a sandbox, behind the real workbench."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from mcp_workbench.engine.process_context import DEBUGGER, runtime_folder
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.socket_peers import is_confined
from tests.cli.shell import run
from tests.end_to_end.harness import Workbench, open_toolbox, unavailable
from tests.end_to_end.test_hostile_servers import attacker, results
from tests.support.client import Json
from tests.support.processes import alive, descendants, eventually
from tests.support.workbench import scripted_entry

pytestmark = [
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
    pytest.mark.skipif(is_confined(), reason="everything here has no_new_privs, so servers cannot be recognised"),
]
PROFILES = ("guard", "contained", "sealed")
WITH_BWRAP = pytest.param(
    {"profile": "contained", "backend": "bwrap"},
    id="bwrap",
    marks=pytest.mark.skipif(capabilities().why_no_bwrap() is not None, reason="needs bwrap to work"),
)


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    return Workbench(tmp_path)


@pytest.mark.parametrize("sandbox", [*PROFILES, WITH_BWRAP])
async def test_servers_work_and_status_names_the_sandbox_of_each(
    workbench: Workbench, sandbox: str | dict[str, str]
) -> None:
    profile = sandbox if isinstance(sandbox, str) else sandbox["profile"]
    box = {"first": scripted_entry(), "second": scripted_entry(sandbox=sandbox)}
    async with workbench.serving({"box": box}) as client:
        for name in box:
            assert not (await client.use_tool("box", name, "echo", {"text": "hi"})).get("isError")
        (status,) = [each for each in json.loads(run("status", "--json").stdout) if each["pid"] == client.pid]
        found = {each["server"]: each["sandbox"] for each in status["servers"]}
        assert (found["first"]["profile"], found["second"]["profile"]) == ("guard", profile)
        assert found["second"]["missing"] == []
        shown = run("status", "--long").stdout
        assert (f"sandbox: {profile}" in shown) == (profile != "guard")
        homes = [str(each) for each in (workbench.folder / "data/mcp-workbench/homes").glob("*")]
        assert homes == ([] if profile == "guard" else [found["second"]["home"]])
        assert all(f"its home folder: {each}" in shown for each in homes)


@pytest.mark.parametrize("profile", ["contained", "sealed"])
async def test_a_contained_server_does_not_even_reach_our_sockets(workbench: Workbench, profile: str) -> None:
    folder = workbench.folder / "work"
    box = {"attacker": {**attacker(folder), "sandbox": profile}, "victim": scripted_entry()}
    policy = [{"tools": ["box/victim/echo"], "then": "ask"}, {"then": "allow"}]
    async with workbench.serving({"box": box}, env={**os.environ, DEBUGGER: ""}, policy=policy) as client:
        await client.use_tool("box", "attacker", "echo", {"text": "started"})
        await client.use_tool("box", "victim", "echo", {"text": "1"})
        shown = json.loads(run("status", "--json").stdout)
        (approval,) = [each["id"] for status in shown for each in status["approvals"]]
        got = await results(folder, {"sockets": runtime_folder(), "pid": client.pid, "approval": approval})
        assert {answer for each in got.values() for answer in each.values()} == {"PermissionError"}
        assert (await client.use_tool("box", "victim", "echo", {"text": "1"})).get("isError"), "nothing was approved"


@pytest.mark.parametrize("sandbox", [*PROFILES, WITH_BWRAP])
async def test_nothing_is_left_in_a_sandbox_when_the_workbench_is_killed(workbench: Workbench, sandbox: object) -> None:
    box = {name: scripted_entry(sandbox=sandbox) for name in ("first", "second")}
    async with workbench.serving({"box": box}, expect_exit=False) as client:
        for name in box:
            await client.use_tool("box", name, "echo", {"text": "hi"})
        started = descendants(client.pid)
        assert len(started) >= 2
        client.process.kill()
        await eventually(lambda: not any(map(alive, started)), what="the end of all servers")


# Leaves its session, its parent and its environment, and gives itself other limits as far as it may.
_DAEMON = """
import os, resource
if not os.fork():
    os.setsid()
    if not os.fork():
        try:
            hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
            resource.setrlimit(resource.RLIMIT_RTTIME, (hard, hard))
        except (ValueError, OSError):
            pass
        os.dup2(os.open("/dev/null", os.O_RDWR), 1)
        script = 'echo $$ >"$1.tmp" && mv "$1.tmp" "$1"; while :; do sleep 600; done'
        os.execve("/bin/sh", ["sh", "-c", script, "sh", WRITTEN], {"PATH": "/usr/bin:/bin"})
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("profile", PROFILES)
async def test_not_even_a_daemon_that_hides_is_left_when_the_workbench_is_killed(
    workbench: Workbench, profile: str
) -> None:
    written = workbench.folder / "work" / "daemon"
    (workbench.folder / "server").mkdir()
    script = workbench.folder / "server" / "server.py"
    source = Path(__file__).with_name("fetching_server.py").read_text()
    before, after = source.split("TOOL =")
    script.write_text(f"{before}\nWRITTEN = {str(written)!r}\n{_DAEMON}\nTOOL ={after}")
    entry: Json = {
        "command": "/usr/bin/python3",
        "args": [str(script), str(workbench.folder / "work")],
        "sandbox": profile,
    }
    async with workbench.serving({"box": {"hiding": entry}}, expect_exit=False) as client:
        assert unavailable(await open_toolbox(client, "box")) == {}
        await eventually(written.exists, what="the daemon")
        daemon = int(written.read_text())
        try:
            assert alive(daemon)
            client.process.kill()
            await eventually(lambda: not alive(daemon), what="the end of the daemon")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)


async def test_dead_server_reports_sandbox_denials_and_a_remedy(workbench: Workbench) -> None:
    secret = workbench.folder / "secret"
    secret.write_text("x")
    broken: Json = {"command": sys.executable, "args": ["-c", f"open({str(secret)!r})"], "sandbox": "contained"}
    async with workbench.serving({"box": {"fine": scripted_entry(), "broken": broken}}) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
        assert found["server"] == "broken"
        text = json.dumps(found)
        assert "it ran in the sandbox `contained`" in text and f"it was denied `{secret}`" in text
        assert "mcp-workbench doctor --sandbox try box/broken" in text


async def test_unenforceable_sandbox_stops_only_its_server(workbench: Workbench) -> None:
    hosts = {"profile": "contained", "network": ["example.org"]}
    box = {
        "fine": scripted_entry(),
        "strict": scripted_entry(sandbox={**hosts, "backend": "landlock"}),
        "lenient": scripted_entry(sandbox={**hosts, "backend": "landlock", "bestEffort": True}),
    }
    async with workbench.serving({"box": box}) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
        assert found["server"] == "strict" and "cannot limit its network to hosts" in found["reason"]
        (status,) = [each for each in json.loads(run("status", "--json").stdout) if each["pid"] == client.pid]
        missing = {each["server"]: each["sandbox"].get("missing") for each in status["servers"]}
        assert len(missing["lenient"]) == 1 and missing["fine"] == []


async def test_a_server_that_dies_right_after_its_handshake_says_so_too(workbench: Workbench) -> None:
    secret = workbench.folder / "secret"
    secret.write_text("x")
    (workbench.folder / "server").mkdir()
    script = workbench.folder / "server" / "server.py"
    source = Path(__file__).with_name("fetching_server.py").read_text()
    # Opens the file when it is asked for its tools.
    script.write_text(source.replace('answer["result"] = {"tools": [TOOL]}', f"open({str(secret)!r})"))
    broken: Json = {"command": "/usr/bin/python3", "args": [str(script)], "sandbox": "contained"}
    async with workbench.serving({"box": {"fine": scripted_entry(), "broken": broken}}) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
        text = json.dumps(found)
        assert found["server"] == "broken" and "it ran in the sandbox `contained`" in text
        assert f"it was denied `{secret}`" in text
