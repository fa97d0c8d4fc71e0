"""How each command is called: its summary, usage, explanation and options. Nothing about what it does.

A command is declared in the module of its group (`setting_up`, `using`, `running`, `team`) and carried out by `run` in
the module of its name in `commands`, which is imported once the command line has been parsed. So help, completion and
errors about a command line load neither the engine nor asyncio: declarations import only texts, and the `options` that
several of them share.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Command
from mcp_workbench.cli.usage import running, setting_up, team, using

# What people do with the commands, in the order in which they usually do it.
GROUPS: Final = {"Set up": setting_up.COMMANDS, "Use": using.COMMANDS, "Run": running.COMMANDS, "Team": team.COMMANDS}
COMMANDS: Final[dict[str, Command]] = {command.name: command for group in GROUPS.values() for command in group}
