"""`mcp-workbench demo`: a walkthrough of a short session, with servers that ship with the package.

Owns the walkthrough. It starts `mcp-workbench serve` as any client does and speaks MCP to it; every figure is measured
while it runs. `mcp-workbench demo SERVER` runs one of those servers, for a user's first configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.engine.nearest import nearest
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.errors import WorkbenchError

DEMO_SERVERS: Final = ("notes", "clock")
TIMED_CALLS: Final = 200
# Alternating, so that other load on the machine affects both measurements.
ROUNDS: Final = 5

DEMO_TOOLBOXES: Final[dict[str, tuple[str, dict[str, list[str]]]]] = {
    "desk": ("Notes and the clock: the everyday things", {"notes": ["--with-samples"], "clock": []}),
    "lab": ("Notes of its own, and a clock that crashes on request", {"notes": [], "clock": ["--with-crash"]}),
}
# Nothing in the demo takes more than a second; a machine that needs this long will not complete it.
DEMO_ANSWER_TIMEOUT: Final = 30.0
EXIT_TIMEOUT: Final = 10.0


# The client of the demo: starts an MCP server and speaks to it over stdio, one request at a time.
# Owns one child process. Blocking on purpose: the demo does one thing after another and needs nothing more. A
# watchdog kills a server that does not answer, so that the demo ends too.
class DemoFailed(WorkbenchError):
    """The demo cannot continue."""


class DemoClient:
    """A connection to one server. Use as a context manager."""

    def __init__(self, command: Sequence[str], folder: Path, log: IO[bytes]) -> None:
        # Runtime files of programs go into the folder that the demo removes.
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
        # Reads block, and `readline` has no timeout.
        self._watchdog = threading.Timer(DEMO_ANSWER_TIMEOUT, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._last_id = 0
        # Duration of the last request in seconds; for the first, since the process was started.
        self.seconds = 0.0

    def __enter__(self) -> DemoClient:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            self._watchdog.cancel()

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, method: str, params: object = None) -> Any:
        """Send a request, and wait for its result."""
        self._last_id += 1
        began = self._started if self._last_id == 1 else time.perf_counter()
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        while True:
            message = self._receive()
            # Notifications may come in between.
            if message.get("id") == self._last_id and "method" not in message:
                break
        self.seconds = time.perf_counter() - began
        if "error" in message:
            raise DemoFailed(f"`{method}` was answered with an error: {message['error']}")
        return message["result"]

    def initialize(self) -> Any:
        info = {"name": "mcp-workbench demo", "version": "1"}
        result = self.request(
            "initialize", {"protocolVersion": newest("legacy").name, "capabilities": {}, "clientInfo": info}
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def call(self, name: str, arguments: object) -> Any:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def use_tool(self, toolbox: str, server: str, tool: str, arguments: object) -> Any:
        identifier = {"toolbox": toolbox, "server": server, "tool": tool}
        return self.call("use_tool", {"tool": identifier, "arguments": arguments})

    def close(self) -> int:
        """Close the server's stdin and wait for its exit. Returns the exit status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            # Closing stdin is how MCP over stdio ends a connection.
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            return self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._process.stdout.close()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DemoFailed("the server ended before it was asked") from None

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DemoFailed("the server ended, or did not answer in time")
        message: dict[str, Any] = json.loads(line)
        return message


def demo_servers_below(pid: int) -> list[int] | None:
    """Return the demo's servers that this process has started; None if the system does not reveal that."""
    try:
        if sys.platform.startswith("linux"):
            # Needs `CONFIG_PROC_CHILDREN`, which distributions enable; without it nothing is claimed.
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                return [int(child) for child in file.read().split() if "mcp_workbench.cli.demo" in _command_line(child)]
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,command="], capture_output=True, text=True, timeout=EXIT_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    processes = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [int(one[0]) for one in processes if one[1] == str(pid) and "mcp_workbench.cli.demo" in one[-1]]


def _command_line(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def still_running(pids: Sequence[int]) -> int:
    count = 0
    for pid in pids:
        try:
            os.kill(pid, 0)
            count += 1
        except OSError:
            continue
    return count


def run(parsed: Parsed) -> int:
    if parsed.positionals:
        return _be_server(parsed.positionals[0], parsed.positionals[1:])
    # SIGTERM exits like Ctrl-C, so that the temporary folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="mcp-workbench-demo-") as folder:
        log = Path(folder) / "serve.log"
        try:
            Walkthrough(stdout(), Path(folder)).run()
        except DemoFailed as error:
            last_lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
            return complain("\n".join([error.message, *last_lines]), "please report this", status=FAILED_STATUS)
    return 0


def _be_server(name: str, arguments: list[str]) -> int:
    if name not in DEMO_SERVERS:
        near = nearest(name, DEMO_SERVERS) or DEMO_SERVERS
        raise UsageError(f"there is no demo server `{name}`; available: {', '.join(f'`{one}`' for one in near)}")
    import runpy

    sys.argv[1:] = arguments
    # As `python -m` does, so that the server gets its own arguments and none of our imports run before it.
    runpy.run_module(f"mcp_workbench.cli.demo.{name}", run_name="__main__", alter_sys=True)
    return 0


def server_command(server: str, arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", f"mcp_workbench.cli.demo.{server}", *arguments]


class Walkthrough:
    def __init__(self, screen: Screen, folder: Path) -> None:
        self._screen = screen
        self._folder = folder
        self._part = 0
        self._log = (folder / "serve.log").open("wb")
        self._config = folder / "workbench-config.json"

    def run(self) -> None:
        began = time.monotonic()
        with self._log:
            self._screen.line(("MCP Workbench: one MCP server in front of many.", "strong"))
            self._screen.line("A client, a workbench and four real servers, in a temporary folder.")
            self._configure()
            # `--no-cache`, so that the user's cache is not touched and servers really start.
            program = [sys.executable, "-m", "mcp_workbench", "serve", "--no-cache", "--config", str(self._config)]
            with DemoClient(program, self._folder, self._log) as client:
                definitions = self._connect(client)
                opened = self._open(client)
                self._use(client)
                self._isolation(client)
                self._crash(client)
                direct, through = self._timed(client)
                self._end(client)
            self._figures(definitions, opened, direct, through)
        self._next_steps(time.monotonic() - began)

    # ── the parts of the demo, in order ──

    def _configure(self) -> None:
        self._heading("One file groups your servers into toolboxes")
        toolboxes: dict[str, Any] = {}
        rows: list[list[Part]] = []
        for name, (description, servers) in DEMO_TOOLBOXES.items():
            entries: dict[str, Any] = {}
            for server, arguments in servers.items():
                command, *rest = server_command(server, arguments)
                entries[server] = {"command": command, "args": rest, "cwd": str(self._folder)}
            toolboxes[name] = {"description": description, "mcpServers": entries}
            rows.append([(name, "name"), ", ".join(servers), (description, "dim")])
        # If the package is found through `PYTHONPATH`, so are its servers.
        written = {"inheritEnv": ["PYTHONPATH"], "toolboxes": toolboxes}
        self._config.write_text(json.dumps(written, indent=2))
        self._screen.table(["", "", ""], rows, indent=3)

    def _connect(self, client: DemoClient) -> int:
        self._heading("A client connects and sees two tools")
        welcome = client.initialize()
        running = demo_servers_below(client.pid)
        started = "" if running is None else f"; 4 servers configured, {_few(len(running))} running"
        self._request("initialize", f"ready {_ms(client.seconds)} after the start{started}", None)
        tools = client.request("tools/list")["tools"]
        self._request("tools/list", ", ".join(tool["name"] for tool in tools), client.seconds)
        return _size(tools) + _size(welcome["instructions"])

    def _open(self, client: DemoClient) -> int:
        self._heading("The agent opens a toolbox; its servers start in parallel")
        result = client.call("open_toolbox", {"toolbox_name": "desk"})
        content = result["structuredContent"]
        tools: list[dict[str, Any]] = content["tools"]
        servers = sorted({tool["source_server"] for tool in tools})
        self._request("open_toolbox desk", f"{len(tools)} tools of {' and '.join(servers)}", client.seconds)
        self._answer(", ".join(tool["name"] for tool in tools))
        return _size(content)

    def _use(self, client: DemoClient) -> None:
        self._heading("The agent uses tools; results pass through unchanged")
        self._tool(client, "desk", "clock", "now", {"zone": "UTC"})
        self._tool(client, "desk", "notes", "add_note", {"title": "Train", "text": "at nine"})

    def _isolation(self, client: DemoClient) -> None:
        self._heading("The same server in two toolboxes: two processes that share nothing")
        self._tool(client, "desk", "notes", "search_notes", {"query": "train"})
        self._tool(client, "lab", "notes", "search_notes", {"query": "train"}, "started only now, when it is needed")

    def _crash(self, client: DemoClient) -> None:
        self._heading("A server crashes; its call fails at once, the others are unaffected")
        self._tool(client, "lab", "clock", "crash", {}, fails=True)
        self._tool(client, "lab", "notes", "list_notes", {}, "the server next to it is unaffected")
        self._tool(client, "lab", "clock", "now", {"zone": "UTC"}, "restarted for this call")

    def _end(self, client: DemoClient) -> None:
        self._heading("The client disconnects, and every process stops")
        running = demo_servers_below(client.pid)
        began = time.perf_counter()
        status = client.close()
        took = time.perf_counter() - began
        left = "" if running is None else f"; {len(running)} servers ran, {_few(still_running(running))} left"
        self._request("close stdin", f"exit status {status}{left}", took)

    def _timed(self, client: DemoClient) -> tuple[float, float]:
        """Return the median time of a call to the clock, directly and through the workbench, alternating."""
        taken: tuple[list[float], list[float]] = [], []
        # Compared with the server itself, in the same minute on the same machine: any other figure would mean nothing.
        with DemoClient(server_command("clock", []), self._folder, self._log) as direct:
            direct.initialize()
            for _ in range(ROUNDS):
                for _ in range(TIMED_CALLS // ROUNDS):
                    direct.call("now", {})
                    taken[0].append(direct.seconds)
                for _ in range(TIMED_CALLS // ROUNDS):
                    client.use_tool("desk", "clock", "now", {})
                    taken[1].append(client.seconds)
        return statistics.median(taken[0]), statistics.median(taken[1])

    def _figures(self, definitions: int, opened: int, direct: float, through: float) -> None:
        flat = self._without_workbench()
        size, tools = sum(map(_size, flat)), sum(map(len, flat))
        self._screen.blank()
        self._screen.line(("Measured during this run", "strong"))
        rows: list[list[Part]] = [
            ["tools that the agent sees", f"{tools}", ("2", "good")],
            ["tokens for them (bytes / 4)", f"{size // 4:,}", (f"{definitions // 4:,}", "good")],
            ["  with `desk` open", "", f"{(definitions + opened) // 4:,}"],
            ["servers running at the start", f"{len(flat)}", ("0", "good")],
            [f"a call, median of {TIMED_CALLS}", _ms(direct), _ms(through)],
        ]
        self._screen.table(["", "without", "with the workbench"], rows, indent=3)
        self._screen.line(("Another server adds all its tools on the left, its name on the right.", "dim"), indent=3)

    def _without_workbench(self) -> list[list[Any]]:
        """Return the tools of each server as a client without a workbench gets them."""
        found = []
        for _, servers in DEMO_TOOLBOXES.values():
            for server, arguments in servers.items():
                with DemoClient(server_command(server, arguments), self._folder, self._log) as client:
                    client.initialize()
                    found.append(client.request("tools/list")["tools"])
        return found

    def _next_steps(self, seconds: float) -> None:
        self._screen.blank()
        self._screen.line(("Use it with your own servers", "strong"))
        for command, what in (
            ("mcp-workbench init", "creates a configuration from the servers that your clients have"),
            ("mcp-workbench install CLIENT", "adds the workbench to a client, such as claude-code"),
            ("mcp-workbench install CLIENT --print", "prints what to enter by hand instead"),
        ):
            self._screen.line((command, "code"), f"  {what}", indent=3)
        own = os.path.join(os.path.dirname(sys.executable), "mcp-workbench")
        # As after `make demo`.
        if shutil.which("mcp-workbench") is None and os.path.exists(own):
            self._screen.line("mcp-workbench is not on your PATH yet; here it is ", (own, "code"), indent=3)
        self._screen.blank()
        self._screen.line((f"This took {seconds:.1f} s. mcp-workbench --help shows the other commands.", "dim"))

    # lines

    def _heading(self, text: str) -> None:
        self._part += 1
        self._screen.blank()
        self._screen.line((f"{self._part}. {text}", "strong"))

    def _request(self, what: str, result: str, seconds: float | None) -> None:
        took = "" if seconds is None else f"  {_ms(seconds)}"
        shown = f"  {result}" if result else ""
        self._screen.line(("→ ", "dim"), (what, "name"), shown, (took, "dim"), indent=3)

    def _answer(self, text: str, *, bad: bool = False) -> None:
        self._screen.line((text, "bad" if bad else "plain"), indent=5)

    def _tool(
        self,
        client: DemoClient,
        toolbox: str,
        server: str,
        tool: str,
        arguments: Any,
        why: str = "",
        fails: bool = False,
    ) -> None:
        result = client.use_tool(toolbox, server, tool, arguments)
        if bool(result.get("isError")) is not fails:
            raise DemoFailed(f"{toolbox}/{server}/{tool} answered {result}")
        given = json.dumps(arguments) if arguments else ""
        self._request(f"use_tool {toolbox}/{server}/{tool}", given, client.seconds)
        text: str = result["content"][0]["text"]
        self._answer(text, bad=fails)
        if why:
            self._screen.line((f"({why})", "dim"), indent=5)


def _few(count: int) -> str:
    return str(count) if count else "none"


def _size(value: object) -> int:
    """Return the size in bytes on the wire."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"
