"""Keys that other clients write into a server's entry and that mean nothing here.

Owns the tables and the messages of `check` and the log about them. Loaded only for a file that has such keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.problems import quote

# Title, and who writes it.
FOREIGN_KEYS: Final = {
    "description": ("Description", "Gemini CLI and others"),
    "name": ("Display name", "several clients"),
    "icon": ("Icon", "several clients"),
    "autoApprove": ("Approved tools", "Cline and Kiro"),
    "alwaysAllow": ("Approved tools", "Roo Code and Windsurf"),
    "alwaysLoad": ("Loaded at start", "Claude Code"),
    "trust": ("Trusted", "Gemini CLI"),
    "auth": ("Sign-in settings", "Cursor"),
    "authProviderType": ("Sign-in settings", "Gemini CLI"),
    "targetAudience": ("Sign-in settings", "Gemini CLI"),
    "targetServiceAccount": ("Sign-in settings", "Gemini CLI"),
    "watchPaths": ("Watched files", "Roo Code"),
    "remoteConfigured": ("Managed remotely", "Cline"),
    "gallery": ("Gallery", "VS Code"),
    "version": ("Gallery version", "VS Code"),
    "dev": ("Development mode", "VS Code"),
    "extension": ("Extension", "Gemini CLI"),
    "source": ("Source", "Zed"),
}

# Of those, keys that users may rely on, and why they have no effect; `check` and the log report it. The others are
# cosmetic.
_NO_SIGN_IN = "the workbench signs in by itself, and takes what it needs for that from `oauth`"
_APPROVED_ELSEWHERE = "clients approve by the names that they see: approve the tools of the workbench there"
IDLE_KEYS = {
    **dict.fromkeys(("auth", "authProviderType", "targetAudience", "targetServiceAccount"), _NO_SIGN_IN),
    **dict.fromkeys(("autoApprove", "alwaysAllow", "trust"), _APPROVED_ELSEWHERE),
    "alwaysLoad": "use `pin` for tools that are always shown",
    "sandbox": 'VS Code\'s rules are not read; write `"sandbox": "contained"`',
    "watchPaths": "the workbench does not restart servers when files change",
    "dev": "the workbench does not restart servers when files change",
}

# Ignoring these would start a different server from the one the user described, so non-empty values are refused, with
# what to do instead.
UNSUPPORTED_KEYS = {
    "headersHelper": "write the headers into `headers`; `${VAR}` works there",
    "sandboxEnabled": 'write `"sandbox": "contained"` instead, or remove the key',
    "tcp": "give the server an `http` address in `url`",
}

# Servers named in one sentence; a file with fifty of them needs no fifty names.
_MAX_NAMED_SERVERS: Final = 3
# Users look for their own among these, so more of them are named.
_MAX_NAMED_OF_PROJECTS: Final = 10


def about_ignored_keys(config: WorkbenchConfig) -> list[str]:
    """Return a sentence for each key that has no effect, in the order of the file, and one for servers of single
    projects."""
    about_keys = [_about(key, servers) for key, servers in config.ignored_keys.items()]
    return [*about_keys, _about_projects(config.project_servers)] if config.project_servers else about_keys


def _about(key: str, servers: tuple[str, ...]) -> str:
    named = ", ".join(map(quote, servers[:_MAX_NAMED_SERVERS]))
    if len(servers) > _MAX_NAMED_SERVERS:
        named += f" and {len(servers) - _MAX_NAMED_SERVERS} more"
    return f"{quote(key)} of {named} has no effect: {IDLE_KEYS[key]}"


def _about_projects(servers: Mapping[str, Sequence[str]]) -> str:
    named = [f"{quote(name)} of {quote(project)}" for project, names in servers.items() for name in names]
    shown = ", ".join(named[:_MAX_NAMED_OF_PROJECTS])
    if len(named) > _MAX_NAMED_OF_PROJECTS:
        shown += f" and {len(named) - _MAX_NAMED_OF_PROJECTS} more"
    return f"servers of single projects are not read: {shown}; copy those you need to `mcpServers` of another file"
