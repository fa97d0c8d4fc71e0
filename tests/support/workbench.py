"""Commands and configuration files for tests: the scripted server, the workbench, and the file between them.

Owns how tests spell these; refuses to start anything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPTED_SERVER = str(Path(__file__).with_name("scripted_server.py"))


def scripted_command(*flags: object) -> list[str]:
    """`scripted_command("--era", "legacy", "--tools", 3)`: what to run for a scripted server."""
    return [sys.executable, SCRIPTED_SERVER, *map(str, flags)]


def scripted_entry(*flags: object, **settings: Any) -> dict[str, Any]:
    """The same as an entry of `mcpServers`; `settings` are further keys: `timeout=2`, `toolFilters=["echo"]`."""
    command, *arguments = scripted_command(*flags)
    return {"command": command, "args": arguments, **settings}


def workbench_command(config: Path | str, *flags: object) -> list[str]:
    return [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config), *map(str, flags)]


def write_config(folder: Path, toolboxes: Mapping[str, Mapping[str, Any]], **settings: Any) -> Path:
    """`{toolbox: {server: entry}}` becomes a config file; `settings` are further keys at its top.

    A toolbox that is written out in full, with `mcpServers`, is taken as it is.
    """
    written = {
        name: box if "mcpServers" in box else {"description": f"Toolbox {name}.", "mcpServers": box}
        for name, box in toolboxes.items()
    }
    path = folder / "workbench-config.json"
    path.write_text(json.dumps({"toolboxes": written, **settings}, indent=2))
    return path


def logged(path: Path, method: str | None = None) -> list[dict[str, Any]]:
    """What a scripted server received, from its `--log` file; with `method` only those messages."""
    if not path.exists():
        return []
    messages = [json.loads(line) for line in path.read_text().splitlines()]
    return [message for message in messages if method is None or message.get("method") == method]
