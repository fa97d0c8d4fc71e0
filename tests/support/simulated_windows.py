"""A process as on Windows, as far as that can be simulated: `sys.platform` is `win32`, and what only POSIX has is gone.

Imported as a plugin of pytest (`-p tests.support.simulated_windows`), it changes the platform once the tests are
collected. `python -m tests.support.simulated_windows WORDS` runs a command of ours.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import selectors
import signal
import socket
import ssl
import subprocess
import sys
from types import ModuleType
from typing import Final

ABSENT_MODULES: Final = frozenset("fcntl pwd grp termios resource pty tty syslog readline uvloop".split())
# By the documentation of Python: "Availability: Unix", "not Windows".
ABSENT_NAMES: Final = {
    "os": frozenset(
        "fork getuid geteuid getgid getegid killpg setsid getpgid getsid setpgid uname posix_spawn fchmod chown fchown "
        "lchown pipe2 memfd_create pidfd_open mkfifo getgroups sysconf getpriority setpriority nice waitid pread "
        "pwrite readv writev sched_getaffinity statvfs openpty ttyname WNOHANG O_NONBLOCK O_NOFOLLOW O_CLOEXEC "
        "O_DIRECTORY O_PATH O_NOCTTY O_SYNC".split()
    ),
    "socket": frozenset("AF_UNIX SO_PEERCRED SCM_RIGHTS send_fds recv_fds SO_REUSEPORT MSG_DONTWAIT".split()),
    "signal": frozenset(
        "SIGHUP SIGKILL SIGCHLD SIGUSR1 SIGUSR2 SIGSTOP SIGTSTP SIGCONT SIGQUIT SIGALRM SIGPIPE SIGWINCH setitimer "
        "ITIMER_REAL alarm pthread_sigmask sigwait pthread_kill SIG_BLOCK SIG_SETMASK".split()
    ),
    "asyncio": frozenset(("start_unix_server", "open_unix_connection")),
}
# Loaded first: they look at the platform when they are imported, and their own Windows needs modules of Windows.
_LOADED: Final = (asyncio, selectors, ssl, subprocess)


class _Absent:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in ABSENT_MODULES:
            raise ImportError(name)


def apply() -> None:
    """Change this process for good."""
    modules: dict[str, ModuleType] = {"os": os, "socket": socket, "signal": signal, "asyncio": asyncio}
    for module, names in ABSENT_NAMES.items():
        for name in names:
            if hasattr(modules[module], name):
                delattr(modules[module], name)
    for name in ABSENT_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Absent())
    sys.platform = "win32"
    home = os.path.expanduser("~")
    roaming, local = os.path.join(home, "AppData", "Roaming"), os.path.join(home, "AppData", "Local")
    os.environ.update(USERPROFILE=home, APPDATA=roaming, LOCALAPPDATA=local)
    from platformdirs import windows

    # Instead of the registry or a DLL.
    windows.get_win_folder = windows.get_win_folder_from_env_vars


def pytest_collection_finish() -> None:
    apply()


if __name__ == "__main__":
    apply()
    sys.exit(importlib.import_module("mcp_workbench.cli.dispatch").run(sys.argv[1:]))
