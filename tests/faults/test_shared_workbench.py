"""The shared workbench in bad surroundings: each has a clear text, and clients are served all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.process_context import WANTED_FILE, make_private, runtime_folder
from mcp_workbench.sharing.front.joining import log_path, socket_path
from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.client import RawClient, RpcError
from tests.support.processes import wait_until
from tests.support.workbench import scripted_entry, workbench_command, write_config

BOX = {"box": {"server": scripted_entry()}}
HURRIED = str(Path(__file__).parents[1] / "sharing" / "hurried_front_end.py")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(tmp_path)
    yield shared
    shared.clean_up()


def enable_sharing() -> None:
    make_private(runtime_folder())
    Path(runtime_folder(), WANTED_FILE).touch()


def hurried(config: Path, *, start: float = 1.0, silence: float = 0.5) -> list[str]:
    _, _, _, *arguments = workbench_command(config)
    return [sys.executable, HURRIED, str(start), str(silence), *arguments]


# The socket


@pytest.mark.parametrize("settings", [{}, {"shared": True}], ids=["up", "shared"])
async def test_a_stale_socket_is_replaced(shared: Shared, settings: dict[str, Any]) -> None:
    make_private(runtime_folder())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(socket_path())
    if not settings:
        enable_sharing()
    async with shared.client(BOX, **settings) as client:
        assert await client.request("ping") == {}
        assert client.stderr == ""
    assert len(shared.pids) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_the_socket_of_another_user_is_not_used(shared: Shared) -> None:
    enable_sharing()
    script = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); "
    script += "s.listen(); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script, socket_path()], **pipes) as other:  # type: ignore[call-overload]
        other.stdout.readline()
        async with shared.client(BOX) as client:
            assert await client.request("ping") == {}
            assert f"`{socket_path()}` belongs to another user (uid 65534); serving alone" in client.stderr
        other.stdin.close()


@pytest.mark.requirement("sharing.alone")
async def test_a_folder_that_others_can_enter_is_not_used(shared: Shared) -> None:
    enable_sharing()
    os.chmod(runtime_folder(), 0o777)
    done = run("up")
    assert done.status == 1 and "can be entered by other users, or belongs to one" in done.stderr
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
        assert "can be entered by other users" in client.stderr and "serving alone" in client.stderr
    assert shared.pids == []


async def test_a_path_that_is_too_long_for_a_socket_is_reported(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    done = run("up", env={"XDG_RUNTIME_DIR": str(long)})
    assert done.status == 1 and "is too long for a socket; set `XDG_RUNTIME_DIR` to a shorter one" in done.stderr


@pytest.mark.parametrize(
    "first",
    [
        *(b"", b"\n", b"GET / HTTP/1.1\n", b"[]\n", b'{"hello": "you"}\n', b"\xff" * 100_000),
        # Another version takes the place of an idle workbench; what has none is no front end.
        *(b'{"hello": 1}\n', b'{"hello": 1, "version": "you"}\n', b'{"hello": 1, "version": "0.0.1"}\n'),
    ],
)
async def test_an_invalid_hello_is_refused(shared: Shared, first: bytes) -> None:
    shared.up()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(20)
        stranger.connect(socket_path())
        stranger.sendall(first)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(100).startswith(b"\x01unable the shared workbench refused the connection: ")
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
    assert "Traceback" not in shared.log and len(shared.pids) == 1


# The process


@pytest.mark.requirement("sharing.exactly-one")
async def test_of_many_that_start_it_at_once_exactly_one_wins(shared: Shared) -> None:
    enable_sharing()
    async with AsyncExitStack() as stack:
        starting = (stack.enter_async_context(shared.client(BOX)) for _ in range(10))
        clients = await asyncio.gather(*starting)
        assert {client.stderr for client in clients} == {""}
    assert len(shared.pids) == 1


@pytest.mark.requirement("sharing.alone")
async def test_a_workbench_that_hangs_is_not_waited_for(shared: Shared) -> None:
    shared.up()
    wait_until(lambda: len(shared.pids) == 1)
    os.kill(shared.pids[0], signal.SIGSTOP)
    try:
        async with RawClient.spawn(hurried(write_config(shared.folder, BOX))) as client:
            await client.initialize()
            assert "the shared workbench did not answer within 1 s" in client.stderr
            assert "serving alone" in client.stderr
    finally:
        os.kill(shared.pids[0], signal.SIGCONT)


async def test_a_workbench_that_begins_to_hang_is_abandoned(shared: Shared) -> None:
    shared.up()
    async with RawClient.spawn(hurried(write_config(shared.folder, BOX), start=20)) as client:
        await client.initialize()
        wait_until(lambda: len(shared.pids) == 1)
        os.kill(shared.pids[0], signal.SIGSTOP)
        try:
            with pytest.raises(RpcError, match="the shared workbench does not answer"):
                await client.call_tool("open_toolbox", {"toolbox_name": "box"})
            echoed = await client.use_tool("box", "server", "echo", {"text": "alone"})
            assert echoed["structuredContent"] == {"text": "alone"}
            assert "serving alone from now on" in client.stderr
        finally:
            os.kill(shared.pids[0], signal.SIGCONT)


async def test_a_long_call_is_no_reason_to_give_a_workbench_up(shared: Shared) -> None:
    shared.up()
    async with RawClient.spawn(hurried(write_config(shared.folder, BOX), start=20, silence=1.5)) as client:
        await client.initialize()
        # Long enough to be asked whether it is there, and to be given up for silence.
        result = await client.use_tool("box", "server", "slow", {"seconds": 4})
        assert not result.get("isError")
        assert client.stderr == ""


@pytest.mark.requirement("sharing.alone")
async def test_one_that_cannot_start_leaves_everybody_alone(shared: Shared, tmp_path: Path) -> None:
    enable_sharing()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise SystemExit(3)")
    config = write_config(shared.folder, BOX)
    env = {**os.environ, "PYTHONPATH": str(broken)}
    async with RawClient.spawn(workbench_command(config), env=env, expect_exit=False) as client:
        await client.wait_for(lambda: "serving alone" in client.stderr, "the front end to give up")
        assert "the shared workbench ends as soon as it starts; `mcp-workbench logs` says why" in client.stderr


async def test_a_full_disk_costs_the_log_and_nothing_else(shared: Shared) -> None:
    os.makedirs(os.path.dirname(log_path()))
    os.symlink("/dev/full", log_path())
    shared.up()
    async with shared.client(BOX) as client:
        echoed = await client.use_tool("box", "server", "echo", {"text": "full"})
        assert echoed["structuredContent"] == {"text": "full"}
        assert client.stderr == ""
    shared.down()


# In namespaces of its own: a file system on which the folder and the lock have room, and nothing else.
ON_A_FULL_DISK = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o mode=700,nr_inodes=3 none "$0" && exec "$@"']


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
@pytest.mark.requirement("sharing.alone")
async def test_a_disk_without_room_for_a_socket_leaves_everybody_alone(shared: Shared) -> None:
    place = os.path.dirname(runtime_folder())
    os.makedirs(place, exist_ok=True)
    mounted = [*ON_A_FULL_DISK, place]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    config = write_config(shared.folder, BOX, shared=True)
    async with RawClient.spawn([*mounted, *workbench_command(config)]) as client:
        await client.initialize()
        echoed = await client.use_tool("box", "server", "echo", {"text": "full"})
        assert echoed["structuredContent"] == {"text": "full"}
        assert "the shared workbench cannot be started: No space left on device; serving alone" in client.stderr


# Clients


async def test_a_client_that_never_reads_does_not_block_others(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX, expect_exit=False) as deaf, shared.client(BOX) as other:
        await deaf.use_tool("box", "server", "echo", {"text": "ready"})
        os.kill(deaf.pid, 0)
        # asyncio stops reading when nobody takes the data; so does the pipe, and so does the front end.
        for task in deaf._readers:
            task.cancel()
        arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "big"}, "arguments": {"bytes": 1_000_000}}
        for _ in range(40):
            await deaf.start_tool("use_tool", arguments)
        for _ in range(20):
            assert await other.request("ping") == {}
        resident = int(Path(f"/proc/{deaf.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < 64 * 1024 * 1024
        os.kill(deaf.pid, signal.SIGKILL)
        wait_until(lambda: "leaves" in shared.log)
        assert await other.request("ping") == {}


async def test_one_signal_ends_an_idle_client_of_a_workbench_that_hangs(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
        os.kill(shared.pids[-1], signal.SIGSTOP)
        try:
            client.process.send_signal(signal.SIGTERM)
            # It waits a while for last answers, and not for ever.
            assert await client.wait_exit() == 0
        finally:
            os.kill(shared.pids[-1], signal.SIGCONT)
