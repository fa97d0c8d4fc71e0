"""A front end and a shared workbench of different versions."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench import __version__
from mcp_workbench.engine.version import full_version
from mcp_workbench.sharing.front.joining import socket_path
from mcp_workbench.sharing.front.line_protocol import PROTOCOL, written_hello
from tests.cli.shell import Done, run
from tests.sharing.harness import Shared
from tests.support.client import RawClient
from tests.support.processes import wait_until
from tests.support.workbench import scripted_entry, write_config

BOX = {"box": {"server": scripted_entry()}}


def answer_to(config: Path, *, version: str = "9.9.9", protocol: int = PROTOCOL, started: float = 0.0) -> str:
    """What a front end of this version is answered."""
    hello = json.loads(written_hello(["--config", str(config)]))
    hello |= {"version": version, "hello": protocol, "started": started}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(socket_path())
        connection.sendall(json.dumps(hello).encode() + b"\n")
        return connection.makefile("rb").readline()[1:-1].decode()


@pytest.mark.requirement("sharing.versions")
def test_an_idle_one_makes_room_for_a_newer_version_alone(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, BOX)
    assert answer_to(config, version="0.0.1").startswith(f"accepted {full_version()} ")
    wait_until(lambda: shared.log.count("leaves") == 1)
    assert answer_to(config, version="0.0.1", protocol=PROTOCOL + 1).endswith("; restart the client")
    assert answer_to(config, version="9.9.9") == f"again version 9.9.9 takes the place of {full_version()}"
    shared.wait_until_gone()
    shared.up()
    assert len(shared.pids) == 2


@pytest.mark.requirement("sharing.versions")
def test_an_idle_one_makes_room_for_another_commit_that_was_started_later(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, BOX)
    other = f"{__version__}+g0000000"
    assert answer_to(config, version=other, started=1.0).startswith(f"accepted {full_version()} ")
    wait_until(lambda: shared.log.count("leaves") == 1)
    assert answer_to(config, version=other, started=time.monotonic()).startswith(f"again version {other} ")
    shared.wait_until_gone()


@pytest.mark.requirement("sharing.versions")
async def test_a_busy_one_is_joined_when_it_speaks_the_same_protocol(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX):
        config = write_config(shared.folder, BOX)
        assert answer_to(config).startswith(f"accepted {full_version()} ")
        wait_until(lambda: shared.log.count("leaves") == 1)
    assert len(shared.pids) == 1


@pytest.mark.requirement("sharing.versions")
async def test_a_busy_one_that_speaks_another_protocol_is_left_alone(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX) as client:
        config = write_config(shared.folder, BOX)
        answer = answer_to(config, protocol=PROTOCOL + 1)
        assert answer.startswith("unable ") and "mcp-workbench up --restart" in answer
        assert await client.request("ping") == {}
    assert len(shared.pids) == 1


def other_version(folder: Path, *, version: str = "9.9.9", protocol: int = PROTOCOL) -> dict[str, str]:
    """The environment in which commands are of this version: a whole copy of the package, and not a claim. One that is
    there already is updated in place."""
    package = folder / "other" / "mcp_workbench"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(Path(mcp_workbench.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (
        ("__init__.py", f'"{__version__}"', f'"{version}"'),
        ("sharing/front/line_protocol.py", f"PROTOCOL: Final = {PROTOCOL}", f"PROTOCOL: Final = {protocol}"),
    ):
        text = (package / name).read_text()
        assert old in text
        (package / name).write_text(text.replace(old, new))
    return {**os.environ, "PYTHONPATH": str(package.parent)}


@pytest.mark.requirement("sharing.versions")
async def test_another_version_takes_the_place_of_an_idle_one(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(BOX, env=other_version(tmp_path)) as client:
        assert await client.use_tool("box", "server", "echo", {"text": "1"})
        assert "shared workbench 9.9.9 ready" in shared.log
    assert len(shared.pids) == 2


@pytest.mark.requirement("sharing.versions")
async def test_another_version_joins_a_busy_one(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client(BOX) as first, shared.client(BOX, env=other_version(tmp_path)) as client:
        pids = [(await each.use_tool("box", "server", "pid"))["structuredContent"]["pid"] for each in (first, client)]
        assert pids[0] == pids[1], "they share the server"
    assert len(shared.pids) == 1


@pytest.mark.requirement("sharing.versions")
async def test_another_version_that_speaks_another_protocol_serves_alone_beside_a_busy_one(
    shared: Shared, tmp_path: Path
) -> None:
    shared.up()
    environment = other_version(tmp_path, protocol=PROTOCOL + 1)
    async with shared.client(BOX) as first, shared.client(BOX, env=environment) as client:
        pids = [(await each.use_tool("box", "server", "pid"))["structuredContent"]["pid"] for each in (first, client)]
        assert pids[0] != pids[1]
        assert "they do not understand each other; run `mcp-workbench up --restart`; serving alone" in client.stderr
    assert len(shared.pids) == 1


async def rejoined(client: RawClient) -> None:
    await client.wait_for(lambda: "joined the one" in client.stderr, "the front end to join again")


def update_in_place(folder: Path) -> None:
    """Replace version 0.0.1 by 9.9.9, whose modules do not go with what old processes have loaded."""
    other_version(folder)
    package = folder / "other" / "mcp_workbench"
    for path in package.rglob("*.py"):
        text = path.read_text()
        path.write_text(text.replace("runtime_folder", "folder_of_sockets").replace("WITHIN", "WORKBENCHES_ABOVE"))


@pytest.mark.requirement("sharing.versions")
async def test_after_an_update_in_place_old_front_ends_share_the_new_workbench(shared: Shared, tmp_path: Path) -> None:
    env = other_version(tmp_path, version="0.0.1")
    assert run("up", env=env).status == 0
    async with (
        shared.client(BOX, env=env) as first,
        shared.client(BOX, env=env) as second,
        shared.client(BOX, env=env) as third,
    ):
        clients = (first, second, third)
        update_in_place(tmp_path)
        done = run("restart", env=env)
        assert done.status == 0, done
        for client in clients:
            await rejoined(client)
        pids = {(await each.use_tool("box", "server", "pid"))["structuredContent"]["pid"] for each in clients}
        assert len(pids) == 1, "they share the server"
        assert len(shared.pids) == 2 and "shared workbench 9.9.9 ready" in shared.log
        assert f"(process {shared.pids[-1]})" in done.stdout, "what `restart` says is so"
        assert "takes the place" not in shared.log


@pytest.mark.requirement("sharing.versions")
async def test_restarting_with_another_version_answers_the_calls_that_run(shared: Shared, tmp_path: Path) -> None:
    env = other_version(tmp_path, version="0.0.1")
    assert run("up", env=env).status == 0
    asking = {"box": {"server": scripted_entry("--era", "legacy")}}
    may: dict[str, object] = {"elicitation": {}}
    async with (
        shared.client(asking, env=env, capabilities=may) as first,
        shared.client(asking, env=env, capabilities=may) as second,
    ):
        other_version(tmp_path)
        noted = run("--version", env=env)
        assert noted.stdout == "mcp-workbench 9.9.9\n" and "runs 0.0.1" in noted.stderr
        assert "mcp-workbench up --restart" in noted.stderr
        # They last until their question is answered, however long the restart takes here.
        calls = []
        for client in (first, second):
            client.silent.add("elicitation/create")
            calls += [asyncio.create_task(client.use_tool("box", "server", "ask")) for _ in range(3)]
            await client.wait_for(lambda one=client: len(one.server_requests) == 3, "the questions")  # type: ignore[misc]
        done = await asyncio.to_thread(run, "up", "--restart", env=env)
        assert done.status == 0, done
        assert "finishes 6 calls" in done.stderr
        # In the meantime they are served, by the one that has their calls.
        assert await first.use_tool("box", "server", "echo", {"text": "meanwhile"})
        for client in (first, second):
            for question in client.server_requests:
                accepted = {"action": "accept", "content": {}}
                await client.send({"jsonrpc": "2.0", "id": question["id"], "result": accepted})
        for answer in await asyncio.gather(*calls):
            assert "isError" not in answer
        for client in (first, second):
            await rejoined(client)
            assert await client.use_tool("box", "server", "echo", {"text": "after"})
        assert run("--version", env=env) == Done(0, "mcp-workbench 9.9.9\n", "")


@pytest.mark.requirement("sharing.versions")
async def test_a_front_end_that_goes_on_alone_after_an_update_is_the_new_version(
    shared: Shared, tmp_path: Path
) -> None:
    env = other_version(tmp_path, version="0.0.1")
    assert run("up", env=env).status == 0
    async with shared.client(BOX, env=env) as first, shared.client(BOX, env=env) as second:
        await second.use_tool("box", "server", "echo", {"text": "1"})
        update_in_place(tmp_path)
        assert run("down", env=env).status == 0
        for client in (first, second):
            assert await client.use_tool("box", "server", "echo", {"text": "2"})
            assert client.stderr.count("serving alone from now on") == 1
        shown = {each["pid"]: each["version"] for each in json.loads(run("status", "--json", env=env).stdout)}
        assert shown == {first.pid: "9.9.9", second.pid: "9.9.9"}
