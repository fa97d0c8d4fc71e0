"""The workbench's errors, classified by who is to blame.

A class exists only where a caller acts differently. `hint` is what to do next. `failure_text` in
`engine/face/wording.py` turns them into text, `on_failure` in `engine/session/client_call.py` into an `isError` result
or a JSON-RPC error, and `cli/error_output.py` into what the user reads. An invalid request is not an exception but a
decision (`Reject`).
"""

from __future__ import annotations

import errno
from typing import Final

NO_FILES: Final = "no more files can be opened"
NO_MEMORY: Final = "there is not enough memory"
NO_PROCESSES: Final = "no more processes or threads can be started"
# What to do about it.
SHORTAGE_HINTS: Final = {
    NO_FILES: "raise the limit on open files (ulimit -n)",
    NO_MEMORY: "raise the limit on memory",
    NO_PROCESSES: "raise the limit on processes (ulimit -u, or that of the container), or end some processes",
}
_SHORTAGES: Final = {
    errno.EMFILE: NO_FILES,
    errno.ENFILE: NO_FILES,
    errno.ENOMEM: NO_MEMORY,
    # Of `fork`. Whoever reads and writes without blocking handles it there.
    errno.EAGAIN: NO_PROCESSES,
}
# How the dynamic loader reports the same in an `ImportError`.
_LOADER_WORDS: Final = {
    "Too many open files": NO_FILES,
    "Cannot allocate memory": NO_MEMORY,
    "failed to map segment": NO_MEMORY,
    "Error 24": NO_FILES,
}
# What CPython raises if there was no memory for the error itself.
_LOST_ERROR: Final = "error return without exception set"
# A thread needs memory for its stack, and counts as a process; Python does not report which of the two is missing.
_NO_THREAD: Final = "can't start new thread"
_STACK_BYTES: Final = 8 * 1024 * 1024


class WorkbenchError(Exception):
    """Base of everything we raise on purpose. `str(error)` is the message, `hint` the next step."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # A path in it need not be Unicode, which all who are shown it need.
        self.message = message if message.isascii() else message.encode(errors="backslashreplace").decode()
        super().__init__(self.message)
        self.hint = hint


class ConfigError(WorkbenchError):
    """The user's configuration is at fault: nothing was started, exit status 2."""


class DownstreamError(WorkbenchError):
    """A server behind us failed: did not start, crashed, timed out, or cannot be reached."""


class SignInNeeded(DownstreamError):
    """A server requires the user to sign in, or to grant more. It is not broken: trying again is free."""


class DownstreamTimeout(DownstreamError):
    """A server did not answer in time; the request was cancelled there and is not repeated."""


class StillStarting(DownstreamError):
    """A server has not been listed yet, but has not failed: it is slow, or still queued."""


class ServerGone(DownstreamError):
    """The server ended during the handshake; if a legacy server crashed on the probe, that is not a failure yet."""


def shortage(error: BaseException) -> str | None:
    """The resource that the machine lacks, if that is the cause: neither our bug nor the server's fault.

    Import this early: without descriptors nothing can be imported.
    """
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, SystemError | RuntimeError):
        if str(error) == _NO_THREAD:
            return NO_PROCESSES if has_room_for_a_stack() else NO_MEMORY
        return NO_MEMORY if str(error) == _LOST_ERROR else None
    if isinstance(error, OSError):
        return _SHORTAGES.get(error.errno or 0)
    if isinstance(error, ImportError):
        return next((what for words, what in _LOADER_WORDS.items() if words in str(error)), None)
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(shortage, error.exceptions)), None)
    return None


def has_room_for_a_stack() -> bool:
    """Whether the limits on memory leave room for one more thread, or for what a start needs."""
    try:
        # Not written to, so it takes no more than addresses.
        bytes(_STACK_BYTES)
    except MemoryError:
        return False
    return True


def distribution() -> str:
    """Return the name under which we were installed: that of the package with our command."""
    from importlib.metadata import entry_points

    found = [each.dist for each in entry_points(group="console_scripts", name="mcp-workbench") if each.dist]
    return found[0].name if found else "mcp-workbench"


def package_hint(*packages: str) -> str:
    """How to install an optional Python package that is needed for what was requested. Does not name our own package
    with an extra: on PyPI, its name may be that of somebody else's."""
    names = " ".join(packages)
    beside = " ".join(f"--with {name}" for name in packages)
    return (
        f"install it where the workbench runs: `pip install {names}`, `pipx inject {distribution()} {names}`, "
        f"or `uv tool install {beside}` and what you installed the workbench from"
    )
