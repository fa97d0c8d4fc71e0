"""`mcp-workbench --version`: what is installed, and whether the shared workbench still runs another version."""

from __future__ import annotations

from mcp_workbench.cli.error_output import remark
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.version import full_version


def show() -> int:
    installed = full_version()
    # On stdout only this, for scripts.
    print(f"mcp-workbench {installed}", flush=True)
    shared = [status for status in run_loop(running_workbenches()) if status.get("serving") == "shared"]
    for status in shared:
        if status.get("version") != installed:
            hint = "mcp-workbench up --restart starts the installed version, and clients stay connected"
            remark("note", f"the shared workbench (process {status['pid']}) runs {status.get('version')}", hint)
    return 0
