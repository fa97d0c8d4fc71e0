"""The files of MCP clients on this machine: which exist, which to write, and what we have changed.

Owns finding them, and the records that `undo` uses: one file for each client in our state folder, next to the backups.
Uses only `stat` until content is needed: on macOS, reading the files of other apps asks the user for consent.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.cli import client_commands
from mcp_workbench.clients.client_paths import System, patterns, this_system
from mcp_workbench.clients.documents import Servers, servers_in
from mcp_workbench.clients.table import Client, ClientFile, Scope, clients
from mcp_workbench.config.problems import ConfigProblems
from mcp_workbench.config.state_folder import state_path
from mcp_workbench.errors import ConfigError
from mcp_workbench.file_replacement import (
    ChangedAfterwards,
    back_up,
    locked,
    read_file,
    refuse_what_is_not_ours,
    replace_file,
    write_whole,
)

# Older changes cannot be undone, and their backups are deleted.
MOST_CHANGES: Final = 20


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

    @property
    def place(self) -> tuple[str, ...]:
        return (self.path, *self.file.key)

    def content(self) -> bytes | None:
        """Raises `ConfigError`."""
        return read_file(self.path)

    def servers(self) -> Servers:
        """The servers as written in the file. Raises `ConfigError`."""
        return servers_in(self.content() or b"", self.file, self.path)


class Change(Struct, frozen=True, omit_defaults=True):
    """A change to a client: a file with its content before and after, or commands that reverse the change."""

    name: str
    path: str = ""
    backup: str | None = None
    sha256: str | None = None
    reverse: list[list[str]] = []
    # Whether the client had the server `name` before, and in which file and under which key. If that is the case again,
    # the reverse commands have nothing to do.
    was_there: bool | None = None
    seen_in: tuple[str, ...] = ()
    # Folders that were created for the file, the innermost first.
    made: list[str] = []
    # Identifies the changes made by one command, which belong together: a client may have several files.
    run: str = ""


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


def state_folder(client: Client) -> str:
    """Return the folder for backups and records of a client. Raises `ConfigError`."""
    folder = state_path("clients")
    if folder is None:
        raise ConfigError("there is no folder to keep backups in", hint="set `HOME`")
    return os.path.join(folder, client.name)


def changes(client: Client) -> list[Change]:
    """Return the recorded changes, oldest first."""
    content = read_file(_record_path(client))
    try:
        return msgspec.json.decode(content, type=list[Change]) if content else []
    except msgspec.MsgspecError:
        raise ConfigError(f"`{_record_path(client)}` is damaged", hint="the backups are next to it") from None


def record(client: Client, change: Change) -> None:
    """Record a change that is about to be made or was just made."""
    with locked(_record_path(client), state_folder(client)):
        _rewrite(client, [*changes(client), change])


def forget(client: Client, change: Change) -> None:
    """Remove the record of a change that has been reversed."""
    with locked(_record_path(client), state_folder(client)):
        _rewrite(client, [each for each in changes(client) if each != change])


def new_run() -> str:
    """Return a new id shared by the changes of one command."""
    return os.urandom(8).hex()


def write(found: FoundFile, before: bytes | None, after: bytes | None, name: str, run: str) -> str | None:
    """Replace the content, or delete the file, after recording how to reverse that. Returns the path of the backup.

    Raises `ConfigError`; the file is then unchanged, except with `ChangedAfterwards`.
    """
    folder = state_folder(found.client)
    # Before the backup, so that nothing is left behind if the file cannot be replaced.
    refuse_what_is_not_ours(found.path)
    made = _missing_folders(found.path)
    change = Change(name, found.path, keep(found, before), digest(after), run=run, made=made)
    # First the record, then the file: if we are killed in between, there is an undo that finds nothing to do, but never
    # a change without an undo.
    record(found.client, change)
    try:
        replace_file(found.path, before, after, folder)
    except ChangedAfterwards:
        # It was written, so the record stays.
        raise
    except ConfigError:
        forget(found.client, change)
        raise
    return change.backup


def created(found: FoundFile) -> Change | None:
    """Return the change that created the file, if that was the last one."""
    last = [each for each in changes(found.client) if each.path == found.path][-1:]
    return last[0] if last and last[0].backup is None else None


def remove_folders(change: Change) -> None:
    """Remove the folders that were created for a file that is gone again: a client seems to be in use if its folder
    exists."""
    # `rmdir` fails if the client has put something into it meanwhile.
    with contextlib.suppress(OSError):
        for folder in change.made:
            os.rmdir(folder)


def _missing_folders(path: str) -> list[str]:
    folder, found = os.path.dirname(os.path.realpath(path)), []
    while not os.path.lexists(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def take_steps(
    found: FoundFile, before: bytes | None, steps: Sequence[client_commands.CommandStep], run: str
) -> str | None:
    """Run a client's own commands, recording each so that `undo` can reverse those that ran. Returns the path of the
    backup.

    Raises `ConfigError`.
    """
    client = found.client
    if client.command_only:
        # A file that its client rewrites all the time cannot be restored from a backup.
        for step in steps:
            reverse = [] if step.back is None else [step.back]
            change = Change(step.name, reverse=reverse, run=run, was_there=not step.is_there, seen_in=found.place)
            record(client, change)
            try:
                _take(found, step)
            except ConfigError:
                # Without effect there is nothing to undo.
                if (step.name in found.servers()) is not step.is_there:
                    forget(client, change)
                raise
        return None
    backup = keep(found, before)
    try:
        for step in steps:
            _take(found, step)
    finally:
        # Also after a failure: the command may have written before it failed.
        now = found.content()
        if now != before:
            record(client, Change(steps[-1].name, found.path, backup, digest(now), run=run))
    return backup


def _take(found: FoundFile, step: client_commands.CommandStep) -> None:
    """Run a command and check the file: a command may succeed without effect, as in a folder that its client does not
    trust."""
    client_commands.run(found.client, step.command)
    if (step.name in found.servers()) is not step.is_there:
        has = "does not have" if step.is_there else "still has"
        by_hand = f"mcp-workbench install {found.client.name} --print shows what to enter by hand"
        raise ConfigError(
            f"`{' '.join(step.command[:3])}` said that it did so, but `{found.path}` {has} `{step.name}`",
            hint=by_hand if step.is_there else f"remove it from `{found.path}` by hand",
        )


def keep(found: FoundFile, content: bytes | None) -> str | None:
    """Back up the content, if there is any. Returns the path of the backup. Raises `ConfigError`."""
    if content is None:
        return None
    try:
        return back_up(found.path, content, state_folder(found.client))
    except OSError as error:
        raise ConfigError(f"`{found.path}` cannot be backed up: {error.strerror}; it is as it was") from None


def _rewrite(client: Client, every: list[Change]) -> None:
    kept = every[-MOST_CHANGES:]
    # Everything that one command did is reversed together or not at all.
    kept = [each for each in kept if not each.run or each.run not in {other.run for other in every[:-MOST_CHANGES]}]
    try:
        write_whole(_record_path(client), msgspec.json.format(msgspec.json.encode(kept)))
    except OSError as error:
        raise ConfigError(f"`{_record_path(client)}` cannot be written: {error.strerror}") from None
    # After the record is on disk, so that no record refers to a deleted backup.
    needed = {each.backup for each in kept}
    for change in every:
        if change.backup is not None and change.backup not in needed:
            with contextlib.suppress(OSError):
                os.unlink(change.backup)


def digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _record_path(client: Client) -> str:
    return os.path.join(state_folder(client), "changes.json")


def _matching(pattern: str) -> list[str]:
    if "*" in pattern:
        return sorted(glob.glob(pattern))
    return [pattern] if os.path.lexists(pattern) else []
