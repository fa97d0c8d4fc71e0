"""Windows must not be made impossible: what cannot be imported there is named in docs/reference/platforms.md.

Simulated in a process of its own: `sys.platform` is `win32`, and what only POSIX has is gone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "platforms.md"
SIMULATION = """
import asyncio, importlib, json, os, pkgutil, selectors, signal, socket, ssl, subprocess, sys

ABSENT = {"fcntl", "pwd", "grp", "termios", "resource", "pty", "tty", "syslog", "readline"}
FUNCTIONS = {
    os: "fork getuid geteuid getgid getegid killpg setsid getpgid uname posix_spawn fchmod chown pipe2 memfd_create "
    "pidfd_open mkfifo getgroups WNOHANG O_NONBLOCK O_NOFOLLOW O_CLOEXEC O_DIRECTORY",
    socket: "AF_UNIX SO_PEERCRED SCM_RIGHTS",
    signal: "SIGHUP SIGKILL SIGCHLD SIGUSR1 SIGUSR2 SIGSTOP SIGCONT SIGQUIT SIGALRM SIGPIPE setitimer alarm",
}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ImportError(name)

for module, names in FUNCTIONS.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
sys.platform = "win32"
import mcp_workbench

failed = {}
for found in pkgutil.walk_packages(mcp_workbench.__path__, "mcp_workbench."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed[found.name] = repr(error)
print(json.dumps(failed))
"""


def test_what_cannot_be_imported_on_windows_is_documented() -> None:
    done = subprocess.run([sys.executable, "-c", SIMULATION], capture_output=True, text=True, check=True, timeout=120)
    failed: dict[str, str] = json.loads(done.stdout)
    assert set(failed.values()) == {"ImportError('fcntl')"}, failed
    # Those that ask for it themselves; the others fail because they import one of these.
    listed = DOCUMENT.read_text("utf-8").partition("<!-- modules -->")[2].partition("\n\nThese")[0]
    named = re.findall(r"^\| `([\w/.]+)` \|", listed, re.MULTILINE)
    asks = [name for name in named if re.search(r"^import fcntl", _source(name), re.MULTILINE)]
    assert asks == named and {f"mcp_workbench.{name[:-3].replace('/', '.')}" for name in named} <= failed.keys()
    others = [
        path for path in (ROOT / "src" / "mcp_workbench").rglob("*.py") if "\nimport fcntl" in path.read_text("utf-8")
    ]
    assert len(others) == len(named)


@pytest.mark.parametrize(
    "module",
    ["engine.router", "engine.transport.http.server.http_server", "cli.commands.init", "cli.commands.install"],
)
def test_what_users_need_first_is_free_of_posix_when_it_is_imported(module: str) -> None:
    code = SIMULATION.partition("failed = {}")[0] + f"importlib.import_module('mcp_workbench.{module}')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_file_that_the_document_names_exists() -> None:
    for name in re.findall(r"`((?:engine|team|signin|sharing|setup|cli)/[\w/.]*)`", DOCUMENT.read_text("utf-8")):
        assert (ROOT / "src" / "mcp_workbench" / name).exists(), name


def _source(name: str) -> str:
    return (ROOT / "src" / "mcp_workbench" / name).read_text("utf-8")
