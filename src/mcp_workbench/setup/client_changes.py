"""The changes that we make to the servers of a client, and how they are taken back.

Owns the records that `undo` and `uninstall` go by: one file for each client in our state folder, next to the backups.
A change is made by editing the client's file or, where only the client may write it, with its own command. It is taken
back byte for byte if nobody has written the file since, and otherwise entry by entry: ours go, those that we removed
come back, and the rest stays as the client has written it. What goes where is decided before anything is done.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import client_commands
from mcp_workbench.setup.client_files import FoundFile
from mcp_workbench.setup.clients.dialects import is_own, translated
from mcp_workbench.setup.clients.documents import Servers, holds_nothing, servers_in, with_server, without_servers
from mcp_workbench.setup.clients.table import Client, ClientFile, Scope
from mcp_workbench.setup.file_replacement import (
    ChangedAfterwards,
    back_up,
    locked,
    read_file,
    refuse_what_is_not_ours,
    replace_file,
    write_whole,
)

# Older changes cannot be undone, and their backups are deleted.
MAX_CHANGES: Final = 20
# Backups and records hold the keys that were in a client's file. Whoever wanted to go back has done so by then.
BACKUP_LIFETIME: Final = 90 * 24 * 3600.0
# Servers by name, in the client's own format; None: there is none of this name.
Entries = dict[str, dict[str, Any] | None]


class Change(Struct, frozen=True, omit_defaults=True):
    """A change of one file: the servers that it concerns, before and after."""

    path: str
    scope: Scope = "user"
    key: tuple[str, ...] = ()
    before: Entries = {}
    after: Entries = {}
    # The whole content before, if there was a file, and a digest of that after, if there is one.
    backup: str | None = None
    sha256: str | None = None
    # Folders that were created for the file, the innermost first.
    made: list[str] = []
    # Identifies the changes made by one command, which belong together: a client may have several files.
    run: str = ""
    # When it was made, in seconds since 1970.
    at: float = 0.0


class Reversal(Struct, frozen=True):
    """What takes back changes of one file: its content, or the servers to add and remove where we may not write it."""

    found: FoundFile
    now: bytes | None
    content: bytes | None
    entries: Entries
    # Whether the content is that of a backup.
    is_whole: bool
    # Names that the client has given to other servers meanwhile. Those stay.
    taken: list[str]
    made: list[str] = []


def by_command(found: FoundFile) -> bool:
    """Whether only the client itself may write this file."""
    return found.client.command_only and found.file.scope == "user"


def edited(content: bytes | None, found: FoundFile, entries: Entries) -> bytes:
    """Return the content with these servers added and removed. Raises `ConfigProblems`."""
    gone = [name for name, entry in entries.items() if entry is None]
    after = without_servers(content or found.file.when_new.encode(), found.file, gone, found.path)
    for name, entry in entries.items():
        if entry is not None:
            after = with_server(after, found.file, name, entry, found.path)
    return after


def make_change(found: FoundFile, now: bytes | None, content: bytes | None, entries: Entries, run: str) -> str | None:
    """Add and remove servers, after recording how to take that back. Returns the path of the backup.

    Raises `ConfigError`; the file is then unchanged, except with `ChangedAfterwards`.
    """
    servers = servers_in(now or b"", found.file, found.path)
    # As plain values: a library that keeps quotes in YAML has types of its own.
    before: Entries = json.loads(json.dumps({name: servers.get(name) for name in entries}, default=str))
    change = Change(found.path, found.file.scope, found.file.key, before, entries, run=run, at=time.time())
    if by_command(found):
        # Its client rewrites such a file all the time, so there is no backup of the whole.
        record(found.client, change)
        try:
            _run_commands(found, servers, entries)
        except ConfigError:
            # Without effect there is nothing to undo.
            if {name: found.servers().get(name) for name in entries} == before:
                forget(found.client, change)
            raise
        return None
    # Before the backup, so that nothing is left behind if the file cannot be replaced.
    refuse_what_is_not_ours(found.path)
    backup, made = _keep(found, now), _missing_folders(found.path)
    change = msgspec.structs.replace(change, backup=backup, sha256=_digest(content), made=made)
    # First the record, then the file: if we are killed in between, there is an undo that finds nothing to do, but never
    # a change without an undo.
    record(found.client, change)
    try:
        replace_file(found.path, now, content, state_folder(found.client))
    except ChangedAfterwards:
        # It was written, so the record stays.
        raise
    except ConfigError:
        forget(found.client, change)
        raise
    return backup


class CommandStep(Struct, frozen=True):
    """A command of the client that adds or removes a server."""

    name: str
    command: list[str]
    # Whether the client should have the server afterwards.
    is_there: bool


def steps_for(client: Client, servers: Servers, entries: Entries) -> list[CommandStep]:
    """Return the client's own commands. Additions come first, so that a failure never leaves less than before."""
    steps = []
    for name, entry in entries.items():
        removing = CommandStep(name, client_commands.remove_command(client, name), is_there=False)
        if entry is not None:
            # It refuses a name that exists.
            steps += [removing] if name in servers else []
            steps.append(CommandStep(name, client_commands.add_command(client, name, entry), is_there=True))
    return steps + [
        CommandStep(name, client_commands.remove_command(client, name), is_there=False)
        for name, entry in entries.items()
        if entry is None
    ]


def _run_commands(found: FoundFile, servers: Servers, entries: Entries) -> None:
    """Run the commands and check the file: one may succeed without effect."""
    for step in steps_for(found.client, servers, entries):
        client_commands.run(found.client, step.command)
        if (step.name in found.servers()) is not step.is_there:
            has = "does not have" if step.is_there else "still has"
            by_hand = f"mcp-workbench install {found.client.name} --print shows what to enter by hand"
            raise ConfigError(
                f"`{' '.join(step.command[:3])}` said that it did so, but `{found.path}` {has} `{step.name}`",
                hint=by_hand if step.is_there else f"remove it from `{found.path}` by hand",
            )


def reversal_of(client: Client, change: Change) -> Reversal:
    """Return what undoes a change. Raises `ConfigError`."""
    found = FoundFile(client, _file_of(client, change), change.path)
    now = found.content()
    if (whole := _whole(found, now, change)) is not None:
        return whole
    if not change.before:
        raise ConfigError(f"`{change.path}` has been changed since; nothing was done", hint=_by_hand(change))
    servers = servers_in(now or b"", found.file, found.path)
    entries: Entries = {}
    taken = []
    for name, was in change.before.items():
        current, ours = servers.get(name), change.after[name]
        if current == was:
            continue
        if _is_left(current, ours, found.file):
            entries[name] = was
        elif current is not None:
            taken.append(name)
    return _by_entries(found, now, entries, taken, change if change.backup is None else None)


def removal_from(found: FoundFile) -> Reversal | None:
    """Return what removes the workbench from a file and puts back what `install --replace` removed; None if the file
    does not have it. Raises `ConfigError`."""
    now = found.content()
    servers = servers_in(now or b"", found.file, found.path)
    # Recognised by what is started, not by name: users rename entries.
    ours = _own(servers, found.file)
    if not ours or found.file.read_only:
        return None
    past = [each for each in changes(found.client) if (each.path, each.key) == (found.path, found.file.key)]
    whole = _whole(found, now, past[-1]) if past else None
    if whole is not None:
        after = servers_in(whole.content or b"", found.file, found.path)
        if not _own(after, found.file):
            changed = [name for name in {**servers, **after} if servers.get(name) != after.get(name)]
            return msgspec.structs.replace(whole, entries={name: after.get(name) for name in changed})
    entries: Entries = dict.fromkeys(ours)
    removed = _removed_by_us(past, found.file)
    entries |= {name: entry for name, entry in removed.items() if name not in servers}
    taken = [name for name, entry in removed.items() if servers.get(name, entry) != entry and name not in ours]
    return _by_entries(found, now, entries, taken, past[-1] if past and past[-1].backup is None else None)


def _whole(found: FoundFile, now: bytes | None, change: Change) -> Reversal | None:
    """Return the reversal of a change byte for byte; None if the file has been written since."""
    backup = None if change.backup is None else read_file(change.backup)
    if by_command(found) or (backup is None and change.backup is not None):
        return None
    if now != backup and _digest(now) != change.sha256:
        return None
    return Reversal(found, now, backup, {}, is_whole=True, taken=[], made=[] if backup is not None else change.made)


def _by_entries(
    found: FoundFile, now: bytes | None, entries: Entries, taken: list[str], creation: Change | None
) -> Reversal:
    """`creation` is the change that created the file, if that was the last one."""
    content = now
    if entries and not by_command(found):
        content = edited(now, found, entries)
        if creation is not None and creation.sha256 is not None and holds_nothing(content, found.file, found.path):
            return Reversal(found, now, None, entries, is_whole=False, taken=taken, made=creation.made)
    return Reversal(found, now, content, entries, is_whole=False, taken=taken)


def _own(servers: Servers, file: ClientFile) -> list[str]:
    return [name for name, entry in servers.items() if is_own(translated(entry, file.dialect).entry or {})]


def _is_left(current: dict[str, Any] | None, ours: dict[str, Any] | None, file: ClientFile) -> bool:
    """Whether the client still has what we left there: nothing, the workbench, or a server that we put back, perhaps
    with members that the client has added."""
    if current is None or ours is None:
        return current is ours
    return current.items() >= ours.items() or (len(_own({"a": current, "b": ours}, file)) == 2)


def _removed_by_us(past: list[Change], file: ClientFile) -> Servers:
    """Return the servers that our changes have removed and not put back."""
    found: Servers = {}
    for change in past:
        for name, was in change.before.items():
            if change.after[name] is not None:
                found.pop(name, None)
            elif was is not None and not _own({name: was}, file):
                found[name] = was
    return found


def take_back(reversal: Reversal) -> None:
    """Carry it out, without a record of its own. Raises `ConfigError`."""
    found = reversal.found
    if by_command(found):
        _run_commands(found, found.servers(), reversal.entries)
    elif reversal.content != reversal.now:
        # The target of a link was changed, so that is what is restored.
        replace_file(os.path.realpath(found.path), reversal.now, reversal.content, state_folder(found.client))
    remove_folders(reversal)


def remove_folders(reversal: Reversal) -> None:
    """Remove the folders that were created for a file that is gone again: a client seems to be in use if its folder
    exists."""
    if reversal.content is None:
        # `rmdir` fails if the client has put something into it meanwhile.
        with contextlib.suppress(OSError):
            for folder in reversal.made:
                os.rmdir(folder)


def _file_of(client: Client, change: Change) -> ClientFile:
    """Return the row of the table for a file that we have changed. A project's may be in any folder."""
    base = os.path.basename(change.path)
    same = [file for file in client.file if file.scope == change.scope and file.key == (change.key or file.key)]
    rules = [
        (file, os.path.basename(rule)) for file in same for rule in (*file.all, *file.linux, *file.macos, *file.windows)
    ]
    named = [file for file, rule in rules if fnmatchcase(base, rule.rstrip("}"))]
    if not same:
        raise ConfigError(f"`{change.path}` is no longer a file of {client.title}", hint=_by_hand(change))
    return (named or same)[0]


def _by_hand(change: Change) -> str:
    return f"what was there is in `{change.backup}`" if change.backup else f"edit `{change.path}` by hand"


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
        raise ConfigError(
            f"`{_record_path(client)}`, the record of what was changed, is damaged",
            hint=f"the backups are next to it; mcp-workbench install --undo --purge {client.name} deletes all of them",
        ) from None


def has_changes(client: Client) -> bool:
    """Whether there are recorded changes, perhaps in a record that cannot be read."""
    try:
        return bool(changes(client))
    except ConfigError:
        return True


def record(client: Client, change: Change) -> None:
    """Record a change that is about to be made or was just made."""
    with locked(_record_path(client), state_folder(client)):
        every = [*changes(client), change]
        kept = every[-MAX_CHANGES:]
        # What one command did is undone together or not at all.
        older = {each.run for each in every[:-MAX_CHANGES]}
        _rewrite(client, every, [each for each in kept if not each.run or each.run not in older])


def forget(client: Client, change: Change) -> None:
    """Remove the record of a change that has been reversed."""
    with locked(_record_path(client), state_folder(client)):
        every = changes(client)
        _rewrite(client, every, [each for each in every if each != change])


def expired(client: Client) -> list[Change]:
    """Return the changes whose backups and records have reached the end of their lifetime. Raises `ConfigError`."""
    every = changes(client)
    oldest = time.time() - BACKUP_LIFETIME
    # What one command did is undone together or not at all.
    runs = {each.run for each in every if _made_at(client, each) < oldest}
    return [each for each in every if each.run in runs]


def expire(client: Client) -> None:
    """Delete the backups and records of changes that are too old. Raises `ConfigError`."""
    if gone := expired(client):
        with locked(_record_path(client), state_folder(client)):
            every = changes(client)
            _rewrite(client, every, [each for each in every if each not in gone])


def _made_at(client: Client, change: Change) -> float:
    """Records of earlier versions have no time of their own, and their backup may be gone."""
    times = [change.at] if change.at else []
    for path in (change.backup, _record_path(client)):
        with contextlib.suppress(OSError):
            times += [os.stat(path).st_mtime] if path else []
    return times[0] if times else time.time()


def holds(client: Client) -> list[str]:
    """Return the paths of all backups and records of a client."""
    folder = state_folder(client)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if not name.endswith(".lock")]


def purge(client: Client) -> int:
    """Delete all backups and records of a client. Returns how many files that were. Raises `ConfigError`."""
    with locked(_record_path(client), state_folder(client)):
        paths = holds(client)
        try:
            for path in paths:
                os.unlink(path)
        except OSError as error:
            raise ConfigError(f"`{error.filename}` cannot be deleted: {error.strerror}") from None
    return len(paths)


def new_run() -> str:
    """Return a new id shared by the changes of one command."""
    return os.urandom(8).hex()


def _missing_folders(path: str) -> list[str]:
    folder, found = os.path.dirname(os.path.realpath(path)), []
    while not os.path.lexists(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def _keep(found: FoundFile, content: bytes | None) -> str | None:
    """Back up the content, if there is any. Returns the path of the backup. Raises `ConfigError`."""
    if content is None:
        return None
    try:
        return back_up(found.path, content, state_folder(found.client))
    except OSError as error:
        raise ConfigError(f"`{found.path}` cannot be backed up: {error.strerror}; it was left unchanged") from None


def _rewrite(client: Client, every: list[Change], kept: list[Change]) -> None:
    """Record the changes that are kept, and delete the backups of the others."""
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


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _record_path(client: Client) -> str:
    return os.path.join(state_folder(client), "changes.json")
