"""`mcp-workbench page`: open the page of a running workbench in the browser."""

from __future__ import annotations

import os
import sys
from typing import Any

from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.engine.config.choose import own_file
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.setup.connecting import ways_to_connect


def run(parsed: Parsed) -> int:
    port = _number(parsed, "port", 65_535) or 0
    pid = _number(parsed, "pid", 1 << 31)
    running = run_loop(running_workbenches())
    named = parsed.value("config")
    # One that ends after a restart has left its page to the next one.
    meant = [each for each in running if (each["pid"] == pid if pid else each.get("serving") != "ending")]
    found = [each for each in meant if named is None or os.path.realpath(named) in _configs(each)]
    if not found:
        which = "no workbench is running" if not running else "no running workbench matches"
        return complain(which, "`mcp-workbench up` starts one for all clients; `mcp-workbench status` shows them")
    chosen = found[0] if len(found) == 1 else _choose(found)
    if chosen is None:
        lines = "; ".join(_described(each) for each in found)
        return complain(f"{len(found)} workbenches are running: {lines}", "choose one with --pid or --config")
    answer = run_loop(_ask(chosen["pid"], port, _ways(chosen)))
    if answer is None or "error" in answer or not isinstance(answer.get("address"), str):
        why = "it does not answer; an earlier version has no page" if answer is None else str(answer.get("error"))
        return complain(
            f"the workbench of process {chosen['pid']} opened no page: {one_line(why)}", status=FAILED_STATUS
        )
    address: str = answer["address"]
    if parsed.has("no-browser") or not _opened(address):
        stdout().line(address)
        remark("note", "the address signs you in once, within a minute")
    else:
        stdout().line(f"opened {address.partition('login')[0]} in the browser")
    return 0


async def _ask(pid: int, port: int, connect: list[dict[str, str | None]]) -> dict[str, Any] | None:
    workbenches = Workbenches()
    try:
        await workbenches.found()
        return await workbenches.ask(pid, {"do": "page", "port": port, "connect": connect})
    finally:
        workbenches.close()


def _opened(address: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _configs(status: dict[str, Any]) -> set[str]:
    """The files that a workbench serves: its own, or those of its clients."""
    named = [status.get("config"), *(each.get("config") for each in status.get("clients", ()))]
    return {os.path.realpath(each) for each in named if each}


def _ways(status: dict[str, Any]) -> list[dict[str, str | None]]:
    # Without clients, the shared workbench has the user's own.
    configs = sorted(_configs(status)) or [each for each in (own_file(),) if each is not None]
    return ways_to_connect(configs[0]) if configs else []


def _described(status: dict[str, Any]) -> str:
    what = "shared" if status.get("serving") == "shared" else status.get("config") or "?"
    return one_line(f"process {status['pid']} ({what})")


def _choose(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    for number, each in enumerate(found, 1):
        print(f"{number}  {_described(each)}", file=sys.stderr)
    print("which one? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    return found[int(answer) - 1] if answer.isdecimal() and 0 < int(answer) <= len(found) else None


def _number(parsed: Parsed, name: str, most: int) -> int | None:
    written = parsed.value(name)
    if written is None:
        return None
    if not (written.isascii() and written.isdecimal()) or not 0 < int(written[:12]) <= most:
        raise UsageError(f"`--{name} {written[:50]}` is not a number from 1 to {most:,}")
    return int(written)
