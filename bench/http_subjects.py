"""What is measured over HTTP: the echo server itself, the bare forwarder before it, and the workbench with ten servers.

Owns how each is started, ended, and made ready. The workbench shows its servers flat, so that a call is the same
`tools/call` as without it but for the name. Refuses to know what is measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from bench.client import EXIT_DEADLINE, STDERR_LINES, BenchError, Call, Caller, StdioCaller
from bench.findings import DIRECT, FORWARDER, WORKBENCH
from bench.http_client import HttpCaller
from bench.subjects import MARK, SERVERS, echo_command

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(r"http://\S+")
# Starting takes well under a second; a busy machine may need many.
START_DEADLINE = 30.0
START_INTERVAL = 0.01
LEGACY_CLIENT = "workbench, legacy client"

Downstream = Literal["stdio", "http"]

KEY_NAME = "alice"
# All have to be looked at, and the third applies to the calls.
POLICY: list[dict[str, object]] = [
    {"who": ["bob", "ci-*"], "tools": ["*/*/status"], "then": "hide"},
    {"who": ["alice"], "tools": ["*/*/drop*", "*/other/*"], "then": "deny"},
    {"who": ["a*"], "tools": ["*/*/echo"], "then": "allow"},
    {"then": "deny"},
]


class Reached(NamedTuple):
    """A connection that is ready, under the name that the report gives it, and its `echo` tool."""

    name: str
    caller: Caller
    tool: str

    def echo(self, text: str) -> Call:
        return Call.of(self.tool, {"text": text}, text=text)


class Listener:
    """A command that serves HTTP and says where on stderr."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], start_deadline: float = START_DEADLINE
    ) -> None:
        self._command = list(command)
        self._start_deadline = start_deadline
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env=dict(environment), stdin=subprocess.DEVNULL, stderr=self._stderr
        )
        try:
            self.url = self._address()
        except BenchError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(EXIT_DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _address(self) -> str:
        deadline = time.monotonic() + self._start_deadline
        while time.monotonic() < deadline:
            said = self._said()
            # With its line end, else a part of the address might be taken for all of it.
            if (found := ADDRESS.search(said)) and "\n" in said[found.end() :]:
                return found[0]
            if self._process.poll() is not None:
                break
            time.sleep(START_INTERVAL)
        lines = self._said().splitlines()[-STDERR_LINES:]
        raise BenchError("\n".join([f"`{' '.join(self._command)}` did not begin to serve", *lines]))

    def _said(self) -> str:
        """Without moving the place in the file: the process writes at the same one."""
        number = self._stderr.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")


class HttpWorkshop:
    """Starts listeners; everything it has started ends with the stack that the caller owns."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def echo(self) -> Listener:
        return self._listener(("-m", "bench.http_echo_server"))

    def forwarder(self, echo: Listener | None) -> Listener:
        target = ("--stdio", *echo_command()) if echo is None else ("--http", echo.url)
        return self._listener(("-m", "bench.http_forwarder", *target))

    def workbench(self, echo: Listener | None) -> Listener:
        """Ten servers: processes of their own without `echo`, else ten addresses of that one."""
        config = Path(tempfile.mkdtemp(prefix="http-config-", dir=self._folder)) / "config.json"
        servers = {f"echo{number}": _entry(number, echo) for number in range(SERVERS)}
        config.write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
        command = ("-m", "mcp_workbench", "serve", "--http", "127.0.0.1:0", "--no-token", "--face", "flat", str(config))
        listener = self._listener(command)
        with HttpCaller(listener.url) as caller:
            for name in servers:
                caller.latencies(Call.of(f"{name}:echo", {"text": "ready"}, text="ready"), 1)
        return listener

    def guarded(self) -> tuple[Listener, str]:
        """The same with an audit and three rules, for the holder of the token that it returns."""
        folder = Path(tempfile.mkdtemp(prefix="http-guarded-", dir=self._folder))
        own = {**self._environment(), "XDG_STATE_HOME": str(folder)}
        config = folder / "config.json"
        servers = {f"echo{number}": _entry(number, None) for number in range(SERVERS)}
        settings = {"audit": {"file": str(folder / "audit.jsonl")}, "policy": POLICY}
        config.write_text(json.dumps({"mcpServers": servers, **settings}, indent=2), encoding="utf-8")
        token = make_key(own)
        command = (sys.executable, "-m", "mcp_workbench", "serve", "--http", "127.0.0.1:0", "--face", "flat")
        listener = self._stack.enter_context(Listener((*command, str(config)), own))
        with HttpCaller(listener.url, token=token) as caller:
            for name in servers:
                caller.latencies(Call.of(f"{name}:echo", {"text": "ready"}, text="ready"), 1)
        return listener, token

    def reach(self, name: str, url: str, tool: str = "echo", *, modern: bool = True, token: str = "") -> Reached:
        caller = HttpCaller(url, modern=modern, token=token)
        self._stack.callback(caller.close)
        if not modern:
            caller.initialize()
        return Reached(name, caller, tool)

    def reach_stdio(self, name: str) -> Reached:
        caller = self._stack.enter_context(StdioCaller(echo_command(), environment=self._environment()))
        caller.initialize()
        return Reached(name, caller, "echo")

    def _listener(self, arguments: Sequence[str]) -> Listener:
        return self._stack.enter_context(Listener((sys.executable, *arguments), self._environment()))

    def _environment(self) -> dict[str, str]:
        """Ours, with a cache folder of its own: what earlier runs remembered must not help."""
        cache = tempfile.mkdtemp(prefix="http-cache-", dir=self._folder)
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**ours, "XDG_CACHE_HOME": cache, MARK: cache}


@contextmanager
def reached(folder: Path, downstream: Downstream) -> Iterator[list[Reached]]:
    """Everything that is compared for one kind of server, running and warm."""
    with ExitStack() as stack:
        workshop = HttpWorkshop(folder, stack)
        echo = workshop.echo() if downstream == "http" else None
        forwarder = workshop.forwarder(echo)
        workbench = workshop.workbench(echo)
        yield [
            workshop.reach(DIRECT, echo.url) if echo else workshop.reach_stdio(DIRECT),
            workshop.reach(FORWARDER, forwarder.url),
            workshop.reach(WORKBENCH, workbench.url, "echo0:echo"),
            workshop.reach(LEGACY_CLIENT, workbench.url, "echo0:echo", modern=False),
        ]


def in_rounds(running: Sequence[Reached], rounds: int, measure: Callable[[Reached], float]) -> dict[str, list[float]]:
    """One sample of each a round, the order reversed every other round."""
    samples: dict[str, list[float]] = {each.name: [] for each in running}
    for number in range(rounds):
        for each in running if number % 2 == 0 else reversed(running):
            samples[each.name].append(measure(each))
    return samples


def make_key(environment: Mapping[str, str]) -> str:
    """The token of a new key, in the folder of keys that this environment names."""
    command = [sys.executable, "-m", "mcp_workbench", "key", "create", KEY_NAME]
    made = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    if made.returncode:
        raise BenchError(f"no key could be made: {made.stderr[-500:]}")
    return made.stdout.split()[-1]


def _entry(number: int, echo: Listener | None) -> dict[str, object]:
    if echo is not None:
        return {"url": f"{echo.url}/{number}"}
    program, *arguments = echo_command()
    return {"command": program, "args": arguments}
