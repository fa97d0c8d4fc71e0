"""Who reads the whole configuration: those who put things together. All others are handed what they need of it."""

from __future__ import annotations

import ast
from pathlib import Path

import mcp_workbench

PACKAGE = Path(mcp_workbench.__file__).parent
# The file itself, the catalogue that is made of it, the composition root, whoever keeps one for each client or user,
# and commands that speak about the file.
READERS = {
    *("engine/config", "engine/catalog", "app/gateway.py", "app/users.py", "app/client_sign_ins.py"),
    *("app/http_callers.py", "app/server_access.py", "app/team_gate.py", "app/traces.py"),
    *("team/oversight.py", "sharing", "setup/diagnosis.py", "setup/check_references.py", "cli"),
}


def within(place: str) -> set[str]:
    """A module and the packages that it is in."""
    return {place, *map(str, Path(place).parents)}


def test_only_composition_reads_the_whole_configuration() -> None:
    readers = set()
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "WorkbenchConfig" not in source and "catalog" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "WorkbenchConfig" for alias in node.names):
                readers.add(path.relative_to(PACKAGE).as_posix())
            # The catalogue keeps it to itself.
            if isinstance(node, ast.Attribute) and node.attr == "config":
                assert not ast.unparse(node).endswith("catalog.config"), path
    assert {reader for reader in readers if not READERS.intersection(within(reader))} == set()
    assert READERS.difference(*map(within, readers)) == set()
