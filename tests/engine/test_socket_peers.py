"""Who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine import socket_peers
from mcp_workbench.engine.socket_peers import is_confined, is_of_server, may_ask, may_decide
from mcp_workbench.engine.transport.confinement import GUARDED, start_confined
from tests.support.processes import available

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not available() or is_confined(), reason="needs Linux without no_new_privs"),
]

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(folder) / "s"))
        listener.listen()
        listener.settimeout(30)
        yield listener


def connect(listener: socket.socket, then: str = "s.recv(1)") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CONNECT + then, listener.getsockname()])


def verdicts(connection: socket.socket) -> tuple[bool | None, bool, bool]:
    return is_of_server(connection), may_ask(connection), may_decide(connection)


def test_a_command_of_the_user_is_distinguished_from_a_server(listener: socket.socket) -> None:
    own = connect(listener)
    first, _ = listener.accept()
    server = start_confined(GUARDED, lambda: connect(listener))
    second, _ = listener.accept()
    with first, second:
        before = len(os.listdir("/proc/self/fd"))
        assert verdicts(first) == (False, True, True)
        assert verdicts(second) == (True, False, False)
        assert len(os.listdir("/proc/self/fd")) == before
    own.wait()
    server.wait()


def test_a_process_that_has_ended_since_decides_nothing(listener: socket.socket) -> None:
    connect(listener, "s.send(b'x')").wait()
    connection, _ = listener.accept()
    with connection:
        assert verdicts(connection) == (True, False, False)


def test_before_linux_6_5_the_number_of_the_process_has_to_do(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_peers, "_SO_PEERPIDFD", 32_000)
    own = connect(listener)
    first, _ = listener.accept()
    server = start_confined(GUARDED, lambda: connect(listener))
    second, _ = listener.accept()
    with first, second:
        assert verdicts(first) == (False, True, True)
        assert verdicts(second) == (True, False, False)
    own.wait()
    server.wait()
    with second:
        assert may_decide(first) is may_decide(second) is False


def test_if_every_process_is_marked_all_may_ask_and_none_decides(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = connect(listener)
    connection, _ = listener.accept()
    with connection:
        monkeypatch.setattr(socket_peers, "_has_mark", lambda pid: True)
        assert verdicts(connection) == (True, True, False)
        monkeypatch.setattr(socket_peers, "_has_mark", lambda pid: None)
        assert verdicts(connection) == (None, True, False)
    own.wait()


def test_another_user_may_do_nothing(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    own = connect(listener)
    connection, _ = listener.accept()
    with connection:
        monkeypatch.setattr(socket_peers, "peer_uid", lambda connection: os.getuid() + 1)
        assert (may_ask(connection), may_decide(connection)) == (False, False)
    own.wait()
