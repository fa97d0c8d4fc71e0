"""How to connect each client to the workbench, as text to copy."""

from __future__ import annotations

import shlex

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_changes import by_command, edited
from mcp_workbench.setup.client_commands import add_command
from mcp_workbench.setup.client_files import to_write
from mcp_workbench.setup.clients.table import clients
from mcp_workbench.setup.install_plan import own_entry_for

OWN_NAME = "workbench"


def ways_to_connect(config: str) -> list[dict[str, str | None]]:
    """For each client that the workbench can be installed into: a command, or what its file would hold."""
    found: list[dict[str, str | None]] = []
    for client in clients().values():
        if client.import_only:
            continue
        try:
            files = to_write(client, "user")
            if not files:
                continue
            file = files[0]
            entry = own_entry_for(file, OWN_NAME, config)
            if by_command(file) and client.own is not None:
                text = shlex.join(add_command(client, OWN_NAME, entry))
                found.append({"client": client.name, "title": client.title, "how": "command", "text": text})
            else:
                text = edited(None, file, {OWN_NAME: entry}).decode(errors="replace")
                described = {"client": client.name, "title": client.title, "how": "file", "text": text}
                found.append({**described, "path": file.path})
        except (ConfigError, OSError):
            # Not on this system, or its file cannot be written: `mcp-workbench install` says why.
            continue
    return found
