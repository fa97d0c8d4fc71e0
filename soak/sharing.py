"""`python -m soak.sharing`: SDK clients of both eras on one shared workbench, in front of published servers.

All clients start at once. Then each calls servers at random, and every answer is compared with what that server must
say, while front ends and the workbench itself are killed. A call may fail only with the workbench that carried it, and
the error says so. Processes and memory are counted with the shared workbench and, for comparison, without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mcp import Client, MCPError, StdioServerParameters
from msgspec import Struct

from tests.support.packages import Unavailable, node_packages, python_packages
from tests.support.processes import descendants

NODE = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
PYTHON = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
MODES = {"legacy": "legacy", "modern": "auto"}
COMMAND = (sys.executable, "-m", "mcp_workbench")
# What a client may be told of a call that was under way when the workbench, or its front end, was killed.
EXCUSED = ("the shared workbench died", "the shared workbench ended", "connection closed", "closed", "serving alone")
WORKBENCH_START_TIMEOUT = 120.0


class Check(NamedTuple):
    """A call, and what its answer must hold."""

    server: str
    tool: str
    arguments: dict[str, Any]
    expected: str


class Outcome(Struct):
    """What came of it."""

    right: int = 0
    wrong: list[str] = []
    excused: int = 0
    front_ends_killed: int = 0
    workbenches_killed: int = 0


class Servers(NamedTuple):
    """Twelve servers of five packages, and what they must answer."""

    toolbox: dict[str, Any]
    checks: list[Check]


def published(folder: Path, node: Path, python: Path) -> Servers:
    """Their programs lie in `node` and `python`."""
    toolbox: dict[str, Any] = {}
    checks: list[Check] = []
    for name in ("everything", "again"):
        toolbox[name] = {"command": str(node / "mcp-server-everything"), "args": ["stdio"]}
        checks.append(Check(name, "echo", {"message": f"hello {name}"}, f"Echo: hello {name}"))
    for name in ("files", "papers"):
        place = folder / name
        place.mkdir()
        toolbox[name] = {"command": str(node / "mcp-server-filesystem"), "args": [str(place)]}
        checks.append(Check(name, "list_allowed_directories", {}, str(place)))
    for name in ("memory", "people"):
        toolbox[name] = {
            "command": str(node / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(folder / f"{name}.json")},
        }
        checks.append(Check(name, "read_graph", {}, "entities"))
    for name, zone in (("vienna", "Europe/Vienna"), ("tokyo", "Asia/Tokyo"), ("lima", "America/Lima")):
        toolbox[name] = {"command": str(python / "mcp-server-time"), "args": [f"--local-timezone={zone}"]}
        checks.append(Check(name, "get_current_time", {"timezone": zone}, zone))
    for name in ("code", "site", "wiki"):
        place = folder / f"{name}-repository"
        subprocess.run(["git", "init", "--quiet", "--initial-branch", name, str(place)], check=True)
        toolbox[name] = {"command": str(python / "mcp-server-git"), "args": ["--repository", str(place)]}
        checks.append(Check(name, "git_status", {"repo_path": str(place)}, f"On branch {name}"))
    return Servers(toolbox, checks)


class Setup:
    """A folder, a configuration and a runtime folder of its own, whose path must be short."""

    def __init__(self, folder: Path, runtime: Path, node: Path, python: Path) -> None:
        self.folder = folder
        self.servers = published(folder, node, python)
        self.config = folder / "workbench-config.json"
        box = {"description": "Published servers.", "mcpServers": self.servers.toolbox}
        self.config.write_text(json.dumps({"toolboxes": {"box": box}}))
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(folder / "state")}

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [*COMMAND, *words], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def status(self) -> dict[str, Any]:
        found = json.loads(self.command("status", "--json"))
        return next((each for each in found if each.get("serving") == "shared"), {})

    @asynccontextmanager
    async def client(self, era: str, *flags: str) -> AsyncIterator[Client]:
        parameters = StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], "serve", "--config", str(self.config), *flags],
            env=self.environment,
            cwd=str(self.folder),
        )
        async with Client(parameters, mode=MODES[era], read_timeout_seconds=60) as client:
            yield client


async def ask(client: Client, check: Check) -> str:
    """The text of the answer."""
    identifier = {"toolbox": "box", "server": check.server, "tool": check.tool}
    result = await client.call_tool("use_tool", {"tool": identifier, "arguments": check.arguments})
    return " ".join(getattr(block, "text", "") for block in result.content)


async def one_client(setup: Setup, era: str, until: Callable[[], bool], outcome: Outcome, ready: asyncio.Event) -> None:
    """Calls until the end; a client whose front end was killed is started again, as its user would."""
    rest = list(setup.servers.checks)
    while True:
        try:
            async with setup.client(era) as client:
                while rest or not until():
                    check = rest.pop() if rest else random.choice(setup.servers.checks)
                    text = await ask(client, check)
                    if check.expected in text:
                        outcome.right += 1
                    elif any(excuse in text for excuse in EXCUSED):
                        outcome.excused += 1
                    else:
                        outcome.wrong.append(f"{check.server}/{check.tool}: {text[:300]}")
                    if not rest:
                        ready.set()
                return
        except (MCPError, ExceptionGroup, OSError) as error:
            if not any(excuse in _told(error).lower() for excuse in EXCUSED):
                outcome.wrong.append(_told(error)[:300])
            outcome.excused += 1
            if until():
                ready.set()
                return


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_told, error.exceptions))
    return str(error) or repr(error)


def memory_of(pids: Iterable[int]) -> int:
    """Bytes that these processes take together: what they share is counted once."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def groups_of(pids: Iterable[int]) -> int:
    """Each server leads a process group."""
    groups = set()
    for pid in pids:
        with suppress(OSError):
            groups.add(os.getpgid(pid))
    return len(groups)


async def private(setup: Setup, clients: int) -> dict[str, Any]:
    """The same without sharing: each client has servers of its own."""

    async def hold(era: str, ready: asyncio.Event, over: asyncio.Event) -> None:
        async with setup.client(era, "--private") as client:
            for check in setup.servers.checks:
                await ask(client, check)
            ready.set()
            await over.wait()

    over, readies = asyncio.Event(), [asyncio.Event() for _ in range(clients)]
    async with asyncio.TaskGroup() as tasks:
        for number, ready in enumerate(readies):
            tasks.create_task(hold(("legacy", "modern")[number % 2], ready, over))
        async with asyncio.timeout(WORKBENCH_START_TIMEOUT * 2):
            for ready in readies:
                await ready.wait()
        below = descendants(os.getpid())
        measured = {"clients": clients, "processes": len(below), "bytes": memory_of(below)}
        over.set()
    return measured


async def shared(setup: Setup, clients: int, seconds: float, kill_pause: float) -> dict[str, Any]:
    """All on one workbench: measured at rest, then under kills."""
    setup.command("up")
    outcome = Outcome()
    end: list[float] = []
    readies = [asyncio.Event() for _ in range(clients)]

    def is_over() -> bool:
        return bool(end) and time.monotonic() > end[0]

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, ready in enumerate(readies):
            tasks.create_task(one_client(setup, ("legacy", "modern")[number % 2], is_over, outcome, ready))
        async with asyncio.timeout(WORKBENCH_START_TIMEOUT):
            for ready in readies:
                await ready.wait()
        took = time.monotonic() - began
        measured = await asyncio.to_thread(_measure, setup)
        end.append(time.monotonic() + seconds)
        while not is_over():
            await asyncio.sleep(random.expovariate(1 / kill_pause) if kill_pause else seconds)
            if kill_pause:
                await asyncio.to_thread(_kill_something, setup, outcome)
    left = await asyncio.to_thread(_measure, setup)
    setup.command("down")
    return {
        "clients": clients,
        "secondsUntilAllHadCalledAll": round(took, 1),
        **measured,
        "right": outcome.right,
        "excused": outcome.excused,
        "wrong": outcome.wrong,
        "frontEndsKilled": outcome.front_ends_killed,
        "workbenchesKilled": outcome.workbenches_killed,
        "serverProcessesAtTheEnd": left["serverProcesses"],
    }


def _measure(setup: Setup) -> dict[str, Any]:
    status = setup.status()
    if not status:
        return {"serverProcesses": 0, "servers": {}, "bytes": 0}
    below = descendants(status["pid"])
    fronts = [pid for pid in descendants(os.getpid()) if pid not in below and pid != status["pid"]]
    ready = [f"{each['server']} ({each['protocol']})" for each in status["servers"] if each["state"] == "ready"]
    return {
        # The guardian is one of them.
        "serverProcesses": groups_of(below) - 1,
        "connections": Counter(ready),
        "bytes": memory_of([status["pid"], *below, *fronts]),
        "workbenchBytes": memory_of([status["pid"]]),
        "frontEndBytes": memory_of(fronts),
    }


def _kill_something(setup: Setup, outcome: Outcome) -> None:
    if random.random() < 0.2:
        status = setup.status()
        if status:
            with suppress(ProcessLookupError):
                os.kill(status["pid"], signal.SIGKILL)
                outcome.workbenches_killed += 1
        return
    fronts = [pid for pid in descendants(os.getpid()) if _is_front_end(pid)]
    if fronts:
        with suppress(ProcessLookupError):
            os.kill(random.choice(fronts), signal.SIGKILL)
            outcome.front_ends_killed += 1


def _is_front_end(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"mcp_workbench" in words and b"serve" in words


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.sharing", description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill-pause", type=float, default=3.0, help="seconds between two kills, about; 0: none")
    parser.add_argument("--private", type=int, default=0, help="also measure so many clients that do not share")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="wb"))
    try:
        node, python = node_packages(NODE) / "node_modules" / ".bin", python_packages(PYTHON)
        setup = Setup(folder, folder / "run", node, python)
        found = {"shared": asyncio.run(shared(setup, given.clients, given.seconds, given.kill_pause))}
        if given.private:
            found["private"] = asyncio.run(private(setup, given.private))
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=2))
    return 1 if found["shared"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
