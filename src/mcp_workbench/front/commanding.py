"""Commands to the shared workbench from a terminal."""

from __future__ import annotations

import time

from mcp_workbench.front.joining import ANSWER_SECONDS, END_SECONDS, CannotJoin, connect, exchange, introduce
from mcp_workbench.front.line_protocol import ENDING, written_hello


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


def ask(command: str, *, may_start: bool = False) -> str:
    """Send a command and return the answer. Raises `NotRunning` and `CannotJoin`."""
    connection, verb, rest = introduce(written_hello((), command=command), may_start=may_start, is_patient=True)
    connection.close()
    if verb != command:
        raise CannotJoin(rest if rest else "the shared workbench went away before it answered")
    return rest


def end(command: str) -> Ended:
    """End the workbench, and wait until it is gone. Raises `NotRunning` and `CannotJoin`."""
    connection = connect()
    try:
        verb, rest = exchange(connection, written_hello((), command=command), time.monotonic() + ANSWER_SECONDS)
        if verb != ENDING:
            raise CannotJoin(rest if rest else "the shared workbench went away before it answered")
        pid, _, clients = rest.partition(" ")
        connection.settimeout(END_SECONDS)
        try:
            # The connection ends with the process.
            while connection.recv(1):
                pass
        except TimeoutError:
            raise CannotJoin(f"the shared workbench (process {pid}) did not end within {END_SECONDS:.0f} s") from None
        except OSError:
            pass
        return Ended(int(pid), int(clients))
    finally:
        connection.close()
