"""Commands in forks of one process that has imported everything: to start Python and import takes longer than most
commands do, and is paid once.

A fork has streams, an environment and a folder of its own, and starts in `main` as a command does. What is loaded when
is not to be tested this way, nor what a process does before `main`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType

_LENGTH_BYTES = 8


class ForkedCommands:
    """One command at a time: `start`, then `wait`."""

    def __enter__(self) -> ForkedCommands:
        self._socket, theirs = socket.socketpair()
        number = str(theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, number], pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, words: Sequence[str], env: Mapping[str, str], folder: Path, streams: Sequence[int]) -> None:
        """Run this, with these as stdin, stdout and stderr."""
        asked = json.dumps([list(words), dict(env), str(folder)]).encode()
        socket.send_fds(self._socket, [len(asked).to_bytes(_LENGTH_BYTES)], list(streams))
        self._socket.sendall(asked)

    def wait(self) -> int:
        """Its exit status, once it has ended. Raises `IndexError` after `kill`."""
        return self._socket.recv(1)[0]

    def kill(self) -> None:
        """A command does not end: nothing can be run any more."""
        os.killpg(self._process.pid, signal.SIGKILL)


def main(descriptor: int) -> None:
    """Fork for each command that is asked for, until nobody asks any more."""
    for name in ("rich.progress", "mcp_workbench.cli.shared_engine"):
        import_module(name)
    from mcp_workbench.__main__ import main as run

    asking = socket.socket(fileno=descriptor)
    while True:
        length, streams, _, _ = socket.recv_fds(asking, _LENGTH_BYTES, 3)
        if not length:
            return
        words, env, folder = json.loads(asking.recv(int.from_bytes(length), socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            asking.close()
            status = 1
            try:
                _move(env, folder, streams)
                sys.argv = ["mcp-workbench", *words]
                status = run(words)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        for stream in streams:
            os.close(stream)
        asking.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF]))


def _move(env: Mapping[str, str], folder: str, streams: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]))
