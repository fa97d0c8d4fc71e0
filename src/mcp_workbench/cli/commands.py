"""The commands beside `serve`: finds the one that is meant, and turns what goes wrong into words and an exit status.

Owns the overview of all commands. Refuses to know what any of them does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from mcp_workbench.cli.error_output import FAILED, complain
from mcp_workbench.cli.flags import HELP, Command, UsageError, columns_text, options_text
from mcp_workbench.cli.wrapping import paragraphs, width_of
from mcp_workbench.errors import ConfigError, WorkbenchError
from mcp_workbench.nearest import nearest

SUMMARIES = {
    "serve": "run the MCP server, over stdio or HTTP (the default command)",
    "init": "create a configuration from the servers that your clients have",
    "install": "add the workbench to MCP clients",
    "uninstall": "remove the workbench from MCP clients",
    "undo": "undo the last install or uninstall",
    "add": "add a server to the configuration",
    "remove": "remove a server from the configuration",
    "doctor": "find out what is wrong, and what to do about it",
    "check": "validate the configuration; with --connect, test every server",
    "list": "show toolboxes and servers; with --face, what clients see",
    "open": "show the tools of a toolbox as an agent gets them",
    "find": "search for tools as an agent does",
    "call": "call a tool",
    "prompt": "get a prompt, or list prompts",
    "resource": "read a resource, or list resources",
    "tokens": "show what tools cost an agent, with and without the workbench",
    "up": "start the shared workbench; serve joins it from then on",
    "down": "stop the shared workbench",
    "restart": "stop the shared workbench and start it again",
    "logs": "show the shared workbench's log",
    "status": "show the running workbenches and the state of their servers",
    "top": "watch servers and calls live, stop and restart servers",
    "lock": "record what servers offer, and show what has changed since",
    "audit": "show who called what, and verify that the record is whole",
    "reload": "make running workbenches read their configuration again now",
    "login": "sign in to a remote server, in the browser",
    "logout": "forget a sign-in, and revoke it if possible",
    "auth": "list your sign-ins and how long they last",
    "secret": "keep secrets in the system's keychain",
    "approve": "allow a call that waits for your approval",
    "policy": "show what the policy decides, by which rule and why",
    "key": "manage named keys for clients over HTTP",
    "demo": "walk through a short session on the included servers",
    "trust": "allow the workbench-config.json of a project, as it is now",
    "completion": "print a script that completes command lines, for your shell",
    "schema": "print the JSON Schema of the configuration, for editors",
}


# What people do with the commands, in the order in which they come to it. What is in no other group is for teams.
_SET_UP = "init install uninstall undo add remove doctor check secret login logout auth completion schema".split()
_USE = "list open find call prompt resource tokens demo".split()
_RUN = "serve up down restart status top logs reload".split()


def groups() -> dict[str, list[str]]:
    """The commands, by what they are for."""
    team = [name for name in SUMMARIES if name not in (*_SET_UP, *_USE, *_RUN)]
    all_groups = {"Set up": _SET_UP, "Use": _USE, "Run": _RUN, "Team": team}
    return {title: [name for name in names if name in SUMMARIES] for title, names in all_groups.items()}


USAGE = """\
Usage: mcp-workbench COMMAND [OPTIONS] …

One MCP server in front of many. Clients start `mcp-workbench serve`; the other commands are for people.
"""


def overview() -> str:
    """Every command in its group, one line each."""
    width = width_of(sys.stdout)
    column = max(map(len, SUMMARIES)) + 2
    parts = [paragraphs(USAGE.rstrip(), width)]
    for title, names in groups().items():
        parts.append(f"{title}:\n" + columns_text([(name, SUMMARIES[name]) for name in names], column))
    parts.append(
        paragraphs("mcp-workbench COMMAND --help explains a command, mcp-workbench --version shows the version.", width)
    )
    return "\n\n".join(parts)


def about_serve() -> str:
    """What `serve --help` says: `serve` is no command like the others, because it has to start at once."""
    from mcp_workbench.cli.serve import FLAGS, USAGE

    return f"{paragraphs(USAGE.rstrip(), width_of(sys.stdout))}\n\n{options_text([*FLAGS, HELP])}"


def run(arguments: Sequence[str]) -> int:
    """Run the command that is named first; the exit status."""
    name, *rest = arguments
    if name == "help":
        return _help(rest)
    command = find(name)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is no reason to fail.
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        parsed = command.parse(rest)
        if parsed.wants_help:
            print(command.help())
            return 0
        return command.run(parsed)
    except UsageError as error:
        return complain(str(error), error.hint or f"mcp-workbench {name} --help explains the command")
    except ConfigError as error:
        return complain(error.message, error.hint)
    except WorkbenchError as error:
        return complain(error.message, error.hint, status=FAILED)


def find(name: str) -> Command:
    """The command with this name, which is one of `SUMMARIES` other than `serve`."""
    command = import_module(f"mcp_workbench.cli.{name}").COMMAND
    assert isinstance(command, Command)
    return command


def unknown(word: str, known: Sequence[str]) -> int:
    near = nearest(word, [*known, "help"], limit=1)
    if near:
        return complain(f"unknown command `{word}`; did you mean `{near[0]}`?", _HINT)
    return complain(f"`{word}` is neither a command nor a configuration file", _HINT)


_HINT = "mcp-workbench --help lists the commands; name a configuration with --config"


def _help(names: Sequence[str]) -> int:
    name = names[0] if names else ""
    if name and name not in SUMMARIES:
        return unknown(name, list(SUMMARIES))
    print(overview() if not name else about_serve() if name == "serve" else find(name).help())
    return 0
