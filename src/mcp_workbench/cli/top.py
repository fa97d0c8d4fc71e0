"""`mcp-workbench top`: a live view of what runs, with keys to stop and restart servers and to look into their logs.

Owns the connections to workbenches and the terminal while it shows; what is drawn is `top_view`. In a pipe there is one
picture, of a second. Workbenches measure calls only while this is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any, Final

from msgspec.json import decode, encode

from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.cli.process_memory import memory_of
from mcp_workbench.cli.top_view import ServerRow, log_picture, picture, rows_of
from mcp_workbench.observe.status_socket import WATCH_SUFFIX
from mcp_workbench.run import run as run_loop
from mcp_workbench.runtime_folder import runtime_folder

LOOK_SECONDS: Final = 1.0
# A workbench on the same machine answers in milliseconds; ending a server takes up to ten seconds.
ANSWER_SECONDS: Final = 15.0
# What an answer with hundreds of servers takes, many times over.
LARGEST_ANSWER: Final = 8 * 1024 * 1024
_PIPE_WIDTH: Final = 100
_KEYS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"k": "up", b"j": "down", b"\r": "l", b"\n": "l", b"\x1b": "q"}
_A_KEY: Final = re.compile(rb"\x1b\[[A-Z]|.", re.DOTALL)

ABOUT = """
Shows what your running workbenches are doing, updated every second: toolboxes and servers with their state, memory,
calls in flight, calls per second, the 50th and 95th percentile of how long calls take, errors, and the last calls.
Figures cover the time since top was started; nothing is measured while it is not running.

Keys: up and down choose a server, l shows its log, s stops it (the next call starts it again), r restarts it, q quits.
In a pipe, it prints one snapshot, taken over one second.
"""


def run(parsed: Parsed) -> int:
    """Show it until the user quits."""
    if sys.stdout.isatty() and sys.stdin.isatty():
        with _raw_terminal():
            run_loop(_Live().show())
        return 0
    for line in run_loop(_one_picture()):
        print(line)
    return 0


COMMAND = Command("top", ABOUT, (), run, takes=0)


class Workbenches:
    """Connections to all that are running, by process."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def look(self) -> list[dict[str, Any]]:
        """What each says now; those that have come since are among them."""
        await self._find()
        looks = []
        for pid in sorted(self._open):
            answer = await self.ask(pid, {"do": "look"})
            if answer is not None:
                looks.append(answer)
        return looks

    async def ask(self, pid: int, request: dict[str, str]) -> dict[str, Any] | None:
        """The answer; None of one that is gone."""
        if pid not in self._open:
            return None
        reader, writer = self._open[pid]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                writer.write(encode(request) + b"\n")
                await writer.drain()
                line = await reader.readline()
            if line:
                answer: dict[str, Any] = decode(line)
                return answer
        except (OSError, TimeoutError, ValueError):
            pass
        del self._open[pid]
        writer.close()
        return None

    def close(self) -> None:
        for _, writer in self._open.values():
            writer.close()

    async def _find(self) -> None:
        folder = runtime_folder()
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in names:
            pid, _, suffix = name.partition(".")
            if suffix == WATCH_SUFFIX and pid.isdecimal() and int(pid) not in self._open:
                with contextlib.suppress(OSError):
                    path = os.path.join(folder, name)
                    self._open[int(pid)] = await asyncio.open_unix_connection(path, limit=LARGEST_ANSWER)


def memory_in(looks: list[dict[str, Any]]) -> dict[int, int]:
    """Of all processes that are named in what workbenches say."""
    return memory_of({pid for look in looks for pids in look["processes"].values() for pid in pids})


async def _one_picture() -> list[str]:
    workbenches = Workbenches()
    try:
        if await workbenches.look():
            # Calls are measured from the first look on.
            await asyncio.sleep(LOOK_SECONDS)
        looks = await workbenches.look()
        return [line.rstrip() for line in picture(looks, memory_in(looks), _PIPE_WIDTH, None, None)]
    finally:
        workbenches.close()


class _Live:
    """The view while it is shown: which row is chosen, whose log is open, the last status."""

    def __init__(self) -> None:
        self._workbenches = Workbenches()
        self._keys: asyncio.Queue[str] = asyncio.Queue(maxsize=16)
        self._looks: list[dict[str, Any]] = []
        self._memory: dict[int, int] = {}
        self._chosen = 0
        self._log: tuple[str, list[str]] | None = None

    async def show(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._on_input)
        try:
            while True:
                self._looks = await self._workbenches.look()
                self._memory = memory_in(self._looks)
                self._draw()
                end = loop.time() + LOOK_SECONDS
                while (left := end - loop.time()) > 0:
                    key = await self._key(left)
                    if key is not None and await self._obey(key):
                        return
        finally:
            loop.remove_reader(sys.stdin.fileno())
            self._workbenches.close()

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 64)
        # Whoever types fast, or is read late, is read several keys at once.
        for key in _A_KEY.findall(data) or [b"q"]:
            with contextlib.suppress(asyncio.QueueFull):
                self._keys.put_nowait(_KEYS.get(key) or key.decode(errors="replace"))

    async def _key(self, seconds: float) -> str | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._keys.get()
        except TimeoutError:
            return None

    async def _obey(self, key: str) -> bool:
        """Whether that was the end."""
        rows = [row for look in self._looks for row in rows_of(look, self._memory)]
        if key == "q":
            if self._log is None:
                return True
            self._log = None
        elif key in ("up", "down"):
            self._chosen += 1 if key == "down" else -1
        elif key in ("l", "s", "r") and rows:
            await self._about(rows[min(self._chosen, len(rows) - 1)], key)
        self._chosen = max(0, min(self._chosen, len(rows) - 1))
        self._draw()
        return False

    async def _about(self, row: ServerRow, key: str) -> None:
        verb = {"l": "log", "s": "stop", "r": "restart"}[key]
        answer = await self._workbenches.ask(row.pid, {"do": verb, "toolbox": row.toolbox, "server": row.server})
        if key == "l" and answer is not None:
            self._log = (row.label, answer["lines"])

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        if self._log is not None:
            lines = log_picture(self._log[0], self._log[1], size.columns, size.lines)
        else:
            lines = picture(self._looks, self._memory, size.columns, size.lines, self._chosen)
        # Drawn over what is there, each line cleared to its end: nothing flickers.
        sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Read keys one by one, and draw on the alternate screen: what was shown before comes back at the end."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        # xterm's private modes, which every current terminal has: the alternate screen, and no cursor on it.
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        yield
    finally:
        # Not `TCSAFLUSH`: what was typed ahead is for the shell.
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
