"""A front end is hardly more than an interpreter, and copies whatever comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.sharing.front.copying import Copying
from mcp_workbench.sharing.front.serve import _Signals
from tests.cli.shell import run
from tests.support.workbench import scripted_entry, write_config

# Of our own, and of the standard library beside what an interpreter has loaded before it runs anything.
OWN = {
    "mcp_workbench",
    "mcp_workbench.__main__",
    "mcp_workbench.engine",
    "mcp_workbench.engine.portable_os",
    "mcp_workbench.engine.process_context",
    "mcp_workbench.engine.socket_peers",
    "mcp_workbench.engine.version",
    "mcp_workbench.sharing",
}


@pytest.mark.requirement("sharing.front-end")
def test_a_front_end_imports_neither_asyncio_nor_the_rest_of_the_package(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"server": scripted_entry()}})
    assert run("up").status == 0
    try:
        shake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": shake}) + "\n"
        script = (
            "import sys; before = set(sys.modules); from mcp_workbench.__main__ import main; "
            f"status = main(['serve', '--config', {str(config)!r}]); "
            "print(*sorted(set(sys.modules) - before), status, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script], input=line, capture_output=True, text=True, timeout=60)
    finally:
        assert run("down").status == 0
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "mcp-workbench"
    *loaded, status = done.stderr.split()
    assert status == "0"
    own = {name for name in loaded if name.partition(".")[0] == "mcp_workbench"}
    assert {name for name in own - OWN if not name.startswith("mcp_workbench.sharing.front")} == set()
    heavy = {"asyncio", "socket", "signal", "json", "re", "enum", "typing", "subprocess", "collections", "msgspec"}
    assert heavy & set(loaded) == set()
    assert len(loaded) <= 20, loaded


def test_signal_handlers_are_restored_before_serving_alone() -> None:
    """`nohup` has SIGHUP ignored, and whoever is closed with the terminal then was not meant to be."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        found = [signal.getsignal(number) for number in numbers]
        signals = _Signals(Copying())
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        signals.close()
        assert [signal.getsignal(number) for number in numbers] == found
    finally:
        signal.signal(signal.SIGHUP, before)
