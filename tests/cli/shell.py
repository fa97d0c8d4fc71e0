"""Running the command as people do: in a pipe, or on a terminal.

Owns the child process; what a test asserts is exit status, stdout and stderr together.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "mcp_workbench"]
# Nothing that works comes near it.
TIMEOUT = 60
CTRL_C = b"\x03"
CTRL_D = b"\x04"


class Done(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def under(home: Path, path: Path) -> str:
    """A path as people are shown it."""
    return f"~/{path.relative_to(home)}"


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the test run, without what would colour or redirect the output."""
    hidden = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")
    return {key: value for key, value in os.environ.items() if key not in hidden} | dict(more or {})


def run(
    *arguments: object, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> Done:
    """Run `mcp-workbench` with these arguments, in a pipe."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        env=environment(env),
        cwd=cwd,
    )
    assert "Traceback" not in done.stderr or "last lines of its stderr" in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def on_terminal(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    width: int = 100,
    type_when: Callable[[str], bool] | None = None,
    key: bytes = CTRL_C,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """The same on a terminal of this width: exit status, and everything that was shown.

    The key is typed as soon as `type_when` holds for what has been shown so far.
    """
    pid, descriptor = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.chdir(cwd or os.curdir)
        os.execvpe(COMMAND[0], [*COMMAND, *map(str, arguments)], environment({"TERM": "xterm-256color", **(env or {})}))
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    shown = b""
    try:
        while True:
            if not select.select([descriptor], [], [], TIMEOUT)[0]:
                os.kill(pid, signal.SIGKILL)
                raise TimeoutError(shown.decode(errors="replace"))
            try:
                piece = os.read(descriptor, 65536)
            except OSError as error:
                # How Linux says that the other side of a terminal is gone.
                if error.errno != errno.EIO:
                    raise
                break
            if not piece:
                break
            shown += piece
            if type_when is not None and type_when(shown.decode(errors="replace")):
                os.write(descriptor, key)
                type_when = None
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")
