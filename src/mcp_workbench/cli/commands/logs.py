"""`mcp-workbench logs`: show what the shared workbench has logged, and follow it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Final

from mcp_workbench.cli.error_output import FAILED, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.nearest import nearest
from mcp_workbench.engine.observe.rotated_log import OLD
from mcp_workbench.sharing.front.joining import log_path

LAST_LINES: Final = 200
LAST_LINES_BEFORE_FOLLOWING: Final = 20
# The delay until a new line is seen, which only has to suit a person.
FOLLOW_INTERVAL: Final = 0.2
# `[toolbox/server]`, as lines about a server contain it.
_LABEL: Final = re.compile(rb"\[([^\[\]\s]+/[^\[\]\s]+)\]")


def run(parsed: Parsed) -> int:
    default = LAST_LINES_BEFORE_FOLLOWING if parsed.has("follow") else LAST_LINES
    given = parsed.value("lines")
    if given is not None and not given.isdecimal():
        return complain(f"--lines is a number, not `{given}`")
    count = default if given is None else int(given)
    server = parsed.positional(0)
    path = log_path()
    file: BinaryIO | None = None
    try:
        file = _opened(path)
        written = list(_written(path, file))
    except OSError as error:
        return complain(f"`{path}` cannot be read: {error.strerror}", status=FAILED)
    lines = [line for line in written if _is_about(line, server)]
    for line in lines[-count:] if count else ():
        _print(line)
    if not lines:
        about = "" if server is None else f" about `{server}`"
        near = [] if server is None else _similar(server, written)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        remark("note", f"the shared workbench has logged nothing{about} yet{meant}")
    if parsed.has("follow"):
        # Continues where reading ended, so that nothing written in the meantime is lost.
        _follow(path, file, server)
    return 0


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


def _is_about(line: bytes, server: str | None) -> bool:
    """Whether a line is about the server. Lines about a server contain its label; of a traceback, only the first line
    does."""
    return server is None or f"/{server}]".encode() in line or f"[{server}]".encode() in line


def _similar(server: str, written: list[bytes]) -> list[str]:
    """The servers in the log whose names are similar."""
    labels = {label.decode(errors="replace") for line in written for label in _LABEL.findall(line)}
    return nearest(server, {label if "/" in server else label.rpartition("/")[2] for label in labels}, 1)


def _follow(path: str, file: BinaryIO | None, server: str | None) -> None:
    rest = b""
    try:
        while True:
            sys.stdout.flush()
            time.sleep(FOLLOW_INTERVAL)
            if file is not None:
                rest = _print_new(file, rest, server)
            if file is None or _is_another(path, file):
                # It was rotated, or did not exist yet.
                fresh = _opened(path)
                if fresh is not None:
                    if file is not None:
                        # Lines written after our last read and before the rotation. No more will follow.
                        _print_new(file, rest, server)
                        file.close()
                    file, rest = fresh, b""
    finally:
        if file is not None:
            file.close()


def _print_new(file: BinaryIO, rest: bytes, server: str | None) -> bytes:
    """Print the lines written since the last call, which ended with `rest`. Returns the incomplete line at the end."""
    *lines, rest = (rest + file.read()).split(b"\n")
    for line in lines:
        if _is_about(line, server):
            _print(line + b"\n")
    return rest


def _is_another(path: str, file: BinaryIO) -> bool:
    try:
        # As `tail -F`: after a rotation, the name refers to another file.
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return False


def _print(line: bytes) -> None:
    sys.stdout.write(line.decode(errors="replace"))
