"""A running shared workbench stays within reach, whoever cleans up the folder of its socket."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.cli import serve
from mcp_workbench.engine.process_context import LOCK_FILE, SOCKET, WANTED_FILE, make_private, runtime_folder
from mcp_workbench.sharing.front import joining
from mcp_workbench.sharing.front.joining import listen, lock_holder, sign_lock, socket_path, take_lock
from mcp_workbench.sharing.workbench import Displaced, SocketPlace
from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.processes import alive, wait_until
from tests.support.workbench import scripted_entry

BOX = {"box": {"server": scripted_entry()}}


@pytest.mark.requirement("sharing.socket")
@pytest.mark.parametrize("what", ["socket", "folder"])
async def test_a_removed_socket_or_folder_is_recreated_while_clients_are_served(shared: Shared, what: str) -> None:
    shared.up()
    async with shared.client(BOX) as first:
        before = (await first.use_tool("box", "server", "pid"))["structuredContent"]["pid"]
        if what == "socket":
            os.unlink(socket_path())
        else:
            shutil.rmtree(runtime_folder())
        wait_until(lambda: shared.has_socket and shared.is_running, what="the socket")
        async with shared.client(BOX) as second:
            for client in (first, second):
                assert (await client.use_tool("box", "server", "pid"))["structuredContent"]["pid"] == before
            assert "serving alone" not in first.stderr + second.stderr
        assert f"running already (process {shared.pids[0]})" in run("up").stdout
        assert "box" in run("status").stdout
    shared.down()
    assert len(shared.pids) == 1 and not shared.is_running


@pytest.mark.requirement("sharing.socket")
def test_a_socket_that_is_removed_again_at_once_is_recreated_again(shared: Shared) -> None:
    shared.up()
    for _ in range(5):
        os.unlink(socket_path())
        wait_until(lambda: os.path.lexists(socket_path()), what="the socket")
    shared.down()


@pytest.mark.requirement("sharing.socket")
def test_a_client_that_comes_while_there_is_no_socket_waits_for_it_and_starts_no_other(shared: Shared) -> None:
    shared.up()
    os.unlink(socket_path())
    assert f"(process {shared.pids[0]})" in run("up").stdout
    os.unlink(socket_path())
    done = run("restart")
    assert done.status == 0 and f"(process {shared.pids[-1]})" in done.stdout
    assert len(shared.pids) == 2
    wait_until(lambda: not alive(shared.pids[0]), what="the end of the first")
    os.unlink(socket_path())
    done = run("down")
    assert done.stdout.startswith(f"The shared workbench (process {shared.pids[-1]}) has ended.")
    assert not shared.is_running


HOLDER = """
import os, signal, sys, time
from mcp_workbench.sharing.front.joining import sign_lock, take_lock
lock = take_lock(sys.argv[1])
sign_lock(lock)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("held", flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and does not listen."""
    make_private(runtime_folder())
    process = subprocess.Popen([sys.executable, "-c", HOLDER, runtime_folder()], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.requirement("sharing.socket")
def test_down_ends_the_holder_of_the_lock_that_cannot_be_reached(holder: subprocess.Popen[str]) -> None:
    assert lock_holder() == holder.pid
    done = run("down")
    assert (done.status, done.stdout) == (0, f"The shared workbench (process {holder.pid}) has ended.\n")
    assert holder.wait(30) == 0
    assert lock_holder() is None
    assert run("down").stdout == "No shared workbench is running.\n"


@pytest.mark.requirement("sharing.socket")
def test_a_client_that_is_just_starting_does_not_wait_for_the_end_of_one(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(joining, "WORKBENCH_START_TIMEOUT", 0.1)
    # Longer than any test may take.
    monkeypatch.setattr(joining, "WORKBENCH_END_TIMEOUT", 10_000.0)
    serve._start_shared_workbench()
    assert "neither became ready nor exited within" in capsys.readouterr().err
    assert alive(holder.pid)


# The place itself


@pytest.fixture
def place() -> Iterator[tuple[SocketPlace, int]]:
    folder = runtime_folder()
    make_private(folder)
    (Path(folder) / WANTED_FILE).touch()
    lock = take_lock(folder)
    assert lock is not None
    sign_lock(lock)
    with socket.socket(fileno=listen(folder).detach()) as listener:
        yield SocketPlace(listener, lock), lock
    os.close(lock)


def test_socket_in_place_stays(place: tuple[SocketPlace, int]) -> None:
    assert place[0].restore() is None
    assert lock_holder() == os.getpid()


def test_a_socket_of_somebody_without_the_lock_is_replaced(place: tuple[SocketPlace, int]) -> None:
    os.unlink(socket_path())
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(socket_path())
        made = place[0].restore()
    assert made is not None
    with made, socket.socket(socket.AF_UNIX) as client:
        client.connect(socket_path())
        made.accept()[0].close()
    place[0].remove()
    assert not os.path.lexists(socket_path())


def test_after_the_folder_everything_is_there_again(place: tuple[SocketPlace, int]) -> None:
    shutil.rmtree(runtime_folder())
    made = place[0].restore()
    assert made is not None
    made.close()
    assert sorted(os.listdir(runtime_folder())) == sorted([LOCK_FILE, SOCKET, WANTED_FILE])
    assert lock_holder() == os.getpid()
    assert not os.get_inheritable(place[1])


def test_another_workbench_that_was_started_since_is_left_alone(place: tuple[SocketPlace, int]) -> None:
    shutil.rmtree(runtime_folder())
    make_private(runtime_folder())
    other = take_lock(runtime_folder())
    assert other is not None
    with socket.socket(fileno=listen(runtime_folder()).detach()):
        with pytest.raises(Displaced):
            place[0].restore()
        place[0].remove()
        assert os.path.lexists(socket_path())
    os.close(other)


def test_restoring_the_socket_does_not_undo_down(place: tuple[SocketPlace, int]) -> None:
    os.unlink(os.path.join(runtime_folder(), WANTED_FILE))
    os.unlink(socket_path())
    made = place[0].restore()
    assert made is not None
    made.close()
    assert not os.path.lexists(os.path.join(runtime_folder(), WANTED_FILE))
