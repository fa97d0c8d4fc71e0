"""`mcp-workbench install --remove`: take the workbench out of clients, and put back what `--replace` removed."""

from __future__ import annotations

from mcp_workbench.cli.commands.undo import in_words, mention_taken, warn_of_exposure
from mcp_workbench.cli.error_output import of_several, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.settings import clients_named
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_changes import make_change, new_run, removal_from, remove_folders
from mcp_workbench.setup.client_files import existing, present
from mcp_workbench.setup.clients.table import Client, Scope


def run(parsed: Parsed) -> int:
    scope: Scope = "project" if parsed.has("project") else "user"

    def has_us(client: Client) -> bool:
        try:
            return any(map(removal_from, existing(client, scope)))
        except ConfigError:
            # It is reported beside what is done to the others.
            return True

    def having() -> list[Client]:
        return list(filter(has_us, present()))

    chosen = clients_named(parsed, "install --remove", having)
    if not chosen:
        raise ConfigError(
            "no client on this machine has the workbench", hint="mcp-workbench install CLIENT puts it there"
        )
    return of_several(chosen, lambda client: _uninstall(client, scope))


def _uninstall(client: Client, scope: Scope) -> None:
    removals = [removal for found in existing(client, scope) if (removal := removal_from(found)) is not None]
    if not removals:
        raise ConfigError(
            f"{client.title} does not have the workbench", hint=f"mcp-workbench install {client.name} puts it there"
        )
    run = new_run()
    for removal in removals:
        warn_of_exposure(removal)
        make_change(removal.found, removal.now, removal.content, removal.entries, run)
        remove_folders(removal)
        stdout().line((client.title, "strong"), f": {in_words(removal.entries)} in {tilde(removal.found.path)}")
        mention_taken(removal)
    if client.graphical:
        remark("note", f"quit {client.title} and start it again")
