"""What is measured: nothing in the middle, the bare forwarder, the workbench, and gateways named by the user.

Owns how each subject is started, how its `echo` tool is addressed, and the files it needs. Refuses to know what is
measured about it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.client import BenchError, Call, StdioCaller
from bench.findings import AUDITED, DIRECT, FORWARDED, FORWARDER, SHARED, WORKBENCH

HERE = Path(__file__).resolve().parent
SERVERS = 10
# Every process that descends from a subject carries this in its environment, wherever it hid in the process tree.
MARK = "BENCH_SUBJECT"

Toolboxes = Mapping[str, Sequence[str]]
Address = Callable[[Mapping[str, object]], tuple[str, Mapping[str, object]]]


class Subject(NamedTuple):
    """A command that speaks MCP over stdio, and how to make it ready for calls to `echo`."""

    name: str
    command: tuple[str, ...]
    connect: Callable[[StdioCaller], Address]
    environment: Mapping[str, str]

    def spawn(self) -> StdioCaller:
        return StdioCaller(self.command, environment=self.environment)


class Connected(NamedTuple):
    """A subject that is running, warm, and knows the way to `echo`."""

    subject: Subject
    caller: StdioCaller
    address: Address

    def call(self, arguments: Mapping[str, object], *, text: str) -> Call:
        name, addressed = self.address(arguments)
        return Call.of(name, addressed, text=text)

    def echo(self, text: str) -> Call:
        return self.call({"text": text}, text=text)

    def sized(self, size: int) -> Call:
        return self.call({"size": size}, text="x" * size)


@contextmanager
def connected(subjects: Sequence[Subject]) -> Iterator[list[Connected]]:
    """All subjects, started and connected, ended afterwards whatever happens."""
    with ExitStack() as stack:
        running: list[Connected] = []
        for subject in subjects:
            caller = stack.enter_context(subject.spawn())
            caller.initialize()
            running.append(Connected(subject, caller, subject.connect(caller)))
        yield running


def echo_command(*, tools: int = 1) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "echo_server.py"), "--tools", str(tools))


class Workshop:
    """Makes subjects; keeps the files they need in one folder that the caller owns and removes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def direct(self) -> Subject:
        return Subject(DIRECT, echo_command(), lambda _: _plain, self._environment())

    def forwarder(self, *, plain: bool = False) -> Subject:
        options = ("--plain",) if plain else ()
        command = (sys.executable, str(HERE / "forwarder.py"), *options, "--", *echo_command())
        return Subject("plain forwarder" if plain else FORWARDER, command, lambda _: _plain, self._environment())

    def workbench(self) -> Subject:
        """Ten servers in one toolbox, all connected; calls go to the first."""
        names = [f"echo{number}" for number in range(SERVERS)]
        return self._workbench({"bench": names}, echo_command())

    def audited(self) -> Subject:
        """The same with every call written to an audit file."""
        names = [f"echo{number}" for number in range(SERVERS)]
        self._made += 1
        audit = {"audit": {"file": str(self._folder / f"audit-{self._made}.jsonl")}}
        return self._workbench({"bench": names}, echo_command(), audit)._replace(name=AUDITED)

    def shared(self) -> Subject:
        """The same through a shared workbench, which somebody else has to start in this environment."""
        alone = self.workbench()
        # Sockets have short paths.
        sockets = tempfile.mkdtemp(prefix="wb-", dir=self._folder)
        state = {"XDG_RUNTIME_DIR": sockets, "XDG_STATE_HOME": str(self._folder / "state")}
        return alone._replace(name=SHARED, environment={**alone.environment, **state})

    def forwarded(self) -> Subject:
        """The same with the bare forwarder where a front end would be."""
        alone = self.workbench()
        command = (sys.executable, str(HERE / "forwarder.py"), "--", *alone.command)
        return alone._replace(name=FORWARDED, command=command)

    def workbench_with_tools(self, count: int) -> Subject:
        """Ten toolboxes of one server each, `count` tools in all: how it grows, not how many processes it has."""
        toolboxes = {f"box{number}": ["echo"] for number in range(SERVERS)}
        return self._workbench(toolboxes, echo_command(tools=count // SERVERS))

    def flat(self, servers: int, tools: int, *, environment: Mapping[str, str] | None = None) -> Subject:
        """A plain file of servers with the same command, shown flat; calls go to the first one, which alone runs."""
        entries = {f"echo{number}": _server(echo_command(tools=tools)) for number in range(servers)}
        path = self._write({"inheritEnv": [MARK], "mcpServers": entries})
        command = (sys.executable, "-m", "mcp_workbench", "serve", "--config", str(path), "--face", "flat")
        name = f"flat, {servers * tools:,} tools"
        return Subject(name, command, _call_flat, environment or self._environment())

    def also(self, description: str) -> Subject:
        """`name=command …`; `{config}` in the command becomes the path of an `mcpServers` file with ten servers."""
        name, separator, line = description.partition("=")
        if not (name and separator and line.strip()):
            raise BenchError(f"`--also {description}`: expected `name=command …`")
        servers = {f"echo{number}": _server(echo_command()) for number in range(SERVERS)}
        config = self._write({"mcpServers": servers})
        command = tuple(word.replace("{config}", str(config)) for word in shlex.split(line))
        return Subject(name.strip(), command, _find_echo, self._environment())

    def _workbench(
        self, toolboxes: Toolboxes, server: Sequence[str], settings: Mapping[str, object] | None = None
    ) -> Subject:
        config = {
            name: {
                "description": f"Echo servers of `{name}`.",
                # Large results are measured whole.
                "mcpServers": {each: {**_server(server), "resultBudget": None} for each in servers},
            }
            for name, servers in toolboxes.items()
        }
        path = self._write({"inheritEnv": [MARK], **(settings or {}), "toolboxes": config})
        command = (sys.executable, "-m", "mcp_workbench", "serve", "--config", str(path))
        return Subject(WORKBENCH, command, lambda caller: open_toolboxes(caller, toolboxes), self._environment())

    def _write(self, config: Mapping[str, object]) -> Path:
        self._made += 1
        path = self._folder / f"config-{self._made}.json"
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
        return path

    def _environment(self) -> dict[str, str]:
        """Ours, with a cache folder of its own: what earlier runs remembered must not help.

        Bytecode may be kept, as for every installed package; else each start would compile ours again.
        """
        self._made += 1
        cache = self._folder / f"cache-{self._made}"
        cache.mkdir()
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**ours, "XDG_CACHE_HOME": str(cache), MARK: f"{os.getpid()}-{self._made}"}


def open_toolboxes(caller: StdioCaller, toolboxes: Toolboxes) -> Address:
    """Opens every toolbox and calls every server once, so that all are connected; addresses the first server."""
    addresses: list[Address] = []
    for toolbox, servers in toolboxes.items():
        opened = caller.request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": toolbox}})
        structured = opened.get("structuredContent") or {}
        if opened.get("isError") or structured.get("unavailable"):
            raise BenchError(f"toolbox `{toolbox}` did not open whole: {json.dumps(opened)[:500]}")
        addresses += [_use_tool(toolbox, server) for server in servers]
    for address in addresses:
        name, arguments = address({"text": "ready"})
        caller.latencies(Call.of(name, arguments, text="ready"), 1)
    return addresses[0]


def _plain(arguments: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    return "echo", arguments


def _use_tool(toolbox: str, server: str) -> Address:
    tool = {"toolbox": toolbox, "server": server, "tool": "echo"}
    return lambda arguments: ("use_tool", {"tool": tool, "arguments": arguments})


def _call_flat(caller: StdioCaller) -> Address:
    """Calls without listing first: that would start every server."""
    caller.latencies(Call.of("echo0:echo", {"text": "ready"}, text="ready"), 1)
    return lambda arguments: ("echo0:echo", arguments)


def _find_echo(caller: StdioCaller) -> Address:
    """The first listed tool that ends in `echo`, whatever a gateway puts before it."""
    tools: list[dict[str, Any]] = caller.request("tools/list", {})["tools"]
    names = [str(tool["name"]) for tool in tools]
    for name in names:
        if name.endswith("echo"):
            return lambda arguments: (name, arguments)
    raise BenchError(f"no tool that ends in `echo` among {names[:20]}")


def _server(command: Sequence[str]) -> dict[str, object]:
    return {"command": command[0], "args": list(command[1:])}
