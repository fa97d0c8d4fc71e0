"""`mcp-workbench install`: add the workbench to clients, by editing their file or with their own command.

Shows what is planned before anything is done (`install_plan`); how a change is made and taken back is in
`client_changes`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import Any, Final

from mcp_workbench.cli.consent import agrees
from mcp_workbench.cli.error_output import complain, remark, status_of
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stderr, stdout
from mcp_workbench.cli.settings import clients_named
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME, own_file
from mcp_workbench.engine.config.load import load, read
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import client_commands
from mcp_workbench.setup.client_changes import by_command, changes, make_change, new_run
from mcp_workbench.setup.client_files import is_present, message_and_hint, present, to_write
from mcp_workbench.setup.clients.documents import has_comments, with_server
from mcp_workbench.setup.clients.table import Client, Scope
from mcp_workbench.setup.edit_preview import edit_preview, hiding
from mcp_workbench.setup.folder_trust import untrusted_note
from mcp_workbench.setup.install_plan import (
    InstallPlan,
    own_command,
    own_entry_for,
    plan_for,
    refuse_cached_program,
    withheld_variables,
)

DEFAULT_NAME: Final = "workbench"
# Claude Code accepts nothing else, and a name that begins with - would be an option of a client's own command.
_ENTRY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def run(parsed: Parsed) -> int:
    if parsed.has("print") and parsed.has("json"):
        raise UsageError("--print and --json exclude each other", hint="--dry-run --json tells what would be done")
    # A named client need not be installed yet: its file is created.
    chosen = clients_named(parsed, "install", present)
    if not chosen:
        raise ConfigError("no client was found on this machine", hint="name one: mcp-workbench install CLIENT")
    chosen = _without_doubles(chosen) if parsed.has("all") else chosen
    refuse_cached_program(own_command("")[0])
    scope: Scope = "project" if parsed.has("project") else "user"
    config = configuration_to_name(parsed)
    # Naming the clients is consent; with --all nobody has seen yet which they are, and what is removed from them.
    is_silent = any(map(parsed.has, ("yes", "print", "dry-run", "json"))) or not sys.stdin.isatty()
    if parsed.has("all") and parsed.has("replace") and not is_silent:
        _ask_for_consent(chosen, scope, config, parsed)
    results: list[dict[str, Any]] = []
    failed = 0
    for client in chosen:
        try:
            results += _install(client, scope, config, parsed)
        except ConfigError as error:
            if len(chosen) == 1 and not parsed.has("json"):
                raise
            failed += 1
            message, hint = message_and_hint(error)
            complain(f"{client.title}: {message}", hint)
            results.append({"client": client.name, "error": message, "hint": hint})
    if parsed.has("json"):
        stdout().json(results)
    elif not parsed.has("dry-run"):
        changed = {each["client"] for each in results if each.get("changed")}
        _say_next([client for client in chosen if client.name in changed])
    return status_of(failed, len(chosen))


def _say_next(changed: list[Client]) -> None:
    """Say once for all clients what to do now, and how to take it back."""
    if not changed:
        return
    stderr().section("Next")
    if restarted := [client.title for client in changed if client.graphical]:
        remark("note", f"quit and restart {', '.join(restarted)}")
    remark("hint", f"mcp-workbench install --undo {' '.join(client.name for client in changed)} takes this back")


def _ask_for_consent(chosen: list[Client], scope: Scope, config: str, parsed: Parsed) -> None:
    """Show what would be removed from each client, and ask once. Raises `ConfigError` if the user does not agree."""
    rows: list[list[Part]] = []
    for client in chosen:
        try:
            plans = [plan_for(found, _name(parsed), config, replaces=True) for found in to_write(client, scope)]
        except ConfigError as error:
            rows.append([client.title, (message_and_hint(error)[0], "bad")])
            continue
        for plan in plans:
            removed = [f"{each} (program not found)" if each in plan.not_found else each for each in plan.removed]
            kept = f"; keeps {', '.join(plan.kept)}" if plan.kept else ""
            rows.append([client.title, f"removes {', '.join(removed) or 'nothing'}{kept}"])
    screen = stderr()
    screen.line("The workbench is added to these clients, in place of servers that it serves:")
    screen.table(["", ""], rows, indent=2)
    screen.flush()
    if not agrees("Change these clients?"):
        raise ConfigError("nothing was changed", hint="name the clients, or leave out --replace to keep their servers")


def _name(parsed: Parsed) -> str:
    name = parsed.value("name") or DEFAULT_NAME
    if not _ENTRY_NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is not a name that every client accepts",
            hint="--name takes letters, digits, - and _, at most 64",
        )
    return name


def configuration_to_name(parsed: Parsed) -> str:
    """Return the absolute path of the configuration that clients start the workbench with. Raises `ConfigError`."""
    named = parsed.value("config")
    if named is not None:
        # Checked here, because the error of an unusable file would only occur in the client, where users do not see it.
        load(named, os.environ)
        return os.path.abspath(named)
    if parsed.has("project"):
        # Naming a file means trusting it, and this one may have come with the project.
        content = read(CONFIG_FILE_NAME)
        if trust.verdict(CONFIG_FILE_NAME, content) is not trust.TrustVerdict.TRUSTED:
            raise ConfigError(
                f"the configuration `{os.path.abspath(CONFIG_FILE_NAME)}` is not trusted",
                hint="check what it starts, then run mcp-workbench team trust",
            )
        return os.path.abspath(CONFIG_FILE_NAME)
    own = own_file()
    if own is None:
        raise ConfigError(
            "there is no configuration yet for a client to use",
            hint="mcp-workbench init creates one, or name a file with --config",
        )
    return own


def _without_doubles(chosen: list[Client]) -> list[Client]:
    """Leave out clients that also read the file of another chosen client."""
    here = {client.name for client in chosen}
    for client in chosen:
        if both := here.intersection(client.reads_too):
            remark("note", f"{client.title} reads the file of {sorted(both)[0]} as well, so it is left out")
    return [client for client in chosen if not here.intersection(client.reads_too)]


def _install(client: Client, scope: Scope, config: str, parsed: Parsed) -> list[dict[str, Any]]:
    if client.import_only:
        raise ConfigError(
            f"nothing is installed into {client.title}: it was {client.import_only}",
            hint=f"mcp-workbench init --from {client.name} imports its servers",
        )
    name = _name(parsed)
    if parsed.has("print"):
        _print(client, scope, name, config)
        return []
    # Of one that is changed by its own command, the plan says that the command is missing.
    if scope == "user" and not client.command_only and not is_present(client):
        remark("note", f"{client.title} was not found on this machine; its file is created anyway")
    if scope == "project":
        remark("note", "paths of this machine are written into the project's file; do not share it as it is")
    results = []
    run = new_run()
    for found in to_write(client, scope):
        if not parsed.has("json"):
            stderr().section(client.title, tilde(found.path))
        _check_link(found.path, scope)
        plan = plan_for(found, name, config, replaces=parsed.has("replace"))
        result: dict[str, Any] = {
            "client": client.name,
            "path": found.path,
            "name": name,
            "commands": plan.commands,
            "removed": plan.removed,
            "kept": plan.kept,
            "changed": not plan.is_done,
        }
        results.append(result)
        for other, why in plan.kept.items():
            remark("warning", f"`{other}` stays in {client.title}: the workbench cannot start it ({why})")
        for other, program in plan.not_found.items():
            remark(
                "warning", f"`{other}` is removed from {client.title}, but its program `{program}` is not found here"
            )
        if plan.is_done:
            remark("note", f"{client.title} already has the workbench, in `{found.path}`")
            continue
        _show(plan, to_stdout=parsed.has("dry-run") and not parsed.has("json"))
        _warn_of_secrets(plan)
        if parsed.has("dry-run"):
            continue
        try:
            result["backup"] = make_change(found, plan.before, plan.after, plan.entries, run)
        except KeyboardInterrupt:
            if any(each.run == run for each in changes(client)):
                remark("warning", f"interrupted; mcp-workbench install --undo {client.name} restores what was there")
            raise
        if not parsed.has("json"):
            stdout().line((client.title, "strong"), ": ", ("installed", "good"), f" as {name} in {tilde(found.path)}")
        if (note := untrusted_note(client, os.getcwd())) is not None:
            remark("note", note)
        if missing := [each for each in withheld_variables(client, config) if each not in os.environ]:
            listed = ", ".join(f"`{name}`" for name in missing)
            remark(
                "warning",
                f"{client.title} does not pass on {listed}, which the configuration refers to; "
                "use ${keyring:…}, ${file:…} or envFile there",
            )
    return results


def _warn_of_secrets(plan: InstallPlan) -> None:
    """Warn of secrets on a command line, now or when `undo` restores a server."""
    if not by_command(plan.found):
        return
    now = [plan.name] if client_commands.literal_secrets(plan.entry) else []
    later = [name for name in plan.removed if client_commands.literal_secrets(plan.servers[name])]
    for when, names in (("now", now), ("if you undo this", later)):
        if names:
            remark("warning", client_commands.exposure_warning(plan.found.client, names, when))


def _check_link(path: str, scope: Scope) -> None:
    """Links are followed, but a link that came with a project must not lead to files of the user."""
    target, folder = os.path.realpath(path), os.path.realpath(os.getcwd())
    if scope == "project" and os.path.commonpath([target, folder]) != folder:
        raise ConfigError(f"`{path}` is a link to `{target}`, outside of this project", hint="remove the link")
    if os.path.islink(path):
        remark("note", f"`{path}` is a link to `{target}`, which is changed")


def _show(plan: InstallPlan, *, to_stdout: bool) -> None:
    """Show what will change. Secrets nearby are masked."""
    found = plan.found
    screen = stdout() if to_stdout else stderr()
    if plan.commands:
        redactor = hiding(found, plan.before, plan.name, plan.entry)
        for command in plan.commands:
            screen.line(redactor.text(shlex.join(command)), wrap=False)
        return
    if found.file.format == "json" and plan.before and has_comments(plan.before):
        remark("warning", f"`{found.path}` holds comments or trailing commas, which {found.client.title} may refuse")
    shown = edit_preview(found, plan.before, plan.after, plan.name, plan.entry, plan.removed, tilde(found.path))
    screen.clipped(shown)
    screen.flush()


def _print(client: Client, scope: Scope, name: str, config: str) -> None:
    found = next((each for each in to_write(client, scope)), None)
    assert found is not None
    entry = own_entry_for(found, name, config)
    if by_command(found):
        stdout().text(shlex.join(client_commands.add_command(client, name, entry)))
        return
    remark("note", f"into `{found.path}`:")
    stdout().text(with_server(found.file.when_new.encode(), found.file, name, entry, found.path).decode())
