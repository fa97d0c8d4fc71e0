"""Commands to the shared workbench from a terminal."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import time

from mcp_workbench.sharing.front.joining import (
    JOIN_TIMEOUT,
    WORKBENCH_END_TIMEOUT,
    CannotJoin,
    NotRunning,
    connect,
    exchange,
    introduce,
    lock_holder,
)
from mcp_workbench.sharing.front.line_protocol import AGAIN, ENDING_NOW, written_hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Between checks on a workbench that cannot be reached.
_PAUSE: Final = 0.05


class Ended:
    """A shared workbench that has ended on request."""

    __slots__ = ("clients", "pid")

    def __init__(self, pid: int, clients: int) -> None:
        self.pid = pid
        # The clients that were connected.
        self.clients = clients

    def about_clients(self) -> str:
        """Return what happens to them."""
        if not self.clients:
            return ""
        return f" {self.clients} client{'s go' if self.clients > 1 else ' goes'} on alone."


def ask(command: str, *, may_start: bool = False, is_patient: bool = True) -> str:
    """Send a command and return the answer. Raises `NotRunning` and `CannotJoin`."""
    hello = written_hello((), command=command)
    connection, verb, rest = introduce(hello, may_start=may_start, is_patient=is_patient)
    connection.close()
    if verb != command:
        raise CannotJoin(rest if rest else "the shared workbench went away before it answered")
    return rest


def _reach() -> _socket.socket | None:
    """Connect to the running workbench; None if one holds the lock that cannot be reached. Raises `NotRunning` and
    `CannotJoin`."""
    deadline = time.monotonic() + JOIN_TIMEOUT
    while True:
        try:
            return connect()
        except NotRunning:
            # It is ending, or its socket was removed and it makes it again.
            if lock_holder() is None:
                raise
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def _end_holder() -> Ended:
    """End the process that holds the lock, and cannot be reached, by a signal. Raises `CannotJoin`."""
    pid = lock_holder()
    if pid:
        try:
            os.kill(pid, _signal.SIGTERM)
        except OSError:
            pass
    deadline = time.monotonic() + WORKBENCH_END_TIMEOUT
    while lock_holder() is not None:
        if time.monotonic() > deadline:
            who = f" (process {pid})" if pid else ""
            raise CannotJoin(
                f"the shared workbench{who} cannot be reached, and did not end within {WORKBENCH_END_TIMEOUT:.0f} s"
            )
        time.sleep(_PAUSE)
    return Ended(pid or 0, 0)


def end(command: str) -> Ended:
    """End the workbench, and wait until it is gone, or has made room for the next one. Raises `NotRunning` and
    `CannotJoin`."""
    deadline = time.monotonic() + WORKBENCH_END_TIMEOUT
    while True:
        ended = _end_once(command)
        if ended is not None:
            return ended
        # Another command has just ended it, or it had too much to do to listen.
        if time.monotonic() > deadline:
            raise CannotJoin(
                f"the shared workbench neither took the command nor ended within {WORKBENCH_END_TIMEOUT:.0f} s"
            )
        time.sleep(_PAUSE)


def _end_once(command: str) -> Ended | None:
    """Return None if it is ending already. Raises `NotRunning` and `CannotJoin`."""
    connection = _reach()
    if connection is None:
        return _end_holder()
    try:
        verb, rest = exchange(connection, written_hello((), command=command), time.monotonic() + JOIN_TIMEOUT)
        if verb in ("", AGAIN):
            return None
        if verb != ENDING_NOW:
            raise CannotJoin(rest)
        pid, _, clients = rest.partition(" ")
        connection.settimeout(WORKBENCH_END_TIMEOUT)
        try:
            # The connection ends with the process.
            while connection.recv(1):
                pass
        except TimeoutError:
            raise CannotJoin(
                f"the shared workbench (process {pid}) did not end within {WORKBENCH_END_TIMEOUT:.0f} s"
            ) from None
        except OSError:
            pass
        return Ended(int(pid), int(clients))
    finally:
        connection.close()
