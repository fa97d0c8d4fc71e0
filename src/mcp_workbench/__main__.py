"""The entry point: is this a client of the shared workbench, or a command?

Two files decide, before anything is imported that only one of them needs.
"""

from __future__ import annotations

import gc
import os
import sys

from mcp_workbench.engine.process_context import CLIENT_VARIABLE, SOCKET, WANTED_FILE, hide_memory, runtime_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_NO_MEMORY_MESSAGE = b"error: mcp-workbench cannot run: there is not enough memory\n\nhint: raise the limit on memory\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, or the front end of the shared workbench; returns the exit status."""
    # First of all: our environment has the secrets of all servers, and those that run already are of the same user.
    # Takes half a millisecond.
    hide_memory()
    arguments = list(sys.argv[1:] if argv is None else argv)
    handover = None
    # Alone at a terminal it is a person who started it, and no client.
    is_client = may_join(arguments) and not (not arguments and os.isatty(0))
    if CLIENT_VARIABLE in os.environ:
        from mcp_workbench.sharing.front.handing_over import handed_over

        handover = handed_over()
    if handover is None and is_client:
        folder = runtime_folder()
        is_wanted = os.path.lexists(os.path.join(folder, WANTED_FILE))
        # The socket alone is enough: a file with `"shared": true` has started one, though `up` was never run.
        if is_wanted or os.path.lexists(os.path.join(folder, SOCKET)):
            from mcp_workbench.sharing.front.serve import serve

            served = serve(arguments[1:] if arguments[:1] == ["serve"] else arguments, may_start=is_wanted)
            if isinstance(served, int):
                return served
            # A client that was served until now, or whose first bytes were read and cannot be read again.
            handover = served
    if is_client or arguments[:1] == ["serve"]:
        # What is imported to serve is a hundred thousand objects that stay: collecting garbage among them takes 2 to
        # 5 of the 86 ms until the first answer. The event loop turns it on again (`run`).
        gc.disable()
    try:
        from mcp_workbench.cli.main import main as run
    except MemoryError:
        # From here on, `run` reports it.
        os.write(2, _NO_MEMORY_MESSAGE)
        return 1
    return run(arguments, handover)


def may_join(arguments: Sequence[str]) -> bool:
    """Whether this serves a client over stdio and may be shared. Anything unusual is left to the commands."""
    first = arguments[0] if arguments else ""
    # A file may be named without a command before it; every other word is a command.
    if first != "serve" and first and not first.startswith("-") and not os.path.lexists(first):
        return False
    for number, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        if name in ("--private", "--http", "--help", "-h"):
            return False
        # Alone it prints the version; with a value it sets the version shown to clients.
        if argument == "--version" and (number + 1 == len(arguments) or arguments[number + 1].startswith("-")):
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
