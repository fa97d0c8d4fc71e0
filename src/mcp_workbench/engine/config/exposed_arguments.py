"""Secrets in the command lines of servers, which every user of the machine can read while the server runs. Pure."""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.problems import quote
from mcp_workbench.engine.config.redact import argument_secrets, is_secret_name

USE_ENV_HINT: Final = "pass it in `env`, if the server takes it from a variable"


def about_exposed_arguments(config: WorkbenchConfig) -> list[str]:
    """Return a sentence for each server whose arguments contain a secret."""
    found = []
    for place, server in config.servers():
        exposed = exposed_arguments(server)
        if exposed:
            which = ", ".join(f"`args.{index}`" for index in exposed)
            what = "a secret" if len(exposed) == 1 else "secrets"
            found.append(
                f"{quote(place)} has {what} in {which}, where every user of this machine can read "
                f"{'it' if len(exposed) == 1 else 'them'} while the server runs (`ps`)"
            )
    return found


def exposed_arguments(server: ServerConfig) -> list[int]:
    """Return the positions of arguments that are secrets, or contain one."""
    if server.command is None:
        return []
    literal = {index for index, *_ in argument_secrets(server.args)}
    fetched = {
        int(value.field[1])
        for value in server.references
        if value.field[0] == "args"
        for part in value.parts
        # Whatever is fetched is a secret; a variable is one if its name says so.
        if not isinstance(part, str) and (part.kind != "variable" or is_secret_name(part.words[0]))
    }
    return sorted(literal | fetched)
