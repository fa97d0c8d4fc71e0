"""A client's own command for adding, removing and listing servers, filled in from the table of clients and run.

Owns the time limit and the error messages. Does not know when such a command is used.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.clients.literal_secrets import secrets_of
from mcp_workbench.clients.table import Client, Scope
from mcp_workbench.errors import ConfigError

# Programs on Node take seconds on a busy machine, and some check for updates first.
COMMAND_SECONDS: Final = 60.0
_MOST_OUTPUT: Final = 500


class CommandStep(Struct, frozen=True):
    """A command that adds or removes a server, and the command that reverses it, if there is one."""

    name: str
    command: list[str]
    back: list[str] | None
    # Whether the client should have the server afterwards.
    is_there: bool


def has_command(client: Client, scope: Scope) -> bool:
    """Whether the client has a command for adding servers."""
    return client.own is not None and bool(client.own.add) and scope in client.own.scopes


def can_add(client: Client, scope: Scope) -> bool:
    """Whether that command is installed here."""
    return has_command(client, scope) and shutil.which(program(client)) is not None


def can_carry(client: Client, entry: Mapping[str, Any], usual: Container[str] = ()) -> bool:
    """Whether this entry may be passed to the client's command. Some commands accept only a program, arguments,
    variables and the `usual` keys, and secrets must not be on a command line, which all users of a machine can read."""
    assert client.own is not None
    if not client.command_only and _literal_secrets(entry):
        return False
    taken = {"command", "args", "env"}
    return any(word.startswith("{json") for word in client.own.add) or all(
        member in taken or member in usual for member in entry
    )


def expands_variables(client: Client, *contents: bytes) -> bool:
    """Whether the client's command would replace `${VAR}` in these contents with the values of variables, and so write
    secrets into its file."""
    assert client.own is not None
    return client.own.fills_in and any(b"$" in content for content in contents)


def shows_secrets(command: Sequence[str]) -> bool:
    """Whether an entry among the words of a command contains secrets."""
    return any(_literal_secrets(json.loads(word)) for word in command if word.startswith("{"))


def _literal_secrets(entry: Mapping[str, Any]) -> list[str]:
    return [secret for secret in secrets_of(entry) if "${" not in secret]


def exposure_warning(client: Client, names: Sequence[str], when: str) -> str:
    """Return a warning about servers whose secrets are on a command line: Claude Code accepts them no other way."""
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"{when}, the keys of {listed} are on the command line of `{program(client)}` for a moment, where other users "
        "of this machine can see them; it takes them no other way"
    )


def program(client: Client) -> str:
    assert client.own is not None
    return client.own.program


def adding(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> CommandStep:
    """Return the step that adds a server; `entry` is in the client's own format."""
    return CommandStep(
        name, add_command(client, scope, name, entry), remove_command(client, scope, name), is_there=True
    )


def removing(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> CommandStep | None:
    """Return the step that removes a server, which is `entry` in the client's file; None if the client has no such
    command."""
    command = remove_command(client, scope, name)
    if command is None:
        return None
    # Only a client whose file we never edit needs a command that restores the server; its command accepts any entry.
    back = add_command(client, scope, name, entry) if client.command_only else None
    return CommandStep(name, command, back, is_there=False)


def add_command(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the command that adds a server; `entry` is in the client's own format."""
    assert client.own is not None
    return _filled_in(client, client.own.add, scope, name, entry)


def remove_command(client: Client, scope: Scope, name: str) -> list[str] | None:
    """Return the command that removes a server; None if the client has none."""
    if client.own is None or not client.own.remove or scope not in client.own.scopes:
        return None
    return _filled_in(client, client.own.remove, scope, name, {})


def run(client: Client, command: Sequence[str]) -> str:
    """Run a command and return its output. Raises `ConfigError`."""
    program = shutil.which(command[0])
    if program is None:
        hint = f"install {client.title}, or see mcp-workbench install {client.name} --print"
        raise ConfigError(f"the program `{command[0]}` of {client.title} is not on the PATH", hint=hint)
    try:
        # No input: a command that asks a question must fail, not wait for an answer.
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"`{command[0]}` did not end within {COMMAND_SECONDS:g} s", hint="try again") from None
    except OSError as error:
        raise ConfigError(f"`{command[0]}` cannot be started: {error.strerror}") from None
    # Some clients report errors on stdout.
    output = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode:
        raise ConfigError(
            f"`{' '.join(command[:3])}` failed with status {done.returncode}: {output[-_MOST_OUTPUT:]}",
            hint=f"mcp-workbench install {client.name} --print shows what to enter by hand",
        )
    return output


def _filled_in(client: Client, words: Sequence[str], scope: Scope, name: str, entry: Mapping[str, Any]) -> list[str]:
    assert client.own is not None
    env: Mapping[str, str] = entry.get("env", {})
    filled = [client.own.program]
    for word in words:
        match word:
            case "{args}":
                filled += entry.get("args", [])
            case "{scope}":
                filled.append(client.own.scopes[scope])
            case "{name}":
                filled.append(name)
            case "{command}":
                filled.append(entry["command"])
            case "{json}":
                filled.append(json.dumps(entry, ensure_ascii=False))
            # `code --add-mcp` expects the name inside the JSON.
            case "{json-with-name}":
                filled.append(json.dumps({"name": name, **entry}, ensure_ascii=False))
            # `{env:--env}` becomes `--env KEY=VALUE` for each variable; clients differ in the option.
            case _ if word.startswith("{env:"):
                filled += [part for key, value in env.items() for part in (word[5:-1], f"{key}={value}")]
            case _:
                filled.append(word)
    return filled
