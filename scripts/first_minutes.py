"""A newcomer's first minutes: clone, install, `init`, `install` into three clients, and a first call from each.

`make first-minutes` prints what each step takes. Dependencies are those of this environment: fetching them takes as
long as the network does. A test fails if what has to be typed grows, or the seconds do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# For each step; the slowest took 4 s on two busy cores.
STEP_TIMEOUT = 120.0
# The files of three clients, each with the servers that it has before.
CLIENTS = {"cursor": ".cursor/mcp.json", "kiro": ".kiro/settings/mcp.json", "gemini": ".gemini/settings.json"}


class Step(NamedTuple):
    """What is typed, without the Enter behind it, and how long it took. Of what a client does, nothing is typed."""

    name: str
    typed: str
    seconds: float
    said: str


def walk(folder: Path) -> Iterator[Step]:
    """Yield each step once it has been taken. Raises `CalledProcessError` for one that fails."""
    home, clone, venv = folder / "home", folder / "mcp-workbench", folder / "venv"
    command = venv / "bin" / "mcp-workbench"
    for number, path in enumerate(CLIENTS.values()):
        (home / path).parent.mkdir(parents=True)
        name, arguments = (("clock", ["clock"]), ("notes", ["notes"]), ("diary", ["notes", "diary.json"]))[number]
        server = {"command": str(command), "args": ["demo", *arguments]}
        (home / path).write_text(json.dumps({"mcpServers": {name: server}}))
    environ = {"HOME": str(home), "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}

    def step(name: str, words: list[str], typed: str, given: str = "", within: Path = folder) -> Step:
        began = time.monotonic()
        done = subprocess.run(
            words,
            input=given,
            cwd=within,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=STEP_TIMEOUT,
        )
        return Step(name, typed, time.monotonic() - began, done.stdout)

    yield step("clone", ["git", "clone", "--quiet", str(ROOT), str(clone)], "git clone URL")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=STEP_TIMEOUT)
    (packages,) = venv.glob("lib/python*/site-packages")
    # Ahead of ours, the clone; the dependencies behind it.
    (packages / "clone.pth").write_text(f"{clone / 'src'}\n{sysconfig.get_path('purelib')}\n")
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--ignore-installed", "--editable"]
    yield step("install", [*install, *options, str(clone)], "uv tool install .")
    yield step("init", [str(command), "init", "--yes"], "mcp-workbench init --yes")
    for client in CLIENTS:
        yield step(
            f"install {client}",
            [str(command), "install", client, "--replace"],
            f"mcp-workbench install {client} --replace",
        )
    for client, path in CLIENTS.items():
        (entry,) = json.loads((home / path).read_text())["mcpServers"].values()
        yield step(f"call from {client}", [entry["command"], *entry["args"]], "", _first_call(client), home)


def _first_call(client: str) -> str:
    """What a client sends until it has its first result."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
    call = {"toolbox": "desk", "server": "clock", "tool": "now", "arguments": {"zone": "UTC"}}
    sent: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "use_tool", "arguments": call}},
    ]
    return "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in sent)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wb-first-", ignore_cleanup_errors=True) as folder:
        total = 0.0
        for step in walk(Path(folder)):
            total += step.seconds
            print(f"{step.seconds:6.2f} s  {step.name}", flush=True)
    print(f"{total:6.2f} s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
