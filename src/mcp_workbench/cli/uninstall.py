"""`mcp-workbench uninstall`: take the workbench out of clients, and nothing else."""

from __future__ import annotations

from mcp_workbench.cli import client_commands
from mcp_workbench.cli.client_files import Change, FoundFile, digest, existing, keep, new_run, record, write
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Command, Flag, Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.clients.dialects import is_own, translated
from mcp_workbench.clients.documents import servers_in, without_servers
from mcp_workbench.clients.table import Scope, find
from mcp_workbench.errors import ConfigError

PROJECT = Flag("project", None, "out of the files of this project")

ABOUT = """
Takes the entries that start the workbench out of a client's file; everything else there stays as it is. Servers that
install --replace took out do not come back: mcp-workbench undo CLIENT does that.

Exit code: 0, or 2 if the client has no workbench or its file cannot be written.
"""


def run(parsed: Parsed) -> int:
    """Uninstall; the exit status."""
    scope: Scope = "project" if parsed.has("project") else "user"
    for name in parsed.positionals:
        client = find(name)
        command = new_run()
        taken = [where for found in existing(client, scope) if (where := _take_out(found, scope, command))]
        if not taken:
            raise ConfigError(
                f"{client.title} does not have the workbench", hint=f"mcp-workbench install {client.name} puts it there"
            )
        for path in taken:
            stdout().line((client.title, "strong"), f": taken out of {path}")
        if client.graphical:
            remark("note", f"quit {client.title} and start it again")
    return 0


COMMAND = Command("uninstall [OPTIONS] CLIENT…", ABOUT, (PROJECT,), run, names=("CLIENT",))


def _take_out(found: FoundFile, scope: Scope, run: str) -> str | None:
    """The path, where there was something to take out."""
    client, file = found.client, found.file
    before = found.content() or b""
    servers = servers_in(before, file, found.path)
    ours = [name for name, entry in servers.items() if is_own(translated(entry, file.dialect).entry or {})]
    if not ours or file.read_only:
        return None
    commands = [client_commands.remove_command(client, scope, name) for name in ours]
    if not client.command_only and not (commands[0] and client_commands.can_add(client, scope)):
        write(found, before, without_servers(before, file, ours, found.path), ours[0], run)
        return found.path
    backup = None if client.command_only else keep(found, before)
    reverse = [client_commands.add_command(client, scope, name, servers[name]) for name in ours]
    for command in filter(None, commands):
        client_commands.run(client, command)
    if client.command_only:
        record(client, Change(ours[0], reverse=reverse, run=run))
    else:
        record(client, Change(ours[0], found.path, backup, digest(found.content()), run=run))
    return found.path
