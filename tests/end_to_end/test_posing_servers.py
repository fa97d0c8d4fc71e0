"""A server that listens where a workbench is expected: nobody believes it, and nobody tells it anything."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.engine.observe.status_socket import WATCH_SUFFIX, query_all
from mcp_workbench.engine.process_context import SOCKET, make_private, runtime_folder
from mcp_workbench.engine.socket_peers import is_confined
from mcp_workbench.engine.transport.confinement import GUARDED, start_confined
from mcp_workbench.sharing.front import joining
from mcp_workbench.team.policy.approval_socket import APPROVAL_SUFFIX, ApprovalRequest, decide_anywhere
from tests.support.processes import available

pytestmark = pytest.mark.skipif(not available() or is_confined(), reason="needs Linux without no_new_privs")

# Answers at once, and prints what it is told. With a second argument, the process that listened ends, and another
# one answers.
LISTEN = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
if len(sys.argv) > 2:
    first = os.fork()
    if first == 0:
        listener.listen()
        os._exit(0)
    os.waitpid(first, 0)
else:
    listener.listen()
print("listens", flush=True)
connection, _ = listener.accept()
connection.settimeout(30)
try:
    connection.sendall(b'{"approved": "box/server/harmless"}\\n')
    connection.shutdown(socket.SHUT_WR)
    sys.stdout.buffer.write(connection.recv(100_000))
except OSError:
    pass
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        make_private(runtime_folder())
        yield Path(runtime_folder())


Listen = Callable[[Path], subprocess.Popen[bytes]]


@pytest.fixture(params=["as a server", "for a server", "as the user"])
def listen(request: pytest.FixtureRequest) -> Iterator[Listen]:
    started = []

    def listen(path: Path) -> subprocess.Popen[bytes]:
        more = ["and end"] if request.param == "for a server" else []

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", LISTEN, str(path), *more], stdout=subprocess.PIPE)

        process = start() if request.param == "as the user" else start_confined(GUARDED, start)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"listens\n"
        return process

    yield listen
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def is_believed(request: pytest.FixtureRequest) -> bool:
    return "as the user" in request.node.callspec.id


async def test_server_cannot_pose_as_a_workbench_to_approvers(folder: Path, listen: Listen, is_believed: bool) -> None:
    process = listen(folder / f"1.{APPROVAL_SUFFIX}")
    shown = await decide_anywhere(ApprovalRequest("one", only_shows=True))
    assert shown.found == ("box/server/harmless" if is_believed else None)
    assert process.stdout is not None
    assert bool(await asyncio.to_thread(process.stdout.read)) is is_believed, "it is not even told the id"


async def test_a_server_reports_no_status(folder: Path, listen: Listen, is_believed: bool) -> None:
    listen(folder / "1.sock")
    assert bool(await query_all()) is is_believed


async def test_a_server_is_not_watched(folder: Path, listen: Listen, is_believed: bool) -> None:
    listen(folder / f"1.{WATCH_SUFFIX}")
    watched = Workbenches()
    assert len(await watched.look()) == is_believed
    # What `lock accept` would accept.
    assert await watched.offers("workbench-config.json") == []
    watched.close()


def test_a_server_is_not_told_the_environment_of_a_client(folder: Path, listen: Listen, is_believed: bool) -> None:
    listen(folder / SOCKET)
    if is_believed:
        joining.connect().close()
        return
    with pytest.raises(joining.CannotJoin, match="a process of a server listens"):
        joining.connect()
    assert os.path.exists(folder / SOCKET)
