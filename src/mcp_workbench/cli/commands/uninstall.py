"""`mcp-workbench uninstall`: remove the workbench from clients, and nothing else."""

from __future__ import annotations

from mcp_workbench.cli import client_commands
from mcp_workbench.cli.client_files import (
    FoundFile,
    changes,
    created,
    existing,
    new_run,
    remove_folders,
    take_steps,
    write,
)
from mcp_workbench.cli.error_output import of_several, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.clients.dialects import is_own, translated
from mcp_workbench.clients.documents import holds_nothing, servers_in, without_servers
from mcp_workbench.clients.table import Client, Scope, find
from mcp_workbench.config.problems import quote
from mcp_workbench.errors import ConfigError
from mcp_workbench.file_replacement import read_file


def run(parsed: Parsed) -> int:
    scope: Scope = "project" if parsed.has("project") else "user"
    return of_several([find(name) for name in parsed.positionals], lambda client: _uninstall(client, scope))


def _uninstall(client: Client, scope: Scope) -> None:
    command = new_run()
    servers = {name for found in existing(client, scope) for name in found.servers()}
    # After `install --replace`, uninstalling leaves the user with neither.
    gone = _taken_out_before(client, scope) - servers
    taken = [where for found in existing(client, scope) if (where := _take_out(found, scope, command))]
    if not taken:
        raise ConfigError(
            f"{client.title} does not have the workbench", hint=f"mcp-workbench install {client.name} puts it there"
        )
    for path in taken:
        stdout().line((client.title, "strong"), f": removed from {path}")
    if gone:
        remark(
            "warning",
            f"{client.title} does not have {', '.join(map(quote, sorted(gone)))} any more, "
            f"which install --replace removed; mcp-workbench undo {client.name}, run twice, restores everything",
        )
    if client.graphical:
        remark("note", f"quit {client.title} and start it again")


def _taken_out_before(client: Client, scope: Scope) -> set[str]:
    """Return the servers that were there before the last `install`, according to backups."""
    past = changes(client)
    last = [each for each in past if past[-1].run and each.run == past[-1].run]
    found: set[str] = set()
    for change in last:
        if change.path:
            before = None if change.backup is None else read_file(change.backup)
            for each in existing(client, scope):
                if before and each.path == change.path:
                    found.update(servers_in(before, each.file, each.path))
    return found


def _take_out(found: FoundFile, scope: Scope, run: str) -> str | None:
    """Remove our entries from a file. Returns its path if it had any."""
    client, file = found.client, found.file
    before = found.content() or b""
    servers = servers_in(before, file, found.path)
    # Recognised by what is started, not by name: users rename entries.
    ours = [name for name, entry in servers.items() if is_own(translated(entry, file.dialect).entry or {})]
    if not ours or file.read_only:
        return None
    steps = [client_commands.removing(client, scope, name, servers[name]) for name in ours]
    taken = [step for step in steps if step is not None]
    # If the client's command can add but not remove, the file is edited.
    has_command = len(taken) == len(ours) and client_commands.can_add(client, scope)
    if (client.command_only and taken) or (has_command and not client_commands.expands_variables(client, before)):
        take_steps(found, before, taken, run)
    else:
        after = without_servers(before, file, ours, found.path)
        creation = created(found)
        is_empty = creation is not None and holds_nothing(after, file, found.path)
        write(found, before, None if is_empty else after, ours[0], run)
        if creation is not None and is_empty:
            remove_folders(creation)
    return found.path
