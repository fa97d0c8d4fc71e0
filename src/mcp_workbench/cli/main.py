"""The entry point: selects the command. `serve` is the default and imports nothing that it does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_workbench.errors import NO_MEMORY, SHORTAGE_HINTS, has_room_for_a_stack, shortage

if TYPE_CHECKING:
    from mcp_workbench.sharing.front.handing_over import Handover

# Files that must be free at the start: the event loop needs most of them, the rest are opened briefly. Each server
# needs about ten more.
MIN_FREE_FILES = 16
# What CPython raises while it compiles a module, or the code that a library generates, and is out of memory.
_OF_THE_COMPILER = (SystemError, SyntaxError, ValueError, TypeError)


def main(argv: Sequence[str] | None = None, handover: Handover | None = None) -> int:
    """Run a command. Returns the exit status. `handover` is a client that another process has served so far."""
    try:
        _fill_standard_streams()
        arguments = list(sys.argv[1:] if argv is None else argv)
        status = _dispatch(arguments, handover)
        # Flushed here rather than at interpreter exit, where a closed pipe would print an error.
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        # 128 + SIGINT, as shells report it; 141 below is SIGPIPE.
        return 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`| head`); buffered output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        return _complain_of_shortage(error)


def _complain_of_shortage(error: Exception) -> int:
    """Report in one line what the machine lacks; any other error is a defect and is raised again.

    Imports and allocates nothing: there may be no room for either.
    """
    cause: BaseException | None = error
    while cause is not None:
        what = shortage(cause)
        if what is not None:
            return _say(what)
        # An error during cleanup hides the original one.
        cause = cause.__context__
    if isinstance(error, _OF_THE_COMPILER) and not has_room_for_a_stack():
        return _say(NO_MEMORY)
    raise error


def _say(what: str) -> int:
    os.write(2, b"error: mcp-workbench cannot run: ")
    os.write(2, what.encode())
    os.write(2, b"\n\nhint: ")
    os.write(2, SHORTAGE_HINTS[what].encode() + b"\n")
    return 1


def _fill_standard_streams() -> None:
    """Occupy descriptors 0 to 2: a file opened next would get them, and then be read as stdin, or closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    # With too few free descriptors, an event loop fails during its start with meaningless errors.
    free = [descriptor]
    try:
        for _ in range(MIN_FREE_FILES - 1):
            free.append(os.dup(descriptor))
    finally:
        for each in free:
            os.close(each)


def _dispatch(arguments: list[str], handover: Handover | None) -> int:
    if not arguments and handover is None and os.isatty(0):
        from mcp_workbench.cli.overview import run as show_overview

        return show_overview()
    first = arguments[0] if arguments else ""
    if first in ("--help", "-h"):
        arguments = ["help"]
        first = "help"
    # May be a command; a configuration may also be given without one before it.
    if first.isidentifier() and first != "serve":
        from mcp_workbench.cli.dispatch import is_command, run, unknown

        if is_command(first):
            return run(arguments)
        if not os.path.lexists(first):
            return unknown(first)
    from mcp_workbench.cli.serve import run as serve

    return serve(arguments[1:] if first == "serve" else arguments, handover)
