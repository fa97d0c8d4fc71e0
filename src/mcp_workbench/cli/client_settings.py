"""What to write into an MCP client's settings so that it starts the workbench.

Owns these few lines for the clients that people use most. Pure.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import NamedTuple


class ClientSetting(NamedTuple):
    """One client: where its setting goes and what it is."""

    client: str
    where: str
    text: str


def client_settings(program: str, config: str) -> list[ClientSetting]:
    """The settings for each client; both paths should be absolute, since clients start us in any folder."""
    arguments = ["serve", "--config", config]
    command = shlex.join(["claude", "mcp", "add", "workbench", "--", program, *arguments])
    entry = {"command": program, "args": arguments}
    usual = _as_file("mcpServers", entry)
    return [
        ClientSetting("Claude Code", "in a shell", command),
        ClientSetting("Claude Desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)", usual),
        ClientSetting("Cursor", "~/.cursor/mcp.json, or .cursor/mcp.json in a project", usual),
        ClientSetting("VS Code", ".vscode/mcp.json", _as_file("servers", {"type": "stdio", **entry})),
    ]


def _as_file(key: str, entry: Mapping[str, object]) -> str:
    # Written by hand rather than by `json.dumps`, which would put each argument on a line of its own.
    members = ",\n".join(f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in entry.items())
    return f'{{\n  "{key}": {{\n    "workbench": {{\n{members}\n    }}\n  }}\n}}'
