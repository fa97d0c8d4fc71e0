"""The way in: is this a client of the shared workbench, or a command?

A look at two files decides it, before anything is imported that only one of them needs.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.process_context import SOCKET, WANTED, runtime_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, or be the front end of the shared workbench; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    handover = None
    if may_join(arguments):
        folder = runtime_folder()
        is_wanted = os.path.lexists(os.path.join(folder, WANTED))
        # The socket alone: a file with `"shared": true` has started one, though `up` was never run.
        if is_wanted or os.path.lexists(os.path.join(folder, SOCKET)):
            from mcp_workbench.front.serve import serve

            served = serve(arguments[1:] if arguments[:1] == ["serve"] else arguments, may_start=is_wanted)
            if isinstance(served, int):
                return served
            # A client that was served so far, or whose first bytes were read: nobody else can read them again.
            handover = served
    from mcp_workbench.cli.main import main as run

    return run(arguments, handover)


def may_join(arguments: Sequence[str]) -> bool:
    """Whether this serves a client over stdio and may be shared. Whatever looks unusual is for the commands to say."""
    first = arguments[0] if arguments else ""
    # A file may be named without a command before it; every other word is a command.
    if first != "serve" and first and not first.startswith("-") and not os.path.lexists(first):
        return False
    for number, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        if name in ("--private", "--http", "--help", "-h"):
            return False
        # Alone it prints the version; with a value it is what clients are to see.
        if argument == "--version" and (number + 1 == len(arguments) or arguments[number + 1].startswith("-")):
            return False
    return True
