"""`mcp-workbench up --reload`: make running workbenches read their configuration again at once."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from typing import Any, Final

from msgspec.json import decode

from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Screen, stdout
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.process_context import runtime_folder
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.engine.socket_peers import peer_pid

# Reading a file takes milliseconds; a disk that does not respond is reported.
RELOAD_TIMEOUT: Final = 10.0
LOOK_EVERY: Final = 0.05


def run(parsed: Parsed) -> int:
    pid = parsed.positional(0)
    if pid is not None and not (pid.isascii() and pid.isdecimal()):
        raise UsageError(f"`{pid}` is not a process id", hint="`mcp-workbench status` shows them")
    screen = stdout()
    found = [status for status in run_loop(running_workbenches()) if pid in (None, str(status["pid"]))]
    # One that ends after a restart reads nothing again.
    alone = [status for status in found if status.get("serving") not in ("shared", "ending")]
    results = [_reload(screen, status) for status in alone]
    if (pid is None or len(alone) < len(found)) and (shared := _reload_shared(screen)) is not None:
        results.append(shared)
    if not results:
        return complain("no workbench is running" if pid is None else f"no workbench is running as process {pid}")
    return 0 if all(results) else FAILED_STATUS


def _reload(screen: Screen, status: dict[str, Any]) -> bool:
    who = f"process {status['pid']}"
    before = status.get("configuration")
    if not isinstance(before, dict):
        # Older versions would exit on SIGHUP.
        screen.line(f"{who}: its version, {status.get('version')}, cannot reload; restart it")
        return False
    try:
        _hang_up(status["pid"])
    except OSError as error:
        screen.line(f"{who}: {error.strerror or error}")
        return False
    # A signal has no reply: the counter of reloads shows that it was handled.
    after = run_loop(_outcome(status["pid"], before["reloads"]))
    if after is None:
        screen.line(f"{who}: has not reloaded within {RELOAD_TIMEOUT:.0f} s")
        return False
    rejected = after["configuration"]["rejected"]
    screen.line(f"{who}: {'not reloaded' if rejected else 'reloaded'}: {after['config']}")
    if rejected:
        screen.line(rejected, indent=2)
    for name in after["configuration"].get("needsRestart", ()):
        screen.line(f"`{name}` has changed: restart the workbench to apply it", indent=2)
    return not rejected


def _hang_up(pid: int) -> None:
    """Send SIGHUP to the workbench with this process id, and to no other process: the id comes from a file, and process
    ids are reused. Raises `OSError`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(RELOAD_TIMEOUT)
        # Kept open until the signal is sent: the process lives as long as it accepts connections.
        connection.connect(os.path.join(runtime_folder(), f"{pid}.sock"))
        if peer_pid(connection) not in (None, pid):
            raise ProcessLookupError(errno.ESRCH, "another process answers in its place")
        os.kill(pid, signal.SIGHUP)


def _reload_shared(screen: Screen) -> bool | None:
    """Whether the shared workbench has valid configurations; None if it is not running."""
    from mcp_workbench.sharing.front.commanding import ask
    from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning
    from mcp_workbench.sharing.front.line_protocol import RELOAD

    try:
        pid, _, rest = ask(RELOAD).partition(" ")
    except NotRunning:
        return None
    except CannotJoin as reason:
        screen.line(f"the shared workbench: {reason}")
        return False
    rejected = decode(rest.encode(), type=list[str])
    screen.line(f"process {pid}, shared: {'not reloaded' if rejected else 'reloaded'}")
    for problem in rejected:
        screen.line(problem, indent=2)
    return not rejected


async def _outcome(pid: int, reloads: int) -> dict[str, Any] | None:
    """Return the workbench's status once it has read its configuration again."""
    try:
        async with asyncio.timeout(RELOAD_TIMEOUT):
            while True:
                for status in await running_workbenches():
                    if status["pid"] == pid and status["configuration"]["reloads"] > reloads:
                        return status
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError:
        return None
