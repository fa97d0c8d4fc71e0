"""`mcp-workbench down`: end the shared workbench in order."""

from __future__ import annotations

from mcp_workbench.cli.error_output import FAILED, complain
from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.cli.up import unwant_it
from mcp_workbench.front.commanding import end
from mcp_workbench.front.joining import CannotJoin, NotRunning

ABOUT = """
Ends your shared workbench in order: calls that are under way have a moment to finish, then its servers are stopped.
Clients that are connected go on, each with a workbench of its own.
"""


def run(parsed: Parsed) -> int:
    """Tell it to end, and wait until it has."""
    try:
        unwant_it()
        ended = end("down")
    except NotRunning:
        print("No shared workbench is running.")
        return 0
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED)
    print(f"The shared workbench (process {ended.pid}) has ended.{ended.about_clients()}")
    return 0


COMMAND = Command("down", ABOUT, (), run, takes=0)
