"""`mcp-workbench down`: end the shared workbench in order."""

from __future__ import annotations

import os
import time

from mcp_workbench.cli.complain import FAILED, complain
from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.front.joining import ANSWER_SECONDS, CannotJoin, NotRunning, connect, exchange, written_hello
from mcp_workbench.runtime_folder import WANTED, runtime_folder

ABOUT = """
Ends your shared workbench in order: calls that are under way have a moment to finish, then its servers are stopped.
Clients that are connected go on, each with a workbench of its own.
"""


def run(parsed: Parsed) -> int:
    """Tell it to end."""
    try:
        os.unlink(os.path.join(runtime_folder(), WANTED))
    except FileNotFoundError:
        pass
    except OSError as error:
        return complain(f"`{runtime_folder()}` cannot be used: {error.strerror}", status=FAILED)
    try:
        verb, rest = tell("down")
    except NotRunning:
        print("No shared workbench is running.")
        return 0
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED)
    if verb != "ending":
        return complain(f"the shared workbench did not understand: {verb} {rest}", status=FAILED)
    print(f"The shared workbench (process {rest.partition(' ')[0]}) ends.")
    return 0


def tell(command: str) -> tuple[str, str]:
    """Give the shared workbench a command; its answer. Raises `NotRunning` and `CannotJoin`."""
    connection = connect()
    try:
        return exchange(connection, written_hello((), command=command), time.monotonic() + ANSWER_SECONDS)
    finally:
        connection.close()


COMMAND = Command("down", ABOUT, (), run, takes=0)
