"""`mcp-workbench install --undo`: take back the last `install` or `uninstall`."""

from __future__ import annotations

from mcp_workbench.cli.error_output import of_several, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.settings import clients_named
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.config.problems import quote
from mcp_workbench.engine.printable import plural
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.client_changes import (
    Entries,
    Reversal,
    by_command,
    changes,
    forget,
    has_changes,
    holds,
    purge,
    reversal_of,
    take_back,
)
from mcp_workbench.setup.client_commands import exposure_warning, literal_secrets
from mcp_workbench.setup.clients.table import Client, clients


def run(parsed: Parsed) -> int:
    is_purge = parsed.has("purge")

    def every() -> list[Client]:
        return [each for each in clients().values() if (holds(each) if is_purge else has_changes(each))]

    chosen = clients_named(parsed, "install --undo --purge" if is_purge else "install --undo", every)
    if not chosen:
        raise ConfigError("there is nothing to undo for any client", hint="mcp-workbench install says what it changes")
    return of_several(chosen, _purge if is_purge else _undo)


def _purge(client: Client) -> None:
    deleted = plural(purge(client), "backup file")
    stdout().line((client.title, "strong"), f": {deleted} deleted; earlier changes can no longer be undone")


def _undo(client: Client) -> None:
    past = changes(client)
    if not past:
        raise ConfigError(
            f"there is nothing to undo for {client.title}", hint="mcp-workbench install says what it changes"
        )
    last = [each for each in past if each.run and each.run == past[-1].run] or past[-1:]
    # All before anything is done: everything is reversed, or nothing.
    planned = [(change, reversal_of(client, change)) for change in last]
    # The last one first, because several may affect the same file.
    for change, reversal in reversed(planned):
        warn_of_exposure(reversal)
        take_back(reversal)
        forget(client, change)
        done = "as it was before" if reversal.is_whole else in_words(reversal.entries)
        stdout().line((tilde(reversal.found.path), "strong"), ": ", (done, "good"))
        mention_taken(reversal)


def in_words(entries: Entries) -> str:
    """Return what changing these servers has done."""
    gone = [name for name, entry in entries.items() if entry is None]
    back = [name for name, entry in entries.items() if entry is not None]
    parts = [f"{', '.join(names)} {word}" for names, word in ((gone, "removed"), (back, "put back")) if names]
    return "; ".join(parts) or "there was nothing left to undo"


def warn_of_exposure(reversal: Reversal) -> None:
    found = reversal.found
    shown = [name for name, entry in reversal.entries.items() if entry and literal_secrets(entry)]
    if by_command(found) and shown:
        remark("warning", exposure_warning(found.client, shown, "as this is undone"))


def mention_taken(reversal: Reversal) -> None:
    """Say which servers do not come back, because the client has others of these names."""
    if reversal.taken:
        listed = ", ".join(map(quote, reversal.taken))
        remark("warning", f"{reversal.found.client.title} has changed {listed} since, which stays as it is now")
