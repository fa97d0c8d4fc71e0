"""What a server would start or connect to, shown beforehand: the command or the address, and what else affects it.

Owns the lines. Of the user's own servers only the names of variables and headers are shown, because values may be
secret; of what a stranger has written, the values too, and those that can load code whatever they look like.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.setup.clients.literal_secrets import secrets_of
from mcp_workbench.setup.clients.package_rules import loads_code, remarks_about

_FETCHED: Final = re.compile(r"\$\{(?:cmd|file|keyring):[^}]*\}")


def preview(entry: Mapping[str, Any], *, of_stranger: bool = False, hidden: Sequence[str] | None = None) -> list[str]:
    """Return the lines about an entry in our format, the command or the address first. `hidden` are the secrets in it,
    if they are known."""
    redactor = Redactor(secrets_of(entry) if hidden is None else hidden)
    if "command" in entry:
        # Redacted before quoting, because quoting could break up a secret so that it is no longer recognised.
        found = [" ".join(shlex.quote(redactor.text(word)) for word in (entry["command"], *entry.get("args", ())))]
    else:
        found = [redactor.text(str(entry.get("url", "")))]
    for member, words in _ABOUT.items():
        if value := entry.get(member):
            if isinstance(value, dict) and of_stranger:
                shown = ", ".join(pairs_shown(value, redactor, whole=True))
            else:
                shown = redactor.text(", ".join(map(str, value)) if isinstance(value, list | dict) else str(value))
            found.append(f"{words} {shown}")
    if "command" in entry:
        found += map(redactor.text, remarks_about(entry["command"], [*map(str, entry.get("args", ()))]))
    # A program in `${cmd:…}` runs as soon as the server starts, so the user must see it before agreeing.
    if fetched := list(dict.fromkeys(_fetched(entry))):
        found.append(f"fetches {', '.join(fetched)}")
    if entry.get("disabled"):
        found.append("disabled")
    return found


def pairs_shown(pairs: Mapping[str, Any], redactor: Redactor, *, whole: bool = False) -> list[str]:
    """Return the variables or headers of a stranger as they are shown: those that can load code with their values, and
    with `whole` all of them."""

    def shown(name: str, value: str) -> str:
        if loads_code(name):
            return f"{name}={shlex.quote(value)} (which can load other code)"
        return f"{name}={shlex.quote(redactor.text(value))}" if whole else name

    return [shown(name, str(value)) for name, value in pairs.items()]


_ABOUT: Final = {
    "cwd": "in the folder",
    "env": "with the variables",
    "envFile": "with the variables of the file",
    "inheritEnv": "and of yours",
    "headers": "with the headers",
}


def _fetched(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from _FETCHED.findall(value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _fetched(each)
