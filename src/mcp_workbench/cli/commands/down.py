"""`mcp-workbench up --stop`: stop the shared workbench."""

from __future__ import annotations

from mcp_workbench.cli.commands.up import disable_sharing
from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.sharing.front.commanding import end
from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning
from mcp_workbench.sharing.front.line_protocol import DOWN


def run(parsed: Parsed) -> int:
    try:
        # First, or else a client that starts in the meantime would start it again.
        disable_sharing()
        ended = end(DOWN)
    except NotRunning:
        print("No shared workbench is running.")
        return 0
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED_STATUS)
    print(f"The shared workbench (process {ended.pid}) has ended.{ended.about_clients()}")
    return 0
