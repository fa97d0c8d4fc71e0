"""A front end and a shared workbench of different versions."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench import __version__
from mcp_workbench.front.joining import socket_path
from mcp_workbench.front.line_protocol import PROTOCOL, written_hello
from tests.shared.harness import Shared
from tests.support.processes import wait_until
from tests.support.workbench import scripted_entry, write_config

BOX = {"box": {"server": scripted_entry()}}


def answer_to(config: Path, *, version: str = "0.0.1", protocol: int = PROTOCOL) -> str:
    """What a front end of this version is answered."""
    hello = json.loads(written_hello(["--config", str(config)]))
    hello |= {"version": version, "hello": protocol}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(socket_path())
        connection.sendall(json.dumps(hello).encode() + b"\n")
        return connection.makefile("rb").readline()[1:-1].decode()


@pytest.mark.requirement("sharing.versions")
def test_an_idle_one_makes_room_for_the_other_version(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, BOX)
    assert answer_to(config) == f"again version 0.0.1 takes the place of {__version__}"
    shared.wait_until_gone()
    shared.up()
    assert len(shared.pids) == 2


@pytest.mark.requirement("sharing.versions")
async def test_a_busy_one_is_joined_when_it_speaks_the_same_protocol(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX):
        config = write_config(shared.folder, BOX)
        assert answer_to(config).startswith(f"accepted {__version__} ")
        wait_until(lambda: shared.log.count("leaves") == 1)
    assert len(shared.pids) == 1


@pytest.mark.requirement("sharing.versions")
async def test_a_busy_one_that_speaks_another_protocol_is_left_alone(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX) as client:
        config = write_config(shared.folder, BOX)
        answer = answer_to(config, protocol=PROTOCOL + 1)
        assert answer.startswith("unable ") and "mcp-workbench restart" in answer
        assert await client.request("ping") == {}
    assert len(shared.pids) == 1


def other_version(folder: Path, *, protocol: int = PROTOCOL) -> dict[str, str]:
    """The environment in which commands are of version 9.9.9: a whole copy of the package, and not a claim."""
    package = folder / "other" / "mcp_workbench"
    shutil.copytree(Path(mcp_workbench.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (
        ("__init__.py", f'"{__version__}"', '"9.9.9"'),
        ("front/line_protocol.py", f"PROTOCOL: Final = {PROTOCOL}", f"PROTOCOL: Final = {protocol}"),
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
        assert "they do not understand each other; run `mcp-workbench restart`; serving alone" in client.stderr
    assert len(shared.pids) == 1
