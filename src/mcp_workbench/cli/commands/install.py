"""`mcp-workbench install`: add the workbench to clients, by editing their file or with their own command.

Owns the plan, which is made and shown before anything is done: what is written where, and which servers are removed.
How a change is made and taken back is in `client_changes`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.cli.client_changes import Entries, by_command, changes, edited, make_change, new_run, steps_for
from mcp_workbench.cli.client_files import FoundFile, is_present, message_and_hint, named_or_all, present, to_write
from mcp_workbench.cli.consent import agrees
from mcp_workbench.cli.diagnosis import Examined
from mcp_workbench.cli.doctor_checks import missing_program
from mcp_workbench.cli.edit_preview import edit_preview, hiding
from mcp_workbench.cli.error_output import complain, remark, status_of
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.own_configuration import servers_written
from mcp_workbench.cli.screen import Part, stderr, stdout
from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.choose import FILE_NAME, own_file
from mcp_workbench.engine.config.environment import server_environment
from mcp_workbench.engine.config.load import load, read
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.problems import in_one_line
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.printable import visible
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import client_commands
from mcp_workbench.setup.check_references import look
from mcp_workbench.setup.clients.client_paths import this_system
from mcp_workbench.setup.clients.dialects import DIALECTS, Dialect, is_own, own_entry, translated
from mcp_workbench.setup.clients.documents import Servers, has_comments, servers_in, with_server
from mcp_workbench.setup.clients.identity import Served, is_served
from mcp_workbench.setup.clients.table import Client, Scope
from mcp_workbench.signin.secrets import dotenv

DEFAULT_NAME: Final = "workbench"
_CACHED_PROGRAM: Final = re.compile(r"/(archive-v\d+|environments-v\d+|pipx/\.cache|\.cache/pipx)/")
# Claude Code accepts nothing else, and a name that begins with - would be an option of a client's own command.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
# What Gemini CLI removes from the environment of servers.
_LOOKS_SECRET: Final = re.compile("TOKEN|KEY|SECRET|PASSWORD|AUTH|CREDENTIAL", re.IGNORECASE)


class InstallPlan(Struct):
    """What to do to one file of one client."""

    found: FoundFile
    name: str
    entry: dict[str, Any]
    before: bytes | None
    after: bytes
    servers: Servers
    removed: list[str] = []
    # Servers that the workbench has too but cannot start, and why.
    kept: dict[str, str] = {}
    # Programs of removed servers that are not found from here. The client may have another `PATH`, or another folder.
    not_found: dict[str, str] = {}
    is_done: bool = False

    @property
    def entries(self) -> Entries:
        return {self.name: self.entry, **dict.fromkeys(self.removed)}

    @property
    def commands(self) -> list[list[str]]:
        """What is run instead of writing the file, if only the client may write it."""
        steps = steps_for(self.found.client, self.servers, self.entries) if by_command(self.found) else []
        return [step.command for step in steps]


def run(parsed: Parsed) -> int:
    if parsed.has("print") and parsed.has("json"):
        raise UsageError("--print and --json exclude each other", hint="--dry-run --json tells what would be done")
    # A named client need not be installed yet: its file is created.
    chosen = named_or_all(parsed, "install", present)
    if not chosen:
        raise ConfigError("no client was found on this machine", hint="name one: mcp-workbench install CLIENT")
    chosen = _without_doubles(chosen) if parsed.has("all") else chosen
    _refuse_cached_program(own_command("")[0])
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
    return status_of(failed, len(chosen))


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
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is no name that every client takes", hint="--name takes letters, digits, - and _, at most 64"
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
        content = read(FILE_NAME)
        if trust.verdict(FILE_NAME, content) is not trust.TrustVerdict.TRUSTED:
            raise ConfigError(
                f"the configuration `{os.path.abspath(FILE_NAME)}` is not trusted",
                hint="look at what it starts, and run mcp-workbench trust",
            )
        return os.path.abspath(FILE_NAME)
    own = own_file()
    if own is None:
        raise ConfigError(
            "there is no configuration yet for a client to use",
            hint="mcp-workbench init makes one, or name a file with --config",
        )
    return own


def own_command(config: str) -> list[str]:
    """Return the command that clients start us with: absolute paths, because they may have no `PATH` and use any
    folder."""
    invoked = sys.argv[0]
    # The program that was invoked: that is the installation the user means if there are several.
    if os.path.basename(invoked) in ("mcp-workbench", "mcp-workbench.exe") and os.path.isfile(invoked):
        program = [os.path.abspath(invoked)]
    elif beside := shutil.which("mcp-workbench", path=os.path.dirname(sys.executable)):
        program = [beside]
    else:
        program = [sys.executable, "-m", "mcp_workbench"]
    return [*program, "serve", "--config", config]


def _refuse_cached_program(program: str) -> None:
    """Refuse programs that `uvx` and `pipx run` start from a cache, because they will be deleted some day."""
    if _CACHED_PROGRAM.search(program.replace("\\", "/")):
        raise ConfigError(
            f"`{program}` is in a cache, which is cleaned now and then",
            hint="install the workbench first, with `uv tool install` or `pipx install`, and run this again",
        )


def _own_environment(client: Client) -> dict[str, str]:
    """Return the variables to set for us: desktops start programs with a short `PATH` that lacks npx and uvx."""
    path = os.environ.get("PATH")
    return {"PATH": path} if client.graphical and this_system().name != "windows" and path else {}


def served_by(config: str) -> dict[str, Served]:
    """Return the servers of the configuration by `toolbox/server`, to recognise them elsewhere. Raises
    `ConfigError`."""
    # What is loaded, not what is written: a disabled server is not served, so clients keep theirs.
    loaded = load(config, os.environ)
    written = servers_written(read(config), config)
    return {
        f"{toolbox}/{name}": Served(name, written[toolbox][name], _filled_in(server))
        for toolbox, box in loaded.toolboxes.items()
        for name, server in box.servers.items()
    }


def _filled_in(server: ServerConfig) -> dict[str, Any]:
    parts = {"command": server.command, "args": server.args, "url": server.url}
    env: dict[str, str] = {}
    for path in server.env_files:
        env |= _variables_of_file(path)
    found = {key: value for key, value in parts.items() if value}
    return found | {"env": env | server.env, "headers": server.headers}


def _lacking(config: str) -> dict[str, str]:
    """Return the servers that cannot be started because a variable or another reference is missing, and which."""
    loaded = load(config, os.environ)
    redactor = Redactor(loaded.secrets)
    lacking = {each.label: each.message for each in look(loaded, redactor).unfetched}
    unresolved = {label: server.unresolved for label, server in loaded.servers() if server.unresolved}
    return lacking | {label: redactor.text(in_one_line(problems)) for label, problems in unresolved.items()}


def _programs_not_found(config: str, removed: dict[str, list[str]]) -> dict[str, str]:
    """Return the servers of a client, given with our labels for them, whose program is missing, and which that is."""
    subject = Examined(load(config, os.environ), os.environ)
    programs = {label: missing_program(server, subject) for label, server in subject.servers.items()}
    found = {other: [programs[label] for label in labels] for other, labels in removed.items()}
    return {other: missing[0] for other, missing in found.items() if all(missing) and missing[0]}


def plan_for(found: FoundFile, name: str, config: str, *, replaces: bool) -> InstallPlan:
    """Plan the changes to a file. Raises `ConfigError`."""
    client, file = found.client, found.file
    before = found.content()
    servers = servers_in(before or b"", file, found.path)
    _check_name(client, name, servers, file.dialect)
    entry = _own_entry(found, name, config)
    # Continue has a list of servers, with the name inside each of them.
    current = {key: value for key, value in servers.get(name, {}).items() if key != "name" or "name" in entry}
    entry = _with_user_settings(current, entry, DIALECTS[file.dialect])
    served = served_by(config) if replaces else {}
    same = {
        other: labels
        for other, written in servers.items()
        if other != name and (labels := _served_as(other, translated(written, file.dialect).entry, served))
    }
    lacking = _lacking(config) if same else {}
    # If the workbench cannot start a server, removing it here would take it from the agent.
    removed = [other for other, labels in same.items() if any(label not in lacking for label in labels)]
    kept = {other: lacking[labels[0]] for other, labels in same.items() if other not in removed}
    plan = InstallPlan(found, name, entry, before, b"", servers, removed=removed, kept=kept)
    # In one edit: a client that reads its file in the meantime sees all of the change or none.
    plan.after = edited(before, found, plan.entries)
    plan.not_found = _programs_not_found(config, {other: same[other] for other in removed}) if removed else {}
    # The client's command may write more than is needed, such as an empty `env`.
    is_there = current.items() >= entry.items() if by_command(found) else current == entry
    plan.is_done = is_there and not removed
    if by_command(found) and not plan.is_done and not client_commands.is_installed(client):
        hint = f"install {client.title}, or enter what mcp-workbench install {client.name} --print shows"
        program = client_commands.program(client)
        raise ConfigError(f"the program `{program}` of {client.title} is not on the PATH", hint=hint)
    return plan


def _own_entry(found: FoundFile, name: str, config: str) -> dict[str, Any]:
    # Variables that are not set cannot be passed on: some clients would pass the reference itself.
    passed_on = [variable for variable in _withheld_variables(found.client, config) if variable in os.environ]
    return own_entry(found.file.dialect, name, own_command(config), _own_environment(found.client), passed_on)


def _with_user_settings(current: dict[str, Any], entry: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return our entry with the settings and variables that the user added, or changed from the usual values."""
    found = current | entry | {key: current[key] for key in dialect.extra if key in current and key != "type"}
    for key, value in entry.items():
        theirs = current.get(key)
        if isinstance(value, dict) and isinstance(theirs, dict):
            found[key] = theirs | value
        elif key == dialect.passed_on and isinstance(theirs, list):
            found[key] = [*theirs, *(each for each in value if each not in theirs)]
    return found


def _check_name(client: Client, name: str, servers: Servers, dialect: str) -> None:
    if name in client.reserved:
        raise ConfigError(f"{client.title} keeps the name `{name}` for itself", hint="choose another with --name")
    for other, written in servers.items():
        # Clients that ignore case would start only one of the two.
        if other.casefold() == name.casefold() and not is_own(translated(written, dialect).entry or {}):
            raise ConfigError(
                f"{client.title} already has a server `{other}`, which is not the workbench",
                hint="choose another name with --name",
            )


def _served_as(name: str, entry: dict[str, Any] | None, served: dict[str, Served]) -> list[str]:
    """Return the labels of our servers that an entry corresponds to."""
    if entry is None or is_own(entry):
        return []
    return [label for label, ours in served.items() if is_served(name, entry, [ours], shutil.which)]


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
            hint=f"mcp-workbench init --from {client.name} takes its servers over",
        )
    name = _name(parsed)
    if parsed.has("print"):
        _print(client, scope, name, config)
        return []
    if scope == "user" and not is_present(client):
        remark("note", f"{client.title} was not found on this machine; its file is created anyway")
    if scope == "project":
        remark("note", "paths of this machine are written into the project's file; do not share it as it is")
    results = []
    run = new_run()
    for found in to_write(client, scope):
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
                remark("warning", f"interrupted; mcp-workbench undo {client.name} restores what was there")
            raise
        if not parsed.has("json"):
            stdout().line((client.title, "strong"), ": ", ("installed", "good"), f" as {name} in {found.path}")
        if client.graphical:
            remark("note", f"quit {client.title} and start it again")
        if missing := [each for each in _withheld_variables(client, config) if each not in os.environ]:
            listed = ", ".join(f"`{name}`" for name in missing)
            remark(
                "warning",
                f"{client.title} does not pass on {listed}, which the configuration refers to; "
                "use ${keyring:…}, ${file:…} or envFile there",
            )
    if any(each["changed"] for each in results) and not parsed.has("dry-run"):
        remark("hint", f"mcp-workbench undo {client.name} takes this back")
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


def _withheld_variables(client: Client, config: str) -> list[str]:
    """Return variables without a default that the configuration refers to and that this client does not pass on."""
    if client.environment == "inherited":
        return []
    written = servers_written(read(config), config)
    names: dict[str, None] = {}
    for toolbox, box in load(config, os.environ).toolboxes.items():
        for name, server in box.servers.items():
            own: set[str] = set().union(*map(_variables_of_file, server.env_files))
            found = _VARIABLE.findall(json.dumps(written[toolbox][name], ensure_ascii=False))
            names |= dict.fromkeys(variable for variable in found if variable not in own)
    if client.environment == "cleared":
        return [name for name in names if name not in server_environment(dict.fromkeys(names, "x"), (), {})]
    return [name for name in names if _LOOKS_SECRET.search(name)]


def _variables_of_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return dotenv.parse(file.read())
    except (OSError, UnicodeDecodeError, dotenv.DotenvError):
        # `check` reports what is wrong with it.
        return {}


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
    shown = edit_preview(found, plan.before, plan.after, plan.name, plan.entry, plan.removed)
    screen.text(visible(shown))
    screen.flush()


def _print(client: Client, scope: Scope, name: str, config: str) -> None:
    found = next((each for each in to_write(client, scope)), None)
    assert found is not None
    entry = _own_entry(found, name, config)
    if by_command(found):
        stdout().text(shlex.join(client_commands.add_command(client, name, entry)))
        return
    remark("note", f"into `{found.path}`:")
    stdout().text(with_server(found.file.when_new.encode(), found.file, name, entry, found.path).decode())
