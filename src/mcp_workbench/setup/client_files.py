"""The files of MCP clients on this machine: which exist, and which to write.

Owns finding them. Uses only `stat` until content is needed: on macOS, reading the files of other apps asks the user for
consent.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.client_paths import System, patterns, this_system
from mcp_workbench.setup.clients.documents import Servers, servers_in
from mcp_workbench.setup.clients.table import Client, ClientFile, Scope, clients
from mcp_workbench.setup.file_replacement import read_file

_REPAIR: Final = "repair the file, or move it away: what is broken is not edited"


def message_and_hint(error: ConfigError) -> tuple[str, str | None]:
    """Return what is wrong with a client or its file, and separately what to do about it."""
    if not isinstance(error, ConfigProblems):
        return error.message, error.hint
    message = error.message if error.first_hint is None else error.message.replace(f"\n  hint: {error.first_hint}", "")
    return message, error.first_hint or _REPAIR


class FoundFile(Struct, frozen=True):
    """A file of a client, with its path on this machine."""

    client: Client
    file: ClientFile
    path: str

    def content(self) -> bytes | None:
        """Raises `ConfigError`."""
        return read_file(self.path)

    def servers(self) -> Servers:
        """The servers as written in the file. Raises `ConfigError`."""
        return servers_in(self.content() or b"", self.file, self.path)


def existing(client: Client, scope: Scope | None, system: System | None = None) -> list[FoundFile]:
    """Return the client's files that exist; of each kind the preferred one."""
    system = system or this_system()
    found = []
    for file in client.file:
        if scope in (None, file.scope):
            paths = [path for pattern in patterns(file, system) for path in _matching(pattern)]
            key = tuple(system.folder if step == "{folder}" else step for step in file.key)
            found += [FoundFile(client, replace(file, key=key), path) for path in (paths if file.each else paths[:1])]
    return found


def to_write(client: Client, scope: Scope) -> list[FoundFile]:
    """Return the files to write a server to: all existing generations, or else the newest, which is created."""
    # Clients that moved their settings read the old or the new file depending on their version: if both exist, both get
    # the entry.
    writable = [each for each in existing(client, scope) if not each.file.read_only]
    if writable:
        return writable
    system = this_system()
    for file in client.file:
        if file.scope == scope and not file.read_only and not file.each:
            for pattern in patterns(file, system):
                if "*" not in pattern:
                    return [FoundFile(client, file, pattern)]
                folder = os.path.dirname(pattern)
                if folders := glob.glob(folder):
                    return [FoundFile(client, file, os.path.join(folders[0], os.path.basename(pattern)))]
    raise ConfigError(f"{client.title} has no file for a {scope}", hint=f"mcp-workbench install {client.name}")


def is_present(client: Client) -> bool:
    """Whether the client seems to be in use here: its program, its file, or the folder of its file exists."""
    if client.own is not None and shutil.which(client.own.program):
        return True
    system = this_system()
    rules = [path for file in client.file if file.scope == "user" for path in patterns(file, system)]
    # The home folder and `~/.config` always exist.
    folders = {os.path.dirname(path) for path in rules} - {system.home, os.path.join(system.home, ".config")}
    return bool(existing(client, "user")) or any(map(glob.glob, folders))


def present() -> list[Client]:
    """Return the clients found on this machine that the workbench can be installed into."""
    return [client for client in clients().values() if not client.import_only and is_present(client)]


def _matching(pattern: str) -> list[str]:
    if "*" in pattern:
        return sorted(glob.glob(pattern))
    return [pattern] if os.path.lexists(pattern) else []
