"""Who is at the other end of one of our Unix sockets: which user, and whether it is a server's process.

Servers run as our user, so the user alone does not tell them from a person's commands. But every server is started with
`no_new_privs` (`engine.transport.confinement`), which its descendants inherit and none can take off, daemons included.
A process without it is nobody's server. In some containers everything has it, ourselves included: then the two cannot
be told apart.

On macOS there is no such mark, and only processes that still have us among their ancestors are recognised.
"""

from __future__ import annotations

import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

IS_LINUX: Final = sys.platform == "linux"
# Since Linux 6.5; not in Python's `socket` yet.
_SO_PEERPIDFD: Final = 77
_PROC_PIDTBSDINFO: Final = 3
# Generations between a server and whatever it started.
_MAX_GENERATIONS: Final = 64


def peer_uid(connection: _socket.socket) -> int | None:
    """Return the user of the process at the other end; None if the system does not reveal it. Raises `OSError`."""
    if IS_LINUX:
        # struct ucred { pid, uid, gid }
        found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(found[4:8], sys.byteorder)
    if sys.platform == "darwin":
        # struct xucred { version, uid, … } of LOCAL_PEERCRED at SOL_LOCAL
        found = connection.getsockopt(0, 1, 76)
        return int.from_bytes(found[4:8], sys.byteorder)
    return None


def peer_pid(connection: _socket.socket) -> int | None:
    """Return the process at the other end; None if the system does not reveal it. Raises `OSError`."""
    if IS_LINUX:
        found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(found[:4], sys.byteorder)
    if sys.platform == "darwin":
        # LOCAL_PEERPID at SOL_LOCAL
        return int(connection.getsockopt(0, 2))
    return None


def described_peer(connection: _socket.socket) -> str:
    """Name the user and the process at the other end, for the audit. Raises `OSError`."""
    import pwd

    uid, pid = peer_uid(connection), peer_pid(connection)
    try:
        name = "" if uid is None else pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    return " ".join(filter(None, (name, "" if pid is None else f"(process {pid})")))


def may_ask(connection: _socket.socket) -> bool:
    """Whether it may look at a workbench, use it and stop servers: our user, and not recognised as a server."""
    try:
        if peer_uid(connection) not in (None, os.getuid()):
            return False
        return not is_of_server(connection) or is_confined()
    except OSError:
        return False


def may_decide(connection: _socket.socket) -> bool:
    """Whether it may speak for the user: our user, and certainly not a server."""
    try:
        return peer_uid(connection) in (None, os.getuid()) and is_of_server(connection) is False
    except OSError:
        return False


def is_posing(connection: _socket.socket) -> bool:
    """Whether a server listens where a workbench is expected: it can put a socket of its own into our folder, and would
    be given a client's environment, or say what a person then approves. False if that cannot be told. Raises
    `OSError`."""
    # Elsewhere a workbench that we have just started would count as a server of ours.
    return IS_LINUX and is_of_server(connection) is True and not is_confined()


def is_of_server(connection: _socket.socket) -> bool | None:
    """Whether the other end is a process of a server, of any workbench; None if that cannot be told. Raises
    `OSError`."""
    if sys.platform == "darwin":
        return _descends_from_us(peer_pid(connection))
    if not IS_LINUX:
        return False
    pid = peer_pid(connection)
    try:
        handle = connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        # A kernel before 6.5, or the process has ended. A number that was given to another process since then goes
        # unnoticed.
        return True if _is_gone(pid) else _has_mark(pid)
    try:
        found = _has_mark(pid)
        # Read afterwards: if the process has ended, its number may be another's by now, and it waits for no answer.
        return found if _is_running(handle) else True
    finally:
        os.close(handle)


def is_confined() -> bool:
    """Whether we have the mark of servers ourselves, so that they cannot be told from others."""
    return IS_LINUX and _has_mark(os.getpid()) is True


def _has_mark(pid: int | None) -> bool | None:
    """None if its status is hidden from us, as in another namespace, or does not say."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            _, name, rest = file.read().partition(b"\nNoNewPrivs:")
    except OSError:
        return None
    return rest.split(None, 1)[0] != b"0" if name else None


def _is_gone(pid: int | None) -> bool:
    try:
        os.kill(pid or os.getpid(), 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def _is_running(handle: int) -> bool:
    try:
        with open(f"/proc/self/fdinfo/{handle}", "rb") as file:
            return b"\nPid:\t-1\n" not in file.read()
    except OSError:
        return True


def _descends_from_us(pid: int | None) -> bool:
    """For macOS. Whether we are among its ancestors. Not after it became a daemon, whose parent is the system."""
    import ctypes
    import struct

    try:
        library = ctypes.CDLL("/usr/lib/libproc.dylib")
    except OSError:
        return False
    # struct proc_bsdinfo { flags, status, xstatus, pid, ppid, … }, 136 bytes
    about = ctypes.create_string_buffer(136)
    for _ in range(_MAX_GENERATIONS):
        if pid is None or pid <= 1:
            return False
        if pid == os.getpid():
            return True
        if library.proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), about, 136) < 20:
            return False
        pid = struct.unpack_from("=5I", about.raw)[4]
    return False
