"""`mcp-workbench remove`: remove a server from the configuration."""

from __future__ import annotations

import json
import re
from typing import Final

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Command, Flag, Parsed
from mcp_workbench.cli.own_configuration import own_configuration
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.settings import CONFIG

TOOLBOX = Flag("toolbox", "TOOLBOX", "the toolbox it is in, if several have one of this name")
_KEPT: Final = re.compile(r"\$\{keyring:([^{}/]+)\}")

ABOUT = """
Takes a server out of your configuration; every other byte of the file stays as it is. A toolbox that has no other
server goes with it. A running workbench stops the server at once. Secrets that the server referred to stay where they
are, and it is said how to remove them.

Exit code: 0, or 2 if there is no such server or the file cannot be written.
"""


def run(parsed: Parsed) -> int:
    """Remove it; the exit status."""
    file = own_configuration(parsed, makes=False)
    toolbox, name = file.server(parsed.positionals[0], parsed.value("toolbox"))
    written = file.toolboxes[toolbox][name]
    file.write(file.without_server(toolbox, name))
    where = "" if file.is_plain else f" from toolbox {toolbox}"
    stdout().line((name, "strong"), ": ", ("removed", "good"), f"{where} in {file.path}")
    for entry in dict.fromkeys(_KEPT.findall(json.dumps(written))):
        remark("note", f"the keychain still has `{entry}`; mcp-workbench secret remove {entry} deletes it")
    files = written.get("envFile", [])
    for path in [files] if isinstance(files, str) else files:
        remark("note", f"its variables are still in `{path}`, next to the configuration")
    return 0


COMMAND = Command("remove [OPTIONS] SERVER", ABOUT, (TOOLBOX, CONFIG), run, names=("SERVER",), takes=1)
