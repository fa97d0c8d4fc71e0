"""How each command is called: its summary, usage, explanation and options. Nothing about what it does.

A command is declared in the module of its group (`setting_up`, `using`, `running`, `team`) and carried out by `run` in
the module of its name in `commands`, which is imported once the command line has been parsed. So help, completion and
errors about a command line load neither the engine nor asyncio: declarations import only texts, and the `options` that
several of them share.

People see eighteen commands. The others are actions of these: `auth login` is carried out by `login`, `up --restart` by
`restart`. Written alone, those names work as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mcp_workbench.cli.flags import Command
from mcp_workbench.cli.usage.running import RUNNING_COMMANDS
from mcp_workbench.cli.usage.setting_up import SETUP_COMMANDS
from mcp_workbench.cli.usage.team import TEAM_COMMANDS
from mcp_workbench.cli.usage.using import USING_COMMANDS

COMMANDS: Final[dict[str, Command]] = {
    command.name: command for command in (*SETUP_COMMANDS, *USING_COMMANDS, *RUNNING_COMMANDS, *TEAM_COMMANDS)
}
# What people want to do, in the order in which they usually do it, and the commands for it.
COMMAND_GROUPS: Final = {
    "Set up": ("init", "install", "add", "remove", "check", "doctor"),
    "Use": ("serve", "up", "list", "find", "call"),
    "Look": ("status", "top", "page", "logs"),
    "Sign in": ("auth", "secret"),
    "Team": ("team",),
}
# How an action of a command is written, and the command that carries it out.
ACTIONS_OF_COMMANDS: Final = {
    "install": {"--remove": "uninstall", "--undo": "undo", "--completion": "completion"},
    "check": {"--schema": "schema"},
    "doctor": {"--sandbox": "sandbox"},
    "up": {"--stop": "down", "--restart": "restart", "--reload": "reload"},
    "list": {"--open": "open", "--tokens": "tokens"},
    "find": {"--forget": "forget"},
    "call": {"--prompt": "prompt", "--resource": "resource"},
    "auth": {"login": "login", "logout": "logout"},
    "team": {name: name for name in ("approve", "key", "policy", "audit", "lock", "cluster", "trust")},
}
# How each command is written.
SPELLED: Final = {name: name for name in COMMANDS} | {
    name: f"{command} {action}" for command, actions in ACTIONS_OF_COMMANDS.items() for action, name in actions.items()
}


def resolved(arguments: Sequence[str]) -> list[str]:
    """Return the command line with the command that carries it out first: `auth login X` as `login X`.

    An action that is a word comes right after its command; one that is an option may come anywhere before `--`.
    """
    command, *rest = arguments
    ours = rest[: rest.index("--")] if "--" in rest else rest
    for at, word in enumerate(ours):
        name = ACTIONS_OF_COMMANDS.get(command, {}).get(word)
        if name is not None and (at == 0 or word.startswith("--")):
            return [name, *rest[:at], *rest[at + 1 :]]
    return list(arguments)


def help_of(name: str) -> str:
    """Return what `--help` shows for a command, with its actions."""
    actions = [(f"{name} {word}", COMMANDS[each].summary) for word, each in ACTIONS_OF_COMMANDS.get(name, {}).items()]
    return COMMANDS[name].help(SPELLED[name], actions)
