"""What is said of parts of a file that mean something to another client and nothing here.

Owns the sentences. Which keys these are stands in `keys`; which servers have them, and which belong to single projects,
in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_workbench.config.keys import IDLE_KEYS
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.config.problems import quote

# Servers that a sentence names; a file with fifty of the kind needs no fifty names.
_MOST_NAMED: Final = 3
# People look for their own among these, so more of them are named.
_MOST_OF_PROJECTS: Final = 10


def about_ignored_keys(config: WorkbenchConfig) -> list[str]:
    """A sentence for each key that has no effect, in the order of the file, and one for servers of single projects."""
    about_keys = [_about(key, servers) for key, servers in config.ignored_keys.items()]
    return [*about_keys, _about_projects(config.project_servers)] if config.project_servers else about_keys


def _about(key: str, servers: tuple[str, ...]) -> str:
    named = ", ".join(map(quote, servers[:_MOST_NAMED]))
    if len(servers) > _MOST_NAMED:
        named += f" and {len(servers) - _MOST_NAMED} more"
    return f"{quote(key)} of {named} has no effect: {IDLE_KEYS[key]}"


def _about_projects(servers: Mapping[str, Sequence[str]]) -> str:
    named = [f"{quote(name)} of {quote(project)}" for project, names in servers.items() for name in names]
    shown = ", ".join(named[:_MOST_OF_PROJECTS])
    if len(named) > _MOST_OF_PROJECTS:
        shown += f" and {len(named) - _MOST_OF_PROJECTS} more"
    return f"servers of single projects are not read: {shown}; copy those you need to `mcpServers` of another file"
