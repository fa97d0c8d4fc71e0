"""The checks of `doctor` on MCP clients: which have the workbench, and whether they start the right, existing program.

On macOS, reading files of other apps asks the user for consent, so only files that we have written are read there.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from typing import Any

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_changes import BACKUP_LIFETIME, changes, expire, expired
from mcp_workbench.setup.client_commands import is_installed, program
from mcp_workbench.setup.client_files import FoundFile, existing, is_present, message_and_hint, present
from mcp_workbench.setup.clients.dialects import is_own, translated
from mcp_workbench.setup.clients.identity import Served, is_served
from mcp_workbench.setup.clients.table import Client, clients
from mcp_workbench.setup.diagnosis import Diagnosis, Examined
from mcp_workbench.setup.folder_trust import untrusted_note
from mcp_workbench.setup.install_plan import own_command, served_by


def client_entries(subject: Examined) -> list[Diagnosis]:
    """Check what each client on this machine starts."""
    served = list(served_by(subject.config.path).values()) if subject.config is not None else []
    here = present()
    found: list[Diagnosis] = []
    having: list[str] = []
    for client in here:
        if not _may_read(client):
            continue
        about, has_us = _about(client, served)
        found += about
        having += [client.title] if has_us else []
        if has_us and (note := untrusted_note(client, os.getcwd())) is not None:
            found.append(Diagnosis("note", "clients", note, f"/permissions in {client.title} changes that"))
    if here and not having and subject.config is not None:
        usable = [each for each in here if not each.command_only or is_installed(each)]
        hint = f"mcp-workbench install {usable[0].name}, or --all" if usable else _without_program(here[0])
        text = f"none of the clients on this machine starts the workbench ({', '.join(each.title for each in here)})"
        found.append(Diagnosis("warning", "clients", text, hint))
    elif having:
        found.append(Diagnosis("note", "clients", f"these clients start the workbench: {', '.join(having)}"))
    return found


def stale_files(subject: Examined) -> list[Diagnosis]:
    """Report files that are no longer read, of clients that were renamed or moved their settings."""
    found = []
    for client in clients().values():
        try:
            is_expired = bool(expired(client))
        except ConfigError as error:
            found.append(Diagnosis("error", "clients", f"{client.title}: {error.message}", error.hint or ""))
            is_expired = False
        if is_expired:
            text = (
                f"backups of {client.title}'s file are older than {BACKUP_LIFETIME / 86400:.0f} days, and hold its keys"
            )
            found.append(Diagnosis("note", "clients", text, fix=partial(_delete_expired, client)))
        files = existing(client, "user")
        newest = [each for each in files if not each.file.generation]
        for old in (each for each in files if each.file.generation and not each.file.each and newest):
            text = (
                f"{client.title} reads `{newest[0].path}`; `{old.path}` is of an older version ({old.file.generation})"
            )
            hint = f"mcp-workbench init --from {client.name} imports what is in both; then delete the older one"
            found.append(Diagnosis("note", "clients", text, hint))
        if client.import_only and is_present(client) and files:
            text = f"{client.title} was {client.import_only}; its servers are still in `{files[0].path}`"
            found.append(Diagnosis("note", "clients", text, f"mcp-workbench init --from {client.name} takes them over"))
    return found


def _delete_expired(client: Client) -> str:
    expire(client)
    return "they were deleted"


def _without_program(client: Client) -> str:
    return (
        f"put `{program(client)}`, the command of {client.title}, on the PATH; then mcp-workbench install {client.name}"
    )


def _may_read(client: Client) -> bool:
    # The user has consented to reading what `install` changed.
    return sys.platform != "darwin" or bool(changes(client))


def _about(client: Client, served: list[Served]) -> tuple[list[Diagnosis], bool]:
    found: list[Diagnosis] = []
    own: list[tuple[FoundFile, str, dict[str, Any]]] = []
    doubles: list[str] = []
    for file in (each for each in existing(client, "user")):
        try:
            servers = file.servers()
        except ConfigError as error:
            text, hint = message_and_hint(error)
            found.append(Diagnosis("error", "clients", f"{client.title}: {text}", hint or ""))
            continue
        for name, written in servers.items():
            entry = translated(written, file.file.dialect).entry
            if entry is None:
                continue
            if is_own(entry):
                own.append((file, name, entry))
            # The agent would see its tools twice, and two processes would run.
            elif not entry.get("disabled") and is_served(name, entry, served, shutil.which):
                doubles.append(name)
    for file, name, entry in own:
        found += _about_own(client, file, name, entry)
    # Without the workbench in the file, these are simply the client's servers.
    if own and doubles:
        listed = ", ".join(f"`{name}`" for name in doubles)
        text = f"{client.title} also starts {listed} itself, beside the workbench"
        found.append(Diagnosis("warning", "clients", text, f"mcp-workbench install {client.name} --replace"))
    # Each profile of an editor has its own file, with one entry each.
    if len(own) > 1 and len({file.path for file, _, _ in own}) == 1:
        names = ", ".join(f"`{name}`" for _, name, _ in own)
        text = f"{client.title} starts the workbench {len(own)} times: {names}"
        found.append(Diagnosis("warning", "clients", text, f"remove all but one from `{own[0][0].path}`"))
    return found, bool(own)


def _about_own(client: Client, file: FoundFile, name: str, entry: dict[str, Any]) -> list[Diagnosis]:
    again = f"mcp-workbench install {client.name}" + (f" --name {name}" if name != "workbench" else "")
    command = str(entry["command"])
    path = entry.get("env", {}).get("PATH", os.environ.get("PATH"))
    program = command if os.sep in command else shutil.which(command, path=path)
    where = f"{client.title} starts `{command}` (`{name}` in `{file.path}`)"
    if program is None or not os.access(program, os.X_OK):
        return [Diagnosis("error", "clients", f"{where}, which does not exist", again)]
    found = []
    installed = own_command("")[0]
    if os.path.realpath(program) != os.path.realpath(installed) and os.path.basename(program) == "mcp-workbench":
        text = f"{where}; this is `{installed}`, another installation"
        found.append(Diagnosis("warning", "clients", text, again))
    words = [str(word) for word in entry.get("args", [])]
    config = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "--config"), None)
    if config is not None and not os.path.exists(os.path.expanduser(config)):
        text = f"{client.title} starts the workbench with `{config}` (`{name}` in `{file.path}`), which does not exist"
        found.append(Diagnosis("error", "clients", text, again))
    return found
