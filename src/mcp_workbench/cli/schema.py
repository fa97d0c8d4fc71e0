"""`mcp-workbench schema`: the JSON Schema of the configuration, for editors."""

from __future__ import annotations

from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.cli.screen import stdout

ABOUT = """
Prints the JSON Schema of the configuration, with which an editor completes and checks what you type. Save it next to
the configuration, and name it there:

    mcp-workbench schema > workbench-config.schema.json
    "$schema": "./workbench-config.schema.json"
"""


def run(parsed: Parsed) -> int:
    from mcp_workbench.config.schema import json_schema

    stdout().json(json_schema())
    return 0


COMMAND = Command("schema", ABOUT, (), run, takes=0)
