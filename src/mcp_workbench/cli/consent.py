"""Questions to the user at the terminal, on stderr because stdout is data.

Ensures that the end of the input never counts as consent, and that foreign text stays on the line of the question.
"""

from __future__ import annotations

import sys

from mcp_workbench.cli.wrapping import folded, width_of
from mcp_workbench.engine.printable import one_line


def ask(question: str) -> str | None:
    """Return what was typed; None at the end of the input."""
    print(f"{folded(one_line(question), width_of(sys.stderr))} ", end="", file=sys.stderr, flush=True)
    # Not `input()`, which writes its prompt to stdout.
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        return None
    return line.strip()


def agrees(question: str, *, by_default: bool = False) -> bool:
    """Whether the answer is yes. With `by_default`, Enter alone means yes."""
    answer = ask(f"{question} [{'Y/n' if by_default else 'y/N'}]")
    return answer is not None and (answer.lower() in ("y", "yes") or (by_default and not answer))
