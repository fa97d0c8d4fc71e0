"""What tools cost: as a flat list, and in the form that comes nearest to it."""

from __future__ import annotations

import json

from mcp_workbench.engine.economy.costs import cost
from mcp_workbench.engine.economy.tool import Tool
from tests.engine.economy.tools import schema

DEFINITION = {"name": "write", "description": "Writes a file.", "inputSchema": schema("path", "content")}


def full_and_flat(definition: str) -> tuple[int, int]:
    counted = cost([Tool("box/files/write", "box", "files", "write", definition.encode())])
    return counted.forms["full"], counted.flat


def test_lean_form_omits_unneeded_members() -> None:
    definition = json.dumps({**DEFINITION, "outputSchema": schema(*"abcdefgh")})
    made = cost([Tool("box/files/x", "box", "files", "x", definition.encode())])
    assert made.forms["lean"] < made.flat


def test_the_full_form_of_a_short_definition_is_longer_by_where_the_tool_is() -> None:
    full, flat = full_and_flat(json.dumps(DEFINITION, separators=(",", ":")))
    assert 0 < full - flat <= len('"toolbox_name":"box","source_server":"files",') // 4 + 1


def test_a_client_pays_for_white_space_in_the_full_form_alone() -> None:
    full, flat = full_and_flat(json.dumps(DEFINITION, separators=(",", ":")))
    wide_full, wide_flat = full_and_flat(json.dumps(DEFINITION, indent=8))
    assert wide_flat == flat
    assert wide_full > full
