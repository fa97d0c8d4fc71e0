"""Run the commands other than `serve`, and turn errors into messages and an exit status.

Owns the overview of all commands. Does not know what any of them does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Command, Parsed, UsageError, columns_text
from mcp_workbench.cli.usage import COMMAND_GROUPS, COMMANDS, SPELLED, help_of, resolved
from mcp_workbench.cli.wrapping import paragraphs, width_of
from mcp_workbench.engine.nearest import nearest
from mcp_workbench.errors import ConfigError, WorkbenchError

FIRST_SCREEN = """\
Usage: mcp-workbench COMMAND [OPTIONS] …

One MCP server in front of many. Clients start `mcp-workbench serve`; the other commands are for people.
"""

_MORE_HELP = (
    "mcp-workbench COMMAND --help explains a command with its actions and options, mcp-workbench help TOPIC shows the "
    "documents, mcp-workbench demo walks through a short session, mcp-workbench --version shows the version."
)


def overview() -> str:
    """Return the list of commands in their groups, one line each."""
    width = width_of(sys.stdout)
    column = max(len(name) for group in COMMAND_GROUPS.values() for name in group) + 2
    parts = [paragraphs(FIRST_SCREEN.rstrip(), width)]
    for title, group in COMMAND_GROUPS.items():
        parts.append(f"{title}:\n" + columns_text([(name, COMMANDS[name].summary) for name in group], column))
    parts.append(paragraphs(_MORE_HELP, width))
    return "\n\n".join(parts)


def is_command(word: str) -> bool:
    return word == "help" or word in COMMANDS


def run(arguments: Sequence[str]) -> int:
    """Run the command that is named first. Returns the exit status."""
    name, *rest = resolved(arguments)
    if name == "help":
        return _help(rest)
    command = COMMANDS[name]
    # `PYTHONIOENCODING=ascii` and Latin-1 locales have no `→`, and lack the letters of many names.
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is no reason to fail.
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        parsed = command.parse(rest)
        # `team` alone does nothing: it has only actions.
        if parsed.wants_help or name == "team":
            print(help_of(name))
            return 0
        return carry_out(command, parsed)
    # Exit status 2 is for errors that the caller must fix (command line, file), 1 for all other failures.
    except UsageError as error:
        hint = error.hint or f"mcp-workbench {name} --help explains the command"
        own = f"mcp-workbench {name} "
        return complain(
            str(error), f"mcp-workbench {SPELLED[name]} {hint[len(own) :]}" if hint.startswith(own) else hint
        )
    except ConfigError as error:
        return complain(error.message, error.hint)
    except WorkbenchError as error:
        return complain(error.message, error.hint, status=FAILED_STATUS)


def carry_out(command: Command, parsed: Parsed) -> int:
    """Import the command's module and run it. Returns the exit status."""
    status: int = import_module(f"mcp_workbench.cli.commands.{command.name}").run(parsed)
    return status


def unknown(word: str) -> int:
    near = nearest(word, [*COMMANDS, "help"], limit=1)
    if near:
        return complain(f"unknown command `{word}`; did you mean `{near[0]}`?", _UNKNOWN_COMMAND_HINT)
    return complain(f"`{word}` is neither a command nor a configuration file", _UNKNOWN_COMMAND_HINT)


_UNKNOWN_COMMAND_HINT = "mcp-workbench --help lists the commands; name a configuration with --config"


def _help(names: Sequence[str]) -> int:
    if not names:
        print(overview())
        return 0
    name = resolved(names)[0]
    # Imported here, because other commands need no documents.
    from mcp_workbench.cli.topics import show, topics

    if name not in COMMANDS:
        return show(names[0])
    # `help policy` shows the guide as well, `help team policy` and `team policy --help` only how it is called.
    if len(names) > 1 or name not in topics():
        print(help_of(name))
        return 0
    return show(name, help_of(name))
