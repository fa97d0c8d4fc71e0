"""What an error about a server quotes of what the server itself said. Pure.

Owns the wording and how much is quoted. Many servers say why they fail on stderr and nowhere else, and some at the
wrong place: on stdout, where only messages belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Lines of stderr that an error quotes.
QUOTED_STDERR: Final = 8
# And that are looked through for the names of variables: all that is kept.
READ_STDERR: Final = 100


def with_quoted_output(what: str, stderr: Sequence[str], stdout: Sequence[str] = ()) -> str:
    """What went wrong, then what the server said; nothing that stands there already is said again."""
    # Not on the start-up path.
    from mcp_workbench.transport.stderr import GAP

    what = _with_lines(what, "from its stderr:" if GAP in stderr else "last lines of its stderr:", stderr)
    return _with_lines(what, "on its stdout, where only protocol messages belong:", stdout)


def _with_lines(what: str, heading: str, lines: Sequence[str]) -> str:
    quoted = "\n".join((f"\n{heading}", *(f"  {line}" for line in lines))) if lines else ""
    return what if quoted in what else what + quoted
