"""Limits of resources, which belong to a process and not to a thread: a shell sets them and becomes the server."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from mcp_workbench.engine.sandbox.sandbox import Sandbox

_PROC: Final = "/proc"
_PS_TIMEOUT: Final = 5.0
# Shells disagree on the letter for processes. A limit that cannot be set ends the start.
_PROCESSES = "{{ ulimit -u {0} 2>/dev/null || ulimit -p {0}; }} || exit 126; "


def limiting(sandbox: Sandbox, most_tasks: int | None = None) -> tuple[str, ...]:
    """The program that sets the limits of a sandbox and starts what follows; empty if it has none. `most_tasks` is the
    limit where the system counts those of the sandbox alone."""
    limits = ""
    if sandbox.cpu_seconds is not None:
        limits += f"ulimit -t {sandbox.cpu_seconds} || exit 126; "
    if sandbox.processes is not None:
        # Otherwise the system counts all tasks of the user.
        limits += _PROCESSES.format(most_tasks or sandbox.processes + _tasks_of_user())
    if sandbox.memory is not None:
        # Not the address space, of which V8 reserves far more than it uses.
        limits += f"ulimit -d {sandbox.memory // 1024} || exit 126; "
    return ("/bin/sh", "-c", f'{limits}exec "$@"', "sh") if limits else ()


def _tasks_of_user() -> int:
    user, found = os.getuid(), 0
    if not os.path.exists(_PROC):
        return _processes_by_ps(user)
    if os.stat(f"{_PROC}/self").st_uid != user:
        # What cannot be inspected seems to be root's. So do we.
        found = len(os.listdir(f"{_PROC}/self/task"))
    try:
        with os.scandir(_PROC) as entries:
            for entry in entries:
                if entry.name.isdecimal():
                    found += _tasks_of(entry.path, user)
    except OSError:
        return 0
    return found


def _processes_by_ps(user: int) -> int:
    """macOS, which counts processes alone."""
    try:
        said = subprocess.run(("/bin/ps", "-A", "-o", "uid="), capture_output=True, timeout=_PS_TIMEOUT).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return said.split().count(str(user).encode())


def _tasks_of(process: str, user: int) -> int:
    try:
        # A folder has two links, and one for each folder in it.
        return os.stat(f"{process}/task").st_nlink - 2 if os.stat(process).st_uid == user else 0
    except OSError:
        return 0
