"""How every command reports errors: on stderr, `error: …`, a blank line, `hint: …`.

Owns that form. Messages may quote a server, so control characters are escaped and continuation lines are indented: only
our own text begins at the margin. Lean by intent: `serve` uses it too.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from mcp_workbench.errors import ConfigError

T = TypeVar("T")

# Exit statuses; docs/reference/cli.md explains them.
FAILED_STATUS: Final = 1
USAGE_STATUS: Final = 2

_COLOURS: Final = {"error": "1;31", "warning": "1;33", "hint": "1;36", "note": "1;36"}


def complain(message: str, hint: str | None = None, *, status: int = USAGE_STATUS) -> int:
    """Report an error and what to do about it. Returns the exit status."""
    text = _labelled("error", message)
    if hint:
        text += f"\n\n{_labelled('hint', hint)}"
    print(text, file=sys.stderr)
    return status


def remark(label: str, message: str, hint: str | None = None) -> None:
    """Print a `warning`, `note` or `hint` that does not end anything, and what to do about it."""
    print(_labelled(label, message), file=sys.stderr)
    if hint:
        print(_labelled("hint", hint), file=sys.stderr)


def of_several(chosen: Sequence[T], act: Callable[[T], object]) -> int:
    """Act on each item, and continue if one of several fails. Returns the exit status. Raises the `ConfigError` of a
    single item."""
    failed = 0
    for each in chosen:
        try:
            act(each)
        except ConfigError as error:
            if len(chosen) == 1:
                raise
            failed += 1
            complain(error.message, error.hint)
    return status_of(failed, len(chosen))


def status_of(failed: int, count: int) -> int:
    """Return the exit status of a command that acted on several items."""
    return 0 if not failed else USAGE_STATUS if failed == count else FAILED_STATUS


def warn_if_others_can_read(about: os.stat_result, what: str) -> None:
    """Warn about a private file that other users can read."""
    if stat.S_ISREG(about.st_mode) and about.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        remark("warning", f"{what} can be read by other users; chmod 600 makes it private")


def _labelled(label: str, text: str) -> str:
    # Imported only when there is something to print: a successful start prints nothing.
    from mcp_workbench.cli.wrapping import folded, tilde, width_of
    from mcp_workbench.engine.printable import indented, visible

    return f"{_label(label)} {folded(tilde(indented(visible(text))), width_of(sys.stderr), before=len(label) + 2)}"


def _label(word: str) -> str:
    if not is_colourful():
        return f"{word}:"
    return f"\x1b[{_COLOURS[word]}m{word}:\x1b[0m"


def is_colourful() -> bool:
    """Whether stderr is a terminal whose user wants colours."""
    # no-color.org: set to anything but an empty string.
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr is not None and sys.stderr.isatty()
