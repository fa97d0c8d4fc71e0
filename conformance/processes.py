"""The processes of a run: the everything-server, and the workbench in front of it.

Each is started, waited for until it can be used, and ended as a whole. Nothing here knows the suite.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

# `front end`: over stdio, with a shared workbench and its front end in between.
Transport = Literal["stdio", "http", "front end"]
# `both`: tools that ask are then written in the way of one era each, as people write them.
Era = Literal["legacy", "modern", "both"]

PR_SET_NO_NEW_PRIVS: Final = 38
ROOT: Final = Path(__file__).resolve().parents[1]
# The SDK takes a second to import, several of them at once on a busy machine much longer.
START_TIMEOUT: Final = 60.0
GOODBYE_TIMEOUT: Final = 15.0
MODERN: Final = "2026-07-28"
# What the suite's clients declare, by scenario. A legacy server has one connection for each; over stdio that is one
# process, and the suite gives some calls 0.6 s. So they are all started before its clock runs.
CAPABILITIES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"elicitation": {}},
    {"sampling": {}},
    {"sampling": {}, "elicitation": {}},
    {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}},
)


class Trouble(Exception):
    """A process of ours does not do what it is there for. This is no failed scenario: nothing was tested."""


def everything_command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "conformance.everything_server", *flags]


def _flags(era: Era) -> tuple[str, ...]:
    return ("--era", era, "--ordinary") if era == "both" else ("--era", era)


@contextmanager
def everything_over_http(era: Era, folder: Path) -> Iterator[str]:
    """The everything-server at an address of its own."""
    log = folder / "everything.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            everything_command("--http", "0", *_flags(era)), cwd=ROOT, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            if not url.startswith("http://"):
                raise Trouble(f"the everything-server did not start:\n{log.read_text()[-2000:]}")
            yield url
            if process.poll() is not None:
                raise Trouble(f"the everything-server ended in the middle of the run:\n{log.read_text()[-2000:]}")
        finally:
            _end(process)


def server_entry(transport: Transport, era: Era, url: str = "") -> dict[str, Any]:
    """The everything-server as an entry of `mcpServers`."""
    if transport == "http":
        return {"url": url}
    command, *arguments = everything_command(*_flags(era))
    return {"command": command, "args": arguments, "cwd": str(ROOT)}


def _confine() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


@contextmanager
def behind_front_end(server: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """A shared workbench with this one server; its front end as an entry of `mcpServers`. The suite speaks HTTP, so
    another workbench has to stand before the front end."""
    config = folder / "shared.json"
    config.write_text(json.dumps({"mcpServers": {"everything": server}}))
    ours = [sys.executable, "-m", "mcp_workbench"]
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="wb-") as place:
        variables = {"XDG_RUNTIME_DIR": place, "XDG_STATE_HOME": str(folder)}
        environ = {**os.environ, **variables}
        # The front end is a server of the workbench before it, and servers may not join: where everything runs without
        # new privileges, they cannot be told apart.
        subprocess.run([*ours, "up"], env=environ, check=True, stdout=subprocess.DEVNULL, preexec_fn=_confine)
        try:
            command, *arguments = [*ours, "serve", str(config), "--face", "flat", "--no-prefix", "--no-cache"]
            yield {"command": command, "args": arguments, "env": variables}
            if "joins from" not in (folder / "mcp-workbench" / "shared.log").read_text():
                raise Trouble("no front end has joined the shared workbench")
        finally:
            # Confined as well: it takes what is confined for a server that listens in the workbench's place.
            subprocess.run([*ours, "down"], env=environ, check=True, stdout=subprocess.DEVNULL, preexec_fn=_confine)


@contextmanager
def workbench(server: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The workbench with this one server behind it, at an address of its own."""
    config = folder / "plain.json"
    config.write_text(json.dumps({"mcpServers": {"everything": server}}))
    log = folder / "workbench.log"
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--http", "127.0.0.1:0", "--no-token", str(config)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--face", "flat", "--no-prefix", "--no-cache"], stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            yield _address(process, log)
            if process.poll() is not None:
                raise Trouble(f"the workbench ended in the middle of the run:\n{log.read_text()[-2000:]}")
        finally:
            _end(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the workbench says that it serves."""
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            _, found, url = line.partition("serving MCP at ")
            if found:
                return url.strip()
        time.sleep(0.02)
    raise Trouble(f"the workbench did not start:\n{log.read_text(errors='replace')[-2000:]}")


def check_alive(url: str) -> None:
    """Have the everything-server answer, for clients of every kind. Raises `Trouble` when it does not.

    Checks of the suite may pass where nobody listens; so this is asked before a run and after it.
    """
    for capabilities in CAPABILITIES:
        answer = _call(url, "test_simple_text", capabilities)
        content = answer.get("result", {}).get("content", [{}])
        if "simple text response" not in content[0].get("text", ""):
            raise Trouble(f"the everything-server does not answer: {json.dumps(answer)[:2000]}")


def _call(url: str, tool: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "conformance", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    params = {"name": tool, "arguments": {}, "_meta": meta}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=START_TIMEOUT) as response:
            text = response.read().decode()
    except OSError as error:
        raise Trouble(f"{url} cannot be reached: {error}") from None
    # An exchange may come as a stream of events; the answer is the last one.
    data = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    answer: dict[str, Any] = json.loads(data[-1] if data else text)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GOODBYE_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
