"""`mcp-workbench undo`: restore exactly what was there before `install` or `uninstall`."""

from __future__ import annotations

import os

from mcp_workbench.cli import client_commands
from mcp_workbench.cli.client_files import Change, changes, digest, existing, forget, remove_folders, state_folder
from mcp_workbench.cli.error_output import of_several, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.clients.table import Client, find
from mcp_workbench.errors import ConfigError
from mcp_workbench.file_replacement import read_file, replace_file


def run(parsed: Parsed) -> int:
    return of_several([find(name) for name in parsed.positionals], _undo)


def _undo(client: Client) -> None:
    past = changes(client)
    if not past:
        raise ConfigError(
            f"there is nothing to undo for {client.title}", hint="mcp-workbench install says what it changes"
        )
    last = [each for each in past if each.run and each.run == past[-1].run] or past[-1:]
    for change in last:
        # Before anything is done: everything is reversed, or nothing.
        _refuse_later_changes(client, change)
    # The last one first, because several may affect the same file.
    for change in reversed(last):
        if change.path:
            _restore(client, change)
        if not _is_as_before(client, change):
            if any(map(client_commands.shows_secrets, change.reverse)):
                remark("warning", client_commands.exposure_warning(client, [change.name], "as this is undone"))
            for command in change.reverse:
                client_commands.run(client, command)
        forget(client, change)
    for where in dict.fromkeys(change.path or client.title for change in reversed(last)):
        stdout().line((where, "strong"), ": ", ("as it was before", "good"))


def _is_as_before(client: Client, change: Change) -> bool:
    """Whether the reverse commands have nothing to do, because of an undo that failed later on or a change by hand."""
    return any(
        (change.name in found.servers()) is change.was_there
        for found in existing(client, None)
        if found.place == change.seen_in
    )


def _restore(client: Client, change: Change) -> None:
    now, before = _now_and_before(change)
    if now != before:
        # The target of the link was changed, so that is what is restored.
        replace_file(os.path.realpath(change.path), now, before, state_folder(client))
    if before is None:
        remove_folders(change)


def _now_and_before(change: Change) -> tuple[bytes | None, bytes | None]:
    before = None if change.backup is None else read_file(change.backup)
    if change.backup is not None and before is None:
        raise ConfigError(f"the backup `{change.backup}` is gone", hint=f"edit `{change.path}` by hand")
    return read_file(change.path), before


def _refuse_later_changes(client: Client, change: Change) -> None:
    if not change.path:
        return
    now, before = _now_and_before(change)
    if now != before and digest(now) != change.sha256:
        raise ConfigError(
            f"`{change.path}` has been changed since; nothing was done",
            hint=f"mcp-workbench uninstall {client.name} removes only the workbench"
            + (f"; what was there is in `{change.backup}`" if change.backup else ""),
        )
