"""What is said of keys that mean something to another client and nothing here.

Owns the sentences. Which keys these are stands in `keys`, which servers have them in the model.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.config.keys import IDLE_KEYS
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.config.problems import quote

# Servers that a sentence names; a file with fifty of the kind needs no fifty names.
_MOST_NAMED: Final = 3


def about_ignored_keys(config: WorkbenchConfig) -> list[str]:
    """A sentence for each key that has no effect, in the order of the file."""
    return [_about(key, servers) for key, servers in config.ignored_keys.items()]


def _about(key: str, servers: tuple[str, ...]) -> str:
    named = ", ".join(map(quote, servers[:_MOST_NAMED]))
    if len(servers) > _MOST_NAMED:
        named += f" and {len(servers) - _MOST_NAMED} more"
    return f"{quote(key)} of {named} has no effect: {IDLE_KEYS[key]}"
