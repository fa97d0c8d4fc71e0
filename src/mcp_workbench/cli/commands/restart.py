"""`mcp-workbench restart`: stop the shared workbench, and start it again."""

from __future__ import annotations

from mcp_workbench.cli.commands.up import enable_sharing, start_shared
from mcp_workbench.cli.error_output import FAILED, complain
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.front.commanding import end
from mcp_workbench.front.joining import CannotJoin, NotRunning
from mcp_workbench.front.line_protocol import RESTART


def run(parsed: Parsed) -> int:
    try:
        # As with `up`: a user who restarts it wants it to run.
        enable_sharing()
        try:
            end(RESTART)
        except NotRunning:
            print("No shared workbench was running.")
        pid = start_shared()
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED)
    print(f"The shared workbench is running (process {pid}).")
    return 0
