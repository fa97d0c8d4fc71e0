"""`mcp-workbench check --schema`: the JSON Schema of the configuration, for editors."""

from __future__ import annotations

from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout


def run(parsed: Parsed) -> int:
    from mcp_workbench.engine.config.schema import json_schema

    stdout().json(json_schema())
    return 0
