"""A server that is in no file: named on the command line by its address, or by its command after `--`.

    mcp-workbench call https://example.com/mcp TOOL key=value
    mcp-workbench call key=value -- npx -y @modelcontextprotocol/server-everything TOOL key=value

Owns how such a command line is parsed: the last word of the command that is not a `key=value` names the item.
"""

from __future__ import annotations

import os
import shlex
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from mcp_workbench.cli.flags import Parsed, UsageError, named_value
from mcp_workbench.engine.config.kinds import url_fault
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.suggestions import listed
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.errors import SignInNeeded, WorkbenchError
from mcp_workbench.team.lock.packages import package_of

TOOLBOX: Final = "unlisted"
_TOKEN_HINT: Final = (
    "give a token with --header Authorization='Bearer …', or add the server to a configuration (mcp-workbench add) and "
    "sign in with mcp-workbench auth login"
)


class Unlisted(NamedTuple):
    """A configuration with only this server, and the words that are not part of the server."""

    config: WorkbenchConfig
    server: str
    words: list[str]


def unlisted(parsed: Parsed, *, takes_pairs: bool = True) -> Unlisted | None:
    """Return the server that the command line itself describes; None if it names one of the configuration.

    With `takes_pairs`, `key=value` words at the end are arguments."""
    words = parsed.positionals
    if parsed.before_dashes == 0 and words:
        command, rest = _split(words, takes_pairs=takes_pairs)
        name = os.path.basename(command[0])
        # As if it had been started from the shell: with its whole environment.
        server = ServerConfig(name=name, command=command[0], args=tuple(command[1:]), inherit_env=("*",))
        return Unlisted(_alone(server, frozenset()), name, rest)
    # A single address is a resource of the configuration, or a mistake that the command explains.
    if len(words) > 1 and words[0].startswith(("http://", "https://")):
        url, *rest = words
        fault = url_fault(url)
        if fault is not None:
            raise UsageError(f"`{url}` is not an address: {fault}")
        headers = dict(named_value(each, "--header", "=:") for each in parsed.values("header"))
        name = urlsplit(url).hostname or url
        server = ServerConfig(name=name, transport="auto", url=url, headers=headers)
        return Unlisted(_alone(server, frozenset(headers.values())), name, rest)
    if parsed.has("header"):
        raise UsageError("--header is for a server given by URL", hint="others have `headers` in the file")
    return None


def _split(words: list[str], *, takes_pairs: bool) -> tuple[list[str], list[str]]:
    """Split into the command and the rest: the last word that is not an argument names the tool."""
    end = len(words)
    while takes_pairs and end > 0 and "=" in words[end - 1] and not words[end - 1].startswith("-"):
        end -= 1
    if end < 2:
        raise UsageError("after `--` come the command of a server and then the name of what to use")
    command, word = words[: end - 1], words[end - 1]
    # `npx -y PACKAGE` without a tool: `npx -y` alone is a shell, so it and we would wait for each other.
    if not _starts_package(command) and _starts_package([*command, word]):
        raise UsageError(
            f"`{shlex.join(command)}` starts no server: the last word, `{word}`, is taken as the name of what to use",
            hint=f"write that after the command: -- {shlex.join([*command, word])} NAME",
        )
    return command, words[end - 1 :]


def _starts_package(command: list[str]) -> bool:
    return bool(package_of(ServerConfig(name="", command=command[0], args=tuple(command[1:]))))


def alone(config: WorkbenchConfig, name: str) -> WorkbenchConfig:
    """Return the configuration with only the server that a `toolbox/server` names. Raises `UsageError`."""
    places = [(box, server) for box, each in config.toolboxes.items() for server in each.servers]
    found = [place for place in places if name == "/".join(place)]
    if len(found) != 1:
        fitting = ["/".join(place) for place in places if place[1] == name]
        if fitting:
            raise UsageError(f"`{name}` is not a full path: `toolbox` is missing; it can be {listed(fitting)}")
        known = ["/".join(place) for place in places]
        raise UsageError(no_such("server", name, known), hint="mcp-workbench list shows all servers")
    box, server = found[0]
    toolbox = config.toolboxes[box]
    return replace(config, toolboxes={box: replace(toolbox, servers={server: toolbox.servers[server]})})


def hint_about(error: WorkbenchError, named: Unlisted | None) -> str | None:
    """Return what to do about an error. Hints about the file do not apply to a server that is in no file."""
    if named is None:
        return error.hint
    server = named.config.toolboxes[TOOLBOX].servers[named.server]
    if server.command is None:
        return _TOKEN_HINT if isinstance(error, SignInNeeded) else error.hint
    read = (
        f"`{shlex.join([server.command, *server.args])}` was taken as the command, and the last word, "
        f"`{named.words[0]}`, as the name of what to use"
    )
    return read if error.hint is None or "startupTimeout" in error.hint else f"{error.hint}; {read}"


def _alone(server: ServerConfig, secrets: frozenset[str]) -> WorkbenchConfig:
    toolbox = ToolboxConfig(name=TOOLBOX, description="", servers={server.name: server})
    return WorkbenchConfig(path="", toolboxes={TOOLBOX: toolbox}, secrets=secrets)
