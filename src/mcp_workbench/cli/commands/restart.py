"""`mcp-workbench up --restart`: stop the shared workbench, and start it again."""

from __future__ import annotations

from mcp_workbench.cli.commands.up import enable_sharing, load_own, start_shared
from mcp_workbench.cli.error_output import FAILED, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.version import full_version
from mcp_workbench.sharing.front.commanding import end
from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning
from mcp_workbench.sharing.front.line_protocol import RESTART


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
    version = run_loop(_version_of(pid))
    if version not in (None, full_version()):
        # Front ends of another installation may be the first to start it.
        remark(
            "warning", f"it is version {version}, because a client of that version started it; this is {full_version()}"
        )
    try:
        return load_own()
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED)


async def _version_of(pid: int) -> str | None:
    return next((each["version"] for each in await running_workbenches() if each["pid"] == pid), None)
