"""A client's own command for adding, removing and listing servers: filled in from the table, and run.

Owns the time limit and the words when it fails. Refuses to know when it is used.
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

# Programs on Node take seconds on a busy machine; some look for updates first.
COMMAND_SECONDS: Final = 60.0
_LAST_WORDS: Final = 500


class CommandStep(Struct, frozen=True):
    """One command that adds or removes one server, and the one that takes it back, where there is one."""

    name: str
    command: list[str]
    back: list[str] | None
    # Whether the client has the server afterwards.
    is_there: bool


def has_command(client: Client, scope: Scope) -> bool:
    """Whether the client has a command that adds a server."""
    return client.own is not None and bool(client.own.add) and scope in client.own.scopes


def can_add(client: Client, scope: Scope) -> bool:
    """Whether that command is there."""
    return has_command(client, scope) and shutil.which(program(client)) is not None


def can_carry(client: Client, entry: Mapping[str, Any], usual: Container[str] = ()) -> bool:
    """Whether its command may be given an entry: some take a program, arguments, variables and what is `usual` alone,
    and what is secret belongs on no command line, which all users of a machine can read."""
    assert client.own is not None
    if not client.command_only and _literal_secrets(entry):
        return False
    taken = {"command", "args", "env"}
    return any(word.startswith("{json") for word in client.own.add) or all(
        member in taken or member in usual for member in entry
    )


def gives_away(client: Client, *contents: bytes) -> bool:
    """Whether its command would write secrets into its file, which has or gets these contents: values of variables."""
    assert client.own is not None
    return client.own.fills_in and any(b"$" in content for content in contents)


def shows_secrets(command: Sequence[str]) -> bool:
    """Whether an entry among the words of a command has secrets in it."""
    return any(_literal_secrets(json.loads(word)) for word in command if word.startswith("{"))


def _literal_secrets(entry: Mapping[str, Any]) -> list[str]:
    return [secret for secret in secrets_of(entry) if "${" not in secret]


def shown_to_others(client: Client, names: Sequence[str], when: str) -> str:
    """What to know of servers whose secrets are on a command line: Claude Code reads them from nowhere else."""
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"{when}, the keys of {listed} are on the command line of `{program(client)}` for a moment, where other users "
        "of this machine can see them; it takes them no other way"
    )


def program(client: Client) -> str:
    assert client.own is not None
    return client.own.program


def adding(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> CommandStep:
    """Add a server, written as in the client's file."""
    return CommandStep(
        name, add_command(client, scope, name, entry), remove_command(client, scope, name), is_there=True
    )


def removing(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> CommandStep | None:
    """Remove a server, which is `entry` in the client's file; None where the client has no command for that."""
    command = remove_command(client, scope, name)
    if command is None:
        return None
    # Only a client whose file is never written by hand needs the words that bring it back; its command takes any entry.
    back = add_command(client, scope, name, entry) if client.command_only else None
    return CommandStep(name, command, back, is_there=False)


def add_command(client: Client, scope: Scope, name: str, entry: Mapping[str, Any]) -> list[str]:
    """The words that add a server, written as in the client's file."""
    assert client.own is not None
    return _filled_in(client, client.own.add, scope, name, entry)


def remove_command(client: Client, scope: Scope, name: str) -> list[str] | None:
    """The words that remove it; None where the client has none for that."""
    if client.own is None or not client.own.remove or scope not in client.own.scopes:
        return None
    return _filled_in(client, client.own.remove, scope, name, {})


def run(client: Client, command: Sequence[str]) -> str:
    """Run it; what it printed. Raises `ConfigError`."""
    program = shutil.which(command[0])
    if program is None:
        hint = f"install {client.title}, or see mcp-workbench install {client.name} --print"
        raise ConfigError(f"the program `{command[0]}` of {client.title} is not on the PATH", hint=hint)
    try:
        # No input: a command that asks something must fail rather than wait for an answer.
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"`{command[0]}` did not end within {COMMAND_SECONDS:g} s", hint="try again") from None
    except OSError as error:
        raise ConfigError(f"`{command[0]}` cannot be started: {error.strerror}") from None
    # Some write what went wrong to stdout.
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode:
        raise ConfigError(
            f"`{' '.join(command[:3])}` failed with status {done.returncode}: {said[-_LAST_WORDS:]}",
            hint=f"mcp-workbench install {client.name} --print shows what to enter by hand",
        )
    return said


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
            # `code --add-mcp` has no word for the name.
            case "{json-with-name}":
                filled.append(json.dumps({"name": name, **entry}, ensure_ascii=False))
            # `{env:--env}` stands for `--env KEY=VALUE` for each variable; clients differ in the option.
            case _ if word.startswith("{env:"):
                filled += [part for key, value in env.items() for part in (word[5:-1], f"{key}={value}")]
            case _:
                filled.append(word)
    return filled
