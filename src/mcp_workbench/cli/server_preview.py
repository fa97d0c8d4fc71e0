"""What a server would start or connect to, shown beforehand: the command or the address, and what else affects it.

Owns the lines. Only the names of variables and headers are shown: values may be secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_workbench.clients.literal_secrets import secrets_of
from mcp_workbench.config.redact import Redactor

_FETCHED: Final = re.compile(r"\$\{(?:cmd|file|keyring):[^}]*\}")


def preview(entry: Mapping[str, Any]) -> list[str]:
    """Return the lines about an entry in our format, the command or the address first."""
    redactor = Redactor(secrets_of(entry))
    if "command" in entry:
        # Redacted before quoting, because quoting could break up a secret so that it is no longer recognised.
        found = [" ".join(shlex.quote(redactor.text(word)) for word in (entry["command"], *entry.get("args", ())))]
    else:
        found = [redactor.text(str(entry.get("url", "")))]
    for member, words in _ABOUT.items():
        if value := entry.get(member):
            named = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
            found.append(f"{words} {redactor.text(named)}")
    # A program in `${cmd:…}` runs as soon as the server starts, so the user must see it before agreeing.
    if fetched := list(dict.fromkeys(_fetched(entry))):
        found.append(f"fetches {', '.join(fetched)}")
    if entry.get("disabled"):
        found.append("disabled")
    return found


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
