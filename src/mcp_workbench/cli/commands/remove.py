"""`mcp-workbench remove`: remove a server from the configuration."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import Final

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.setup.own_configuration import own_configuration

_KEYRING_REFERENCE: Final = re.compile(r"\$\{keyring:([^{}/]+)\}")


def run(parsed: Parsed) -> int:
    file = own_configuration(parsed.value("config"), makes=False, warn=partial(remark, "warning"))
    toolbox, name = file.server(parsed.positionals[0])
    written = file.toolboxes[toolbox][name]
    home = _private_home(file.path, toolbox, name)
    file.write(file.without_server(toolbox, name))
    where = "" if file.is_plain else f" from toolbox {toolbox}"
    stdout().line((name, "strong"), ": ", ("removed", "good"), f"{where} in {tilde(file.path)}")
    # Not deleted: another server or configuration may refer to the same entry.
    for entry in dict.fromkeys(_KEYRING_REFERENCE.findall(json.dumps(written))):
        remark("note", f"the keychain still has `{entry}`; mcp-workbench secret remove {entry} deletes it")
    if home is not None:
        remark("note", f"what it stored in its sandbox is still in `{home}`; delete that folder if it is not needed")
    files = written.get("envFile", [])
    for path in [files] if isinstance(files, str) else files:
        remark("note", f"its variables are still in `{path}`, next to the configuration")
    return 0


def _private_home(path: str, toolbox: str, name: str) -> str | None:
    """The folder that the server had for itself in a sandbox, if there is one."""
    from mcp_workbench.engine.config.load import load
    from mcp_workbench.engine.sandbox.server_sandbox import Owner, private_home

    # A disabled server is in the file and not loaded.
    server = load(path, os.environ).toolboxes[toolbox].servers.get(name)
    if server is None:
        return None
    home = private_home(server, Owner(path, toolbox))
    return home if os.path.isdir(home) else None
