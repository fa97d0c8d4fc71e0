"""A client that is served alone from now on is handed to a fresh process: this one, after `exec`.

The front end may be days old, and the package on disk another version by now, whose modules do not fit the ones that
are loaded. The client keeps its pipes and its process. What is known about it goes through an unnamed file.

The format outlives versions: the first line has the lengths of the parts that follow.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.engine.process_context import CLIENT_VARIABLE, runtime_folder


class Handover:
    """A client to be served without the shared workbench, in the middle of its conversation or before it."""

    __slots__ = ("resume", "unread", "unsent")

    def __init__(self, resume: bytes = b"", unread: bytes = b"", unsent: bytes = b"") -> None:
        # The state with which a workbench takes a client over; empty if there is none yet.
        self.resume = resume
        # What it sent that has not been passed on.
        self.unread = unread
        # What was meant for it that it has not read yet.
        self.unsent = unsent

    @property
    def is_begun(self) -> bool:
        """Whether a workbench has served it before."""
        return bool(self.resume or self.unread or self.unsent)


def hand_over(client: Handover) -> None:
    """Become a fresh process that serves this client alone. Returns only if that fails."""
    parts = (client.resume, client.unread, client.unsent)
    try:
        file = _unnamed_file()
        try:
            for data in (" ".join(str(len(part)) for part in parts).encode() + b"\n", *parts):
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
            os.lseek(file, 0, os.SEEK_SET)
            os.set_inheritable(file, True)
            os.environ[CLIENT_VARIABLE] = str(file)
            os.execv(sys.executable, sys.orig_argv)
        finally:
            os.environ.pop(CLIENT_VARIABLE, None)
            os.close(file)
    except OSError:
        # No room, or the interpreter is gone. What is loaded has to do.
        return


def handed_over() -> Handover | None:
    """Return the client that this process was started for, if a front end handed one over."""
    given = os.environ.pop(CLIENT_VARIABLE, "")
    if not given.isdecimal():
        return None
    try:
        with open(int(given), "rb") as file:
            lengths = [int(length) for length in file.readline().split()]
            return Handover(*(file.read(length) for length in lengths[:3]))
    except (OSError, ValueError):
        return None


def _unnamed_file() -> int:
    """Raises `OSError`."""
    if sys.platform == "linux":
        return os.memfd_create("mcp-workbench-client")
    path = os.path.join(runtime_folder(), f"{os.getpid()}.client")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return file
