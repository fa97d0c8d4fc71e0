"""The surroundings of a process of ours: the folder of sockets, the terminal, outer workbenches.

Owns the choice of the folder and the check that it is private. Used on each start, so it imports next to nothing.
"""

from __future__ import annotations

import os
import stat
import sys

from mcp_workbench.engine.portable_os import is_own, user_id

# The shared workbench's socket, the lock it holds while it runs, the file by which `up` requests it, and the port of
# its page while that is open.
SOCKET = "shared.sock"
LOCK_FILE = "shared.lock"
WANTED_FILE = "shared.up"
PAGE_FILE = "shared.page"
# `sun_path` has 108 bytes on Linux and 104 on macOS, including the terminating zero.
MAX_SOCKET_PATH_BYTES = 103
# In the environment of servers and their children: the configurations served by the outer workbenches. Serving one of
# them again would recurse forever.
WITHIN = "MCP_WORKBENCH_WITHIN"
# In the environment of a process that was started, by `exec`, for a client that has been served until now: the
# descriptor of a file that has what is known about it.
CLIENT_VARIABLE = "MCP_WORKBENCH_CLIENT"
# For a person who starts a server by hand and waits for it to do something.
ON_TERMINAL = (
    "this terminal is the MCP client now: what you type is read as JSON-RPC. Ctrl-D or Ctrl-C ends it; "
    "`mcp-workbench --help` lists the commands for people"
)
# Set by a user who wants to attach a debugger or profiler.
DEBUGGER = "WORKBENCH_DEBUGGER"
_PR_SET_DUMPABLE = 4


def runtime_folder() -> str:
    """The folder of this user's sockets.

    Clients start servers with few variables: the SDKs pass on `HOME`, but not `XDG_RUNTIME_DIR`. So if that is not set,
    the folder that it names on every machine with systemd is tried, and then one below `HOME`: `up` in a terminal and a
    process started by a client must find the same folder.
    """
    user = user_id()
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base):
        return os.path.join(base, f"mcp-workbench-{user}")
    base = f"/run/user/{user}"
    if sys.platform == "linux" and is_private(base):
        return os.path.join(base, f"mcp-workbench-{user}")
    return os.path.join(state_folder(), "run")


def state_folder() -> str:
    """The folder for what outlives a restart of the machine: the log of the shared workbench."""
    state = os.environ.get("XDG_STATE_HOME")
    if not (state and os.path.isabs(state)):
        state = os.path.expanduser("~/Library/Application Support" if sys.platform == "darwin" else "~/.local/state")
    return os.path.join(state, "mcp-workbench")


def is_private(path: str) -> bool:
    """Whether it is a folder of this user that no other user can enter."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and is_own(found) and not found.st_mode & 0o077


def make_private(path: str) -> None:
    """Create the folder, which must be ours alone: in a shared folder, another user could have created it before.

    Raises `OSError`.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    if not is_private(path):
        raise PermissionError(f"`{path}` can be entered by other users, or belongs to one")


def has_terminal() -> bool:
    """Whether there is a controlling terminal. The same SIGHUP means that the terminal was closed if it is gone now,
    and otherwise that files should be reloaded."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def hide_memory() -> None:
    """Keep other processes of this user, servers among them, from reading our memory, environment and descriptors.
    There are no core dumps either. Programs that we start are not affected."""
    if sys.platform != "linux" or os.environ.get(DEBUGGER):
        return
    # The module behind `ctypes`, which takes four times as long to import.
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_cdeclfunction(prctl, (_PR_SET_DUMPABLE, 0, 0, 0, 0))
    except (ImportError, OSError):
        # A Python without foreign functions, or a library without this one.
        return
