"""The plan of `install` for one file of one client: what is written, and which servers are removed.

Pure in what it decides; reads the client's file and ours. How a change is made and taken back is in `client_changes`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.engine.config.environment import server_environment
from mcp_workbench.engine.config.load import load, read
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.problems import in_one_line
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import client_commands
from mcp_workbench.setup.check_references import look
from mcp_workbench.setup.client_changes import Entries, by_command, edited, steps_for
from mcp_workbench.setup.client_files import FoundFile
from mcp_workbench.setup.clients.client_paths import this_system
from mcp_workbench.setup.clients.dialects import DIALECTS, Dialect, is_own, own_entry, translated
from mcp_workbench.setup.clients.documents import Servers, servers_in
from mcp_workbench.setup.clients.identity import Served, is_served
from mcp_workbench.setup.clients.table import Client
from mcp_workbench.setup.diagnosis import Examined
from mcp_workbench.setup.doctor_checks import missing_program
from mcp_workbench.setup.own_configuration import servers_written
from mcp_workbench.signin.secrets import dotenv

_CACHED_PROGRAM: Final = re.compile(r"/(archive-v\d+|environments-v\d+|pipx/\.cache|\.cache/pipx)/")
_NAMED_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
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


def refuse_cached_program(program: str) -> None:
    """Refuse programs that `uvx` and `pipx run` start from a cache, because they will be deleted some day."""
    if _CACHED_PROGRAM.search(program.replace("\\", "/")):
        raise ConfigError(
            f"`{program}` is in a cache folder, which may be emptied at any time",
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


def had_by(config: str) -> dict[str, Served]:
    """Return the servers of the configuration by `toolbox/server`, also those that are disabled. Raises
    `ConfigError`."""
    disabled: dict[str, Served] = {}
    for toolbox, servers in servers_written(read(config), config).items():
        for name, entry in servers.items():
            if isinstance(entry, dict) and entry.get("disabled"):
                # What is disabled is not checked, and may be anything.
                kinds = {"args": list, "env": dict, "headers": dict}
                usable = {key: each for key, each in entry.items() if isinstance(each, kinds.get(key, object))}
                disabled[f"{toolbox}/{name}"] = Served(name, usable, usable)
    return served_by(config) | disabled


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
    entry = own_entry_for(found, name, config)
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


def own_entry_for(found: FoundFile, name: str, config: str) -> dict[str, Any]:
    # Variables that are not set cannot be passed on: some clients would pass the reference itself.
    passed_on = [variable for variable in withheld_variables(found.client, config) if variable in os.environ]
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
        raise ConfigError(f"{client.title} reserves the name `{name}`", hint="choose another with --name")
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


def withheld_variables(client: Client, config: str) -> list[str]:
    """Return variables without a default that the configuration refers to and that this client does not pass on."""
    if client.environment == "inherited":
        return []
    # First, because it says what is wrong with a file.
    toolboxes = load(config, os.environ).toolboxes
    written = servers_written(read(config), config)
    names: dict[str, None] = {}
    for toolbox, box in toolboxes.items():
        for name, server in box.servers.items():
            own: set[str] = set().union(*map(_variables_of_file, server.env_files))
            found = _NAMED_VARIABLE.findall(json.dumps(written[toolbox][name], ensure_ascii=False))
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
