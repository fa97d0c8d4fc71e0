"""A client's own command for adding and removing servers, filled in from the table of clients and run.

Owns the time limit and the error messages. Does not know when such a command is used.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.literal_secrets import secrets_of
from mcp_workbench.setup.clients.table import Client

# Programs on Node take seconds on a busy machine, and some check for updates first.
CLIENT_COMMAND_TIMEOUT: Final = 60.0
_MAX_QUOTED_OUTPUT: Final = 500


def is_installed(client: Client) -> bool:
    return shutil.which(program(client)) is not None


def literal_secrets(entry: Mapping[str, Any]) -> list[str]:
    """Return the secrets of an entry that are not references."""
    return [secret for secret in secrets_of(entry) if "${" not in secret]


def exposure_warning(client: Client, names: Sequence[str], when: str) -> str:
    """Return a warning about servers whose secrets are on a command line: Claude Code accepts them no other way."""
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"{when}, the keys of {listed} are on the command line of `{program(client)}` for a moment, where other users "
        "of this machine can see them; that command accepts them only as arguments"
    )


def program(client: Client) -> str:
    assert client.own is not None
    return client.own.program


def add_command(client: Client, name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the command that adds a server; `entry` is in the client's own format."""
    assert client.own is not None
    filled = {"{name}": name, "{json}": json.dumps(entry, ensure_ascii=False)}
    return [client.own.program, *(filled.get(word, word) for word in client.own.add)]


def remove_command(client: Client, name: str) -> list[str]:
    assert client.own is not None
    return [client.own.program, *(name if word == "{name}" else word for word in client.own.remove)]


def run(client: Client, command: Sequence[str]) -> str:
    """Run a command and return its output. Raises `ConfigError`."""
    program = shutil.which(command[0])
    if program is None:
        hint = f"install {client.title}, or see mcp-workbench install {client.name} --print"
        raise ConfigError(f"the program `{command[0]}` of {client.title} is not on the PATH", hint=hint)
    try:
        # No input: a command that asks a question must fail, not wait for an answer.
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=CLIENT_COMMAND_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"`{command[0]}` did not end within {CLIENT_COMMAND_TIMEOUT:g} s", hint="try again") from None
    except OSError as error:
        raise ConfigError(f"`{command[0]}` cannot be started: {error.strerror}") from None
    # Some clients report errors on stdout.
    output = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode:
        raise ConfigError(
            f"`{' '.join(command[:3])}` failed with status {done.returncode}: {output[-_MAX_QUOTED_OUTPUT:]}",
            hint=f"mcp-workbench install {client.name} --print shows what to enter by hand",
        )
    return output
