"""A sign-in needs connections and a store, and nothing that serves clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

# Those of the command line, of a connection over HTTP, and of the sign-in itself.
MAX_MODULES = 164
SERVES_CLIENTS = ("app.gateway", "app.team_gate", "engine.face.proxy", "engine.router", "engine.session.session")


# What each prints of the server that it could not reach, or was not signed in to.
SAID = {"login": (1, "nothing is listening at http://127.0.0.1:9"), "logout": (0, "you were not signed in to notes")}


@pytest.mark.parametrize("command", SAID)
def test_a_sign_in_loads_nothing_that_serves_clients(tmp_path: Path, command: str) -> None:
    config = tmp_path / "workbench-config.json"
    servers = {"files": {"command": "true"}, "notes": {"url": "http://127.0.0.1:9/mcp"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    code = f"""
import sys
from mcp_workbench.__main__ import main
status = main([{command!r}, "notes", "--config", {str(config)!r}])
print(status, *(name for name in sys.modules if name.startswith("mcp_workbench.")), file=sys.__stderr__)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *said, last = ran.stderr.splitlines()
    status, *modules = last.split()
    assert int(status) == SAID[command][0], ran.stderr
    assert SAID[command][1] in "\n".join(said)
    assert "mcp_workbench.app.server_access" in modules, "otherwise nothing is counted"
    assert not [each for each in modules if each.removeprefix("mcp_workbench.").startswith(SERVES_CLIENTS)]
    assert len(modules) <= MAX_MODULES, sorted(modules)
