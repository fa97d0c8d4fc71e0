"""Tools for tests, with definitions as servers send them."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.engine.economy.tool import Tool


def tool(name: str, description: str = "", *, server: str = "files", toolbox: str = "dev", **rest: Any) -> Tool:
    """A tool; `rest` goes into its definition, and so does any argument that is not a text."""
    definition = {"name": name, "description": description, "inputSchema": {"type": "object"}, **rest}
    return Tool(f"{toolbox}/{server}/{name}", toolbox, server, name, msgspec.json.encode(definition))


def schema(*names: str, about: str = "") -> dict[str, Any]:
    argument = {"type": "string", "description": about} if about else {"type": "string"}
    return {"type": "object", "properties": dict.fromkeys(names, argument), "required": list(names[:1])}
