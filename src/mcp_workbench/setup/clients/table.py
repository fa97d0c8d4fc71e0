"""The table of clients, `clients.toml`, as values. Owns the names under which clients are found."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Final, Literal

from msgspec import Struct, convert

from mcp_workbench.errors import ConfigError

Format = Literal["json", "jsonc", "toml", "yaml"]
Scope = Literal["user", "project"]
CLIENTS_FILE: Final = os.path.join(os.path.dirname(__file__), "clients.toml")


class OwnCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """The client's own program, by which it is found, and how it adds and removes a server of the user, where only the
    client may write its file. `{name}` and `{json}` are filled in."""

    program: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class ClientFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in which a client keeps its servers, and in which form."""

    scope: Scope
    format: Format
    dialect: str
    # `{folder}` is that of the project.
    key: tuple[str, ...]
    all: tuple[str, ...] = ()
    linux: tuple[str, ...] = ()
    macos: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    # Which version of the client or of its format this is, if there are several.
    generation: str = ""
    # The key of a newer generation in the same file; used if it is there.
    newer_key: tuple[str, ...] = ()
    # Servers are a list of objects with names, rather than an object.
    list: bool = False
    # The servers may also be at the top level, without the key.
    bare: bool = False
    read_only: bool = False
    # The content that the client requires in a new file.
    when_new: str = ""
    # Every match of a `*` counts, as for the profiles of an editor, which the client's own command does not know.
    each: bool = False


class FolderTrust(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a client keeps the folders that its user trusts; in others it starts no servers."""

    # An object of folders, each with `TRUST_FOLDER`, `TRUST_PARENT` or `DO_NOT_TRUST`.
    path: str
    # Whether it applies unless the client's settings say otherwise.
    is_default: bool


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    title: str
    checked: Literal["code", "documentation", "measured", "guess"]
    date: str
    source: str
    file: tuple[ClientFile, ...]
    aliases: tuple[str, ...] = ()
    own: OwnCommand | None = None
    # We never write the user's file, not even if the client's program is missing.
    command_only: bool = False
    # Started from a desktop, with a short `PATH`.
    graphical: bool = False
    environment: Literal["inherited", "cleared", "without-secrets"] = "inherited"
    reserved: tuple[str, ...] = ()
    # Why it can no longer be installed into.
    import_only: str = ""
    folder_trust: FolderTrust | None = None
    # Clients whose files it also reads.
    reads_too: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# `doctor` runs checks in threads, and msgspec (0.22) crashes if two create the first `Client` concurrently.
_first_reading: Final = threading.Lock()


def clients() -> dict[str, Client]:
    """Return all clients by name, in the order of the table."""
    with _first_reading:
        return _read_clients()


@cache
def _read_clients() -> dict[str, Client]:
    import tomllib

    with open(CLIENTS_FILE, "rb") as file:
        rows = convert(tomllib.load(file)["client"], list[Client])
    return {client.name: client for client in rows}


def find(name: str) -> Client:
    """Return the client with this name, alias or title. Raises `ConfigError`."""
    from mcp_workbench.engine.nearest import nearest

    wanted = name.casefold()
    for client in clients().values():
        if wanted in (client.name, client.title.casefold(), *client.aliases):
            return client
    near = nearest(wanted, [*clients(), *(alias for client in clients().values() for alias in client.aliases)], limit=1)
    known = f"did you mean `{near[0]}`?" if near else f"known clients: {', '.join(clients())}"
    raise ConfigError(
        f"unknown client `{name}`; {known}", hint="mcp-workbench help clients has a section for each client"
    )
