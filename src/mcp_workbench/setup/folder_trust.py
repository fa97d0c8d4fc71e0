"""Whether a client starts servers in a folder: some do so only in those that their user has trusted.

Reads the client's own list of folders, and nothing else of it. A list that cannot be read says nothing.
"""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_files import existing
from mcp_workbench.setup.clients.documents import root_of
from mcp_workbench.setup.clients.table import Client

# "any": the client does not ask, or its answer cannot be read.
Trust = Literal["any", "trusted", "unknown", "refused"]


def trust_in(client: Client, folder: str) -> Trust:
    """Return whether the client's user has trusted a folder."""
    rule = client.folder_trust
    if rule is None or not _applies(client):
        return "any"
    try:
        with open(os.path.expanduser(rule.path), "rb") as file:
            listed = json.load(file)
    except FileNotFoundError:
        return "unknown"
    except (OSError, ValueError):
        return "any"
    return _verdict(listed, os.path.realpath(folder)) if isinstance(listed, dict) else "any"


def untrusted_note(client: Client, folder: str) -> str | None:
    """Return what to say of a folder in which the client starts no servers, or None."""
    match trust_in(client, folder):
        case "unknown":
            return f"{client.title} starts MCP servers only in folders you trust; it asks when it first runs in one"
        case "refused":
            return f"you have told {client.title} not to trust `{folder}`, so it starts no MCP servers there"
        case _:
            return None


def _applies(client: Client) -> bool:
    assert client.folder_trust is not None
    for found in existing(client, "user"):
        try:
            settings: Any = root_of(found.content() or b"{}", found.file, found.path)
        except ConfigError:
            continue
        for key in ("security", "folderTrust", "enabled"):
            settings = settings.get(key) if isinstance(settings, dict) else None
        if isinstance(settings, bool):
            return settings
    return client.folder_trust.is_default


def _verdict(listed: dict[str, Any], folder: str) -> Trust:
    """The entry of the innermost folder counts."""
    found: dict[str, Trust] = {}
    for path, answer in listed.items():
        own = os.path.realpath(path)
        if answer == "DO_NOT_TRUST":
            found[own] = "refused"
        elif answer in ("TRUST_FOLDER", "TRUST_PARENT"):
            found.setdefault(os.path.dirname(own) if answer == "TRUST_PARENT" else own, "trusted")
    around = [own for own in found if folder == own or folder.startswith(os.path.join(own, ""))]
    return found[max(around, key=len)] if around else "unknown"
