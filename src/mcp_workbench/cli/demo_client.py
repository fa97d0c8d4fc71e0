"""The client of the demo: starts an MCP server and speaks to it over stdio, one request at a time.

Owns one child process. Blocking on purpose: the demo does one thing after another and needs nothing more. A watchdog
kills a server that does not answer, so that the demo ends too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.errors import WorkbenchError

# Nothing in the demo takes more than a second; a machine that needs this long will not complete it.
DEMO_ANSWER_TIMEOUT: Final = 30.0
EXIT_TIMEOUT: Final = 10.0


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
