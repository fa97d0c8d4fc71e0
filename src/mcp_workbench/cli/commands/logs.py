"""`mcp-workbench logs`: show what the shared workbench, or a running `serve`, logs, and follow it.

The shared workbench has a file, which outlives it: following goes on when it is started again. Others log where their
client wants it, so they are asked: what they log from then on, and for as long as somebody asks.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.engine.nearest import nearest
from mcp_workbench.engine.observe.rotated_log import OLD
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.printable import visible
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.sharing.front.joining import log_path

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
# As `engine.observe.log` writes it.
_LINE_HEAD: Final = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
# `[toolbox/server]`, as lines about a server contain it.
_SERVER_LABEL: Final = re.compile(rb"\[([^\[\]\s]+/[^\[\]\s]+)\]")
LAST_LINES: Final = 200
LAST_LINES_BEFORE_FOLLOWING: Final = 20
# The delay until a new line is seen, which only has to suit a person.
FOLLOW_INTERVAL: Final = 0.2
# How often a workbench that has ended is looked for.
FIND_INTERVAL: Final = 1.0


def run(parsed: Parsed) -> int:
    default = LAST_LINES_BEFORE_FOLLOWING if parsed.has("follow") else LAST_LINES
    given = parsed.value("lines")
    if given is not None and not given.isdecimal():
        return complain(f"--lines is a number, not `{given}`")
    level = parsed.value("level")
    if level is not None and level.lower() not in LOG_LEVELS:
        return complain(f"--level is one of {', '.join(LOG_LEVELS)}, not `{level}`")
    lines = LineFilter(parsed.positional(0), None if level is None else level.lower())
    if parsed.has("pid"):
        return _run_of_process(parsed, lines)
    count = default if given is None else int(given)
    path = log_path()
    file: BinaryIO | None = None
    try:
        file = _opened(path)
        written = list(_written(path, file))
    except OSError as error:
        return complain(f"`{path}` cannot be read: {error.strerror}", status=FAILED_STATUS)
    meant = [line for line in written if lines.takes(line)]
    for line in meant[-count:] if count else ():
        _print(line)
    if not meant:
        _say_nothing_logged(parsed.positional(0), written, level)
    if parsed.has("follow"):
        # Continues where reading ended, so that nothing written in the meantime is lost.
        _follow(path, file, lines)
    elif file is not None:
        file.close()
    return 0


def _say_nothing_logged(server: str | None, written: list[bytes], level: str | None) -> None:
    what = "nothing" if level is None else f"nothing of level {level.lower()} or worse"
    about = "" if server is None else f" about `{server}`"
    near = [] if server is None else similar_servers(server, written)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    remark("note", f"the shared workbench has logged {what}{about} yet{meant}")


# ── a workbench without a file ──


def _run_of_process(parsed: Parsed, lines: LineFilter) -> int:
    given = parsed.value("pid") or ""
    if not parsed.has("follow"):
        return complain("--pid is for --follow: other workbenches log where their clients want it", "add --follow")
    found = [each for each in run_loop(running_workbenches()) if str(each["pid"]) == given]
    if not found:
        return complain(f"no workbench is running as process {given}", "`mcp-workbench status` shows them")
    return run_loop(_follow_process(found[0], lines))


async def _follow_process(status: dict[str, Any], lines: LineFilter) -> int:
    """Follow a workbench, and after its end the next one with its configuration."""
    workbenches, pid, seen = Workbenches(), int(status["pid"]), None
    try:
        await workbenches.found()
        while True:
            answer = await workbenches.ask(pid, {"do": "lines", "after": seen})
            if answer is None:
                remark("note", f"process {pid} has ended; waiting for another one of `{status['config']}`")
                pid, seen = await _next_of(status, workbenches), None
                continue
            if seen is None:
                remark("note", f"following process {pid}")
            if answer["lost"]:
                remark("note", f"{answer['lost']} lines were lost")
            for line in "".join(f"{line}\n" for line in answer["lines"]).encode().splitlines(keepends=True):
                if lines.takes(line):
                    _print(line)
            sys.stdout.flush()
            seen = answer["next"]
            await asyncio.sleep(FOLLOW_INTERVAL)
    finally:
        workbenches.close()


async def _next_of(status: dict[str, Any], workbenches: Workbenches) -> int:
    while True:
        await asyncio.sleep(FIND_INTERVAL)
        for each in await running_workbenches():
            if (each["config"], each.get("serving")) == (status["config"], status.get("serving")):
                await workbenches.found()
                return int(each["pid"])


# ── the file of the shared workbench ──


def _opened(path: str) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None


def _written(path: str, file: BinaryIO | None) -> Iterator[bytes]:
    """Return all lines written so far, oldest first. `file` is the file at `path`."""
    # A log that has just been rotated is nearly empty; its lines are in the previous one.
    if (old := _opened(path + OLD)) is not None:
        with old:
            yield from old
    if file is not None:
        while line := file.readline():
            if not line.endswith(b"\n"):
                # An incomplete line: following begins at its start.
                file.seek(-len(line), os.SEEK_CUR)
                return
            yield line


def _follow(path: str, file: BinaryIO | None, lines: LineFilter) -> None:
    rest = b""
    try:
        while True:
            sys.stdout.flush()
            time.sleep(FOLLOW_INTERVAL)
            if file is not None:
                rest = _print_new(file, rest, lines)
            if file is None or _is_another(path, file):
                # It was rotated, or did not exist yet.
                fresh = _opened(path)
                if fresh is not None:
                    if file is not None:
                        # Lines written after our last read and before the rotation. No more will follow.
                        _print_new(file, rest, lines)
                        file.close()
                    file, rest = fresh, b""
    finally:
        if file is not None:
            file.close()


def _print_new(file: BinaryIO, rest: bytes, meant: LineFilter) -> bytes:
    """Print the lines written since the last call, which ended with `rest`. Returns the incomplete line at the end."""
    *lines, rest = (rest + file.read()).split(b"\n")
    for line in lines:
        if meant.takes(line):
            _print(line + b"\n")
    return rest


def _is_another(path: str, file: BinaryIO) -> bool:
    try:
        # As `tail -F`: after a rotation, the name refers to another file.
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return False


def _print(line: bytes) -> None:
    # What servers write may hold more than text.
    sys.stdout.write(visible(line.decode(errors="replace")))


class LineFilter:
    """Lines of a traceback or a longer message belong to the line that they follow."""

    def __init__(self, server: str | None, level: str | None) -> None:
        self._labels = None if server is None else (f"/{server}]".encode(), f"[{server}]".encode())
        self._least = 0 if level is None else LOG_LEVELS.index(level)
        self._takes = server is None and level is None

    def takes(self, line: bytes) -> bool:
        level = _level_of(line)
        if level is not None:
            # What is worse than an error is one, too.
            rank = LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
            is_meant = self._labels is None or any(label in line for label in self._labels)
            self._takes = rank >= self._least and is_meant
        return self._takes


def _level_of(line: bytes) -> str | None:
    """The level of a line that begins an entry, as text or as JSON; None of one that continues it."""
    head = _LINE_HEAD.match(line)
    if head is not None:
        return head[1].decode().lower()
    if not line.startswith(b'{"time"'):
        return None
    try:
        found: Any = decode(line)
    except DecodeError:
        return None
    return str(found.get("level", ""))


def similar_servers(server: str, written: Iterable[bytes]) -> list[str]:
    """The servers in the log whose names are similar, if it has none of this name."""
    labels = {label.decode(errors="replace") for line in written for label in _SERVER_LABEL.findall(line)}
    names = {label if "/" in server else label.rpartition("/")[2] for label in labels}
    return [] if server in names else nearest(server, names, 1)
