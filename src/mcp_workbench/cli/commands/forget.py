"""`mcp-workbench find --forget`: delete what searches have learned from a user's use."""

from __future__ import annotations

from mcp_workbench.app.use_memory import forget, use_file
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.errors import WorkbenchError


def run(parsed: Parsed) -> int:
    path = use_file(parsed.value("as") or OWN_USER)
    try:
        is_gone = path is not None and forget(path)
    except OSError as error:
        raise WorkbenchError(
            f"`{path}` cannot be deleted: {error.strerror}", hint="check the permissions of its folder"
        ) from None
    print("forgotten" if is_gone else "nothing was learned so far")
    return 0
