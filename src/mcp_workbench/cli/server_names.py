"""The server that a command line names."""

from __future__ import annotations

from mcp_workbench.cli.flags import UsageError
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.engine.nearest import ambiguous


def find_server(catalog: Catalog, name: str) -> ServerEntry:
    """Return the server that a `server` or `toolbox/server` names. Raises `UsageError` with similar names."""
    entries = list(catalog.entries())
    found = [entry for entry in entries if name in (entry.label, entry.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(ambiguous(name, (entry.label for entry in found)))
    raise UsageError(
        no_such("server", name, [entry.name for entry in entries]), hint="mcp-workbench list shows all servers"
    )
