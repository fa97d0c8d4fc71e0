"""`mcp-workbench up --restart`: stop the shared workbench, and start it again."""

from __future__ import annotations

from typing import Any

from mcp_workbench.cli.commands.up import enable_sharing, load_own, start_shared
from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.printable import plural
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.version import full_version
from mcp_workbench.sharing.front.commanding import end
from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning
from mcp_workbench.sharing.front.line_protocol import RESTART


def run(parsed: Parsed) -> int:
    try:
        # As with `up`: a user who restarts it wants it to run.
        enable_sharing()
        before = 0
        try:
            before = end(RESTART).pid
        except NotRunning:
            print("No shared workbench was running.")
        pid = start_shared()
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED_STATUS)
    print(f"The shared workbench is running (process {pid}).")
    running = {each["pid"]: each for each in run_loop(running_workbenches())}
    if before in running and (calls := _calls_of(running[before])):
        remark("note", f"process {before} finishes {plural(calls, 'call')} first; then its clients move over")
    version = running.get(pid, {}).get("version")
    if version not in (None, full_version()):
        # Front ends of another installation may be the first to start it.
        remark(
            "warning", f"it is version {version}, because a client of that version started it; this is {full_version()}"
        )
    try:
        return load_own()
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED_STATUS)


def _calls_of(status: dict[str, Any]) -> int:
    return sum(client["callsInFlight"] for client in status.get("clients") or ())
