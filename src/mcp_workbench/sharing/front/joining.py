"""Finds the user's shared workbench, starts it if there is none, and introduces a client to it.

Owns the socket, the check of who is at its other end, the lock that ensures that only one workbench is started, and the
first exchange of a connection. Does not know what is sent afterwards.

The process that starts a workbench also creates its socket and hands it over: others can connect from then on, and wait
for the answer to their hello instead of polling.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from mcp_workbench.engine.process_context import (
    LOCK_FILE,
    MAX_SOCKET_PATH_BYTES,
    SOCKET,
    WITHIN,
    make_private,
    runtime_folder,
    state_folder,
)
from mcp_workbench.engine.socket_peers import is_posing, peer_uid
from mcp_workbench.sharing.front.line_protocol import ACCEPTED, AGAIN, ALONE, written_hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# All on one machine: a running workbench accepts at once. One that has just been started first imports modules and
# reads its files, on a machine that may be busy with twenty others.
JOIN_TIMEOUT: Final = 5.0
WORKBENCH_START_TIMEOUT: Final = 15.0
# A workbench that ends lets calls finish for some seconds, then its servers end, and it waits for a token that is being
# refreshed (`signin.signed_in_headers.REFRESH_SETTLE_TIMEOUT`): a lost response would end the sign-in.
WORKBENCH_END_TIMEOUT: Final = 40.0
# A workbench that ends while it starts was told to end, or does so every time.
MAX_WORKBENCH_STARTS: Final = 2
# Between checks on a workbench that is about to end. It ends its servers first, which takes seconds.
_FIRST_CHECK_INTERVAL: Final = 0.01
_MAX_CHECK_INTERVAL: Final = 0.2
# Connections that wait for a workbench that is starting.
SOCKET_BACKLOG: Final = 128
_MAX_JOIN_ANSWER_BYTES: Final = 64 * 1024
# Descriptors of the socket and of the lock, for the workbench that is started.
HANDED_OVER: Final = "MCP_WORKBENCH_SHARED"
LOG_NAME: Final = "shared.log"


class NotRunning(Exception):
    """There is no shared workbench."""


class CannotJoin(Exception):
    """Why the shared workbench is not used. `is_expected`: it is not meant for this client, so no message is needed."""

    def __init__(self, reason: str, *, is_expected: bool = False) -> None:
        super().__init__(reason)
        self.is_expected = is_expected


class Joined:
    """A workbench that accepted the client."""

    __slots__ = ("descriptor", "pid", "version")

    def __init__(self, descriptor: int, version: str, pid: int) -> None:
        self.descriptor = descriptor
        self.version = version
        self.pid = pid


def join(arguments: Sequence[str], resume: bytes = b"", *, may_start: bool, is_patient: bool = False) -> Joined:
    """Introduce a client to the shared workbench, which is started if there is none and `may_start`.

    Raises `NotRunning` and `CannotJoin`.
    """
    connection, verb, rest = introduce(written_hello(arguments, resume), may_start=may_start, is_patient=is_patient)
    if verb == ACCEPTED:
        version, _, pid = rest.partition(" ")
        connection.settimeout(None)
        return Joined(connection.detach(), version, int(pid))
    connection.close()
    raise CannotJoin(rest, is_expected=verb == ALONE)


def introduce(hello: bytes, *, may_start: bool, is_patient: bool = False) -> tuple[_socket.socket, str, str]:
    """Send the hello until it is answered. Returns the connection and the answer. Raises `NotRunning` and `CannotJoin`.

    `is_patient`: wait for a workbench that is ending, however long that takes. A client that is just starting would
    time out before that, and is better served alone.
    """
    begun = time.monotonic()
    deadline = begun + WORKBENCH_START_TIMEOUT
    pause = _FIRST_CHECK_INTERVAL
    starts = 0
    while True:
        try:
            connection = connect()
        except NotRunning:
            if not may_start:
                raise
            if starts == MAX_WORKBENCH_STARTS:
                reason = "the shared workbench ends as soon as it starts; `mcp-workbench logs` says why"
                raise CannotJoin(reason) from None
            if start():
                starts += 1
                continue
            # A process that holds the lock and does not listen is ending.
            is_ending = True
        else:
            try:
                verb, rest = exchange(connection, hello, deadline)
            except BaseException:
                connection.close()
                raise
            if verb not in ("", AGAIN):
                return connection, verb, rest
            # It is ending, or has just ended: the next one is ours.
            connection.close()
            is_ending = verb == AGAIN
        now = time.monotonic()
        if is_ending and is_patient and now < begun + WORKBENCH_END_TIMEOUT:
            # The next workbench gets the full time to start.
            deadline = now + WORKBENCH_START_TIMEOUT
        elif now > deadline:
            raise CannotJoin(f"the shared workbench neither became ready nor exited within {now - begun:.0f} s")
        time.sleep(pause)
        pause = min(2 * pause, _MAX_CHECK_INTERVAL)


def socket_path() -> str:
    """Return where the shared workbench of this user listens."""
    return os.path.join(runtime_folder(), SOCKET)


def connect() -> _socket.socket:
    """Connect to the shared workbench. Raises `NotRunning` and `CannotJoin`."""
    path = socket_path()
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise CannotJoin(f"the path `{path}` is too long for a socket; set `XDG_RUNTIME_DIR` to a shorter one")
    _check_folder(os.path.dirname(path))
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(JOIN_TIMEOUT)
        connection.connect(path)
        uid, is_server = peer_uid(connection), is_posing(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        # A dead workbench leaves its socket behind, which refuses connections.
        connection.close()
        raise NotRunning from None
    except TimeoutError:
        connection.close()
        raise CannotJoin(f"the shared workbench at `{path}` does not accept connections (is it stopped?)") from None
    except OSError as error:
        connection.close()
        raise CannotJoin(f"the shared workbench at `{path}` cannot be reached: {error.strerror or error}") from None
    if uid is not None and uid != os.getuid():
        connection.close()
        raise CannotJoin(f"`{path}` belongs to another user (uid {uid})")
    if is_server:
        connection.close()
        raise CannotJoin(f"a process of a server listens at `{path}`, in place of the shared workbench")
    return connection


def _check_folder(folder: str) -> None:
    try:
        make_private(folder)
    except PermissionError as error:
        raise CannotJoin(f"{error.strerror or error}; sockets need a folder of yours with mode 0700") from None
    except OSError as error:
        raise CannotJoin(f"`{folder}` cannot be used for sockets: {error.strerror}") from None


def exchange(connection: _socket.socket, hello: bytes, deadline: float) -> tuple[str, str]:
    """Send the hello and return the answer; `("", "")` if the workbench disconnected. Raises `CannotJoin`."""
    patience = deadline - time.monotonic()
    try:
        try:
            connection.sendall(hello)
        except (BrokenPipeError, ConnectionResetError):
            # It may have sent the reason before it closed the connection.
            pass
        answer = b""
        # Byte by byte: what follows the line belongs to the copying.
        while not answer.endswith(b"\n"):
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = connection.recv(1)
            if not piece or len(answer) > _MAX_JOIN_ANSWER_BYTES:
                return "", ""
            answer += piece
    except TimeoutError:
        raise CannotJoin(f"the shared workbench did not answer within {patience:.0f} s (is it stopped?)") from None
    except OSError:
        return "", ""
    verb, _, rest = answer[1:-1].decode(errors="replace").partition(" ")
    return verb, rest


def start() -> bool:
    """Start the shared workbench; False if another process is doing so, or it is about to end.

    Raises `CannotJoin` if it cannot be started.
    """
    if os.environ.get(WITHIN):
        # It would end with the server that we are.
        raise CannotJoin("a server of a workbench does not start the shared one", is_expected=True)
    folder = runtime_folder()
    _check_folder(folder)
    try:
        lock = take_lock(folder)
        if lock is None:
            return False
        try:
            listener = listen(folder)
            try:
                _spawn(folder, listener.fileno(), lock)
            finally:
                listener.close()
        finally:
            # flock(2) locks the open file, which the workbench has inherited: this does not release the lock.
            os.close(lock)
    except OSError as error:
        raise CannotJoin(f"the shared workbench cannot be started: {error.strerror or error}") from None
    return True


def take_lock(folder: str, *, waits: bool = False) -> int | None:
    """Take the lock that a workbench holds for its lifetime; None if it is taken. After waiting, None means that its
    file has been replaced. Raises `OSError`."""
    import fcntl

    path = os.path.join(folder, LOCK_FILE)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        # The folder may have been removed while we waited: then the lock on the old file excludes no one.
        if waits and not is_at(lock, path):
            os.close(lock)
            return None
        # Whoever held it before.
        os.ftruncate(lock, 0)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def release_lock(lock: int) -> None:
    """Release the lock before its descriptor is closed."""
    import fcntl

    fcntl.flock(lock, fcntl.LOCK_UN)


def sign_lock(lock: int) -> None:
    """Write into the file of the lock which process holds it. Best effort."""
    try:
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    except OSError:
        pass


def lock_holder() -> int | None:
    """Return the process that holds the lock, 0 if it has not written that down; None if nobody holds it. Raises
    `CannotJoin`."""
    folder = runtime_folder()
    try:
        lock = take_lock(folder)
        if lock is not None:
            os.close(lock)
            return None
        with open(os.path.join(folder, LOCK_FILE), "rb") as file:
            written = file.read(20).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotJoin(f"the lock in `{folder}` cannot be read: {error.strerror or error}") from None
    return int(written) if written.isdigit() else 0


def is_at(descriptor: int, path: str) -> bool:
    """Whether the open file is the one at this path. Raises `OSError`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def listen(folder: str) -> _socket.socket:
    """Create the socket of a workbench, replacing that of a dead one. Requires the lock. Raises `OSError`."""
    path = os.path.join(folder, SOCKET)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(SOCKET_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _spawn(folder: str, listener: int, lock: int) -> None:
    """Start the workbench as a process without a parent: it outlives us, and what ends our client does not end it."""
    command = [sys.executable, "-m", "mcp_workbench", "up", "--foreground"]
    environ = {**os.environ, HANDED_OVER: f"{listener},{lock}"}
    log = _open_log()
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        os.close(log)
        return
    try:
        # A new session, so that signals of the client's terminal do not reach it; after the second fork it cannot get a
        # terminal, and init reaps it.
        os.setsid()
        if os.fork():
            os._exit(0)
        # This folder is ours alone: Python must not import files from the client's folder.
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.set_inheritable(listener, True)
        os.set_inheritable(lock, True)
        os.execve(sys.executable, command, environ)
    finally:
        os._exit(127)


def log_path() -> str:
    return os.path.join(state_folder(), LOG_NAME)


def _open_log() -> int:
    path = log_path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
