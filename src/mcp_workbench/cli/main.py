"""The entry point: which command is meant. `serve` is the default and imports nothing that it does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMMANDS = ("serve", "check", "list", "open", "call", "tokens", "status", "demo", "trust", "schema")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    _fill_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(arguments)
        # Here rather than when the interpreter ends, where a closed pipe would be complained about.
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`); what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _fill_standard_streams() -> None:
    """Descriptors 0 to 2 must be taken: what is opened next would get them, and then be read as stdin, or closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if first == "help" or (first in COMMANDS and first != "serve"):
        from mcp_workbench.cli.commands import run

        return run(arguments)
    if first not in COMMANDS and _cannot_be_a_file(first):
        from mcp_workbench.cli.commands import unknown

        return unknown(first, COMMANDS)
    from mcp_workbench.cli.serve import run as serve

    return serve(arguments[1:] if first == "serve" else arguments)


def _cannot_be_a_file(word: str) -> bool:
    """A configuration may be named without a command before it; a bare word that is no file is a misspelt command."""
    return bool(word) and not word.startswith(("-", "~", ".")) and word.isidentifier() and not os.path.lexists(word)
