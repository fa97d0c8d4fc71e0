"""`mcp-workbench find --forget`: delete what searches have learned from a user's use."""

from __future__ import annotations

from mcp_workbench.app.use_memory import forget, use_file
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.errors import WorkbenchError


def run(parsed: Parsed) -> int:
    is_gone = False
    for each in _holders(parsed.value("as") or OWN_USER):
        path = use_file(each)
        try:
            is_gone |= path is not None and forget(path)
        except OSError as error:
            raise WorkbenchError(
                f"`{path}` cannot be deleted: {error.strerror}", hint="check the permissions of its folder"
            ) from None
    print("forgotten" if is_gone else "nothing was learned so far")
    return 0


def _holders(principal: str) -> list[str]:
    """Whose files may be meant: the user of this name, and whoever holds the key of this name."""
    from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce, folder

    keys = folder()
    holder = principal if keys is None else KeysInForce(KeyFolder(keys)).holder_of(principal)
    return list(dict.fromkeys((principal, holder)))
