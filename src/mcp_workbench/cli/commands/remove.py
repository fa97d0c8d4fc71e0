"""`mcp-workbench remove`: remove a server from the configuration."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Final

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import stdout
from mcp_workbench.setup.own_configuration import own_configuration

_KEPT: Final = re.compile(r"\$\{keyring:([^{}/]+)\}")


def run(parsed: Parsed) -> int:
    file = own_configuration(parsed.value("config"), makes=False, warn=partial(remark, "warning"))
    toolbox, name = file.server(parsed.positionals[0])
    written = file.toolboxes[toolbox][name]
    file.write(file.without_server(toolbox, name))
    where = "" if file.is_plain else f" from toolbox {toolbox}"
    stdout().line((name, "strong"), ": ", ("removed", "good"), f"{where} in {file.path}")
    # Not deleted: another server or configuration may refer to the same entry.
    for entry in dict.fromkeys(_KEPT.findall(json.dumps(written))):
        remark("note", f"the keychain still has `{entry}`; mcp-workbench secret remove {entry} deletes it")
    files = written.get("envFile", [])
    for path in [files] if isinstance(files, str) else files:
        remark("note", f"its variables are still in `{path}`, next to the configuration")
    return 0
