"""The entry point: which command is meant. `serve` is the default and imports nothing that it does not need."""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = ("serve", "check", "list", "open", "call", "demo", "schema")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS and arguments[0] != "serve":
        from mcp_workbench.cli.commands import run

        return run(arguments)
    from mcp_workbench.cli.serve import run as serve

    return serve(arguments[1:] if arguments[:1] == ["serve"] else arguments)
