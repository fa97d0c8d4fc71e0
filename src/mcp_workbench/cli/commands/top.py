"""`mcp-workbench top`: a live view of what runs, with keys to look into servers, to stop and to restart them.

Owns the connections to workbenches and the terminal while the view is shown; `top_state` decides what is shown, and
`top_view` draws it. In a pipe it prints one view, after a second that rates are taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections import deque
from typing import Any, Final

from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.top_state import END_OF_INPUT, TopState
from mcp_workbench.cli.top_view import painted, picture, plain
from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.engine.observe.process_memory import memory_of
from mcp_workbench.engine.run import run as run_loop

REDRAW_INTERVAL: Final = 1.0
_PIPE_WIDTH: Final = 100
# Looks that a rate is taken over: ten seconds.
RATE_SAMPLES: Final = 10
_KEYS_OF_SEQUENCES: Final = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOC": "right", b"\x1bOD": "left",
}  # fmt: skip
# A key is a character or an escape sequence: CSI with parameters, SS3 and a letter, or Alt with a letter. It may arrive
# in two reads.
_A_KEY: Final = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]"
    rb"|[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf7][\x80-\xbf]{3}|[^\x1b\xc0-\xf7]",
    re.DOTALL,
)
# How long the rest of an escape sequence may take; an escape alone is a key.
_ESCAPE_TIMEOUT: Final = 0.1
ESCAPE: Final = b"\x1b"
MAX_KEYS_AHEAD: Final = 16


def run(parsed: Parsed) -> int:
    if sys.stdout.isatty() and sys.stdin.isatty():
        terminal = _Terminal()
        terminal.enter()
        try:
            return run_loop(_Live(terminal).show())
        finally:
            terminal.leave()
    for line in run_loop(_one_picture()):
        print(line)
    return 0


def memory_in(looks: list[dict[str, Any]]) -> dict[int, int]:
    """Return the memory of all processes that the workbenches report."""
    return memory_of({pid for look in looks for pids in look["processes"].values() for pid in pids})


class Rates:
    """Calls per second of each server, from what a few looks have counted."""

    def __init__(self) -> None:
        self._counted: dict[int, deque[tuple[float, dict[str, int]]]] = {}

    def add_to(self, looks: list[dict[str, Any]]) -> None:
        """Add the rates of its servers to each look, as `perSecond`."""
        before, self._counted = self._counted, {}
        for look in looks:
            pid, now = look["status"]["pid"], look.get("now", 0.0)
            counted = self._counted[pid] = before.get(pid, deque(maxlen=RATE_SAMPLES + 1))
            counted.append((now, {label: each.get("calls", 0) for label, each in look["figures"].items()}))
            then, first = counted[0]
            if now > then:
                last = counted[-1][1]
                look["perSecond"] = {label: (last[label] - first.get(label, 0)) / (now - then) for label in last}


async def _one_picture() -> list[str]:
    workbenches, rates = Workbenches(), Rates()
    try:
        looks = await workbenches.look()
        rates.add_to(looks)
        if looks:
            await asyncio.sleep(REDRAW_INTERVAL)
            looks = await workbenches.look()
            rates.add_to(looks)
        return [plain(line).rstrip() for line in picture(looks, memory_in(looks), _PIPE_WIDTH, None, None)]
    finally:
        workbenches.close()


class _Live:
    """The view while it is shown: reads keys, looks every second, draws."""

    def __init__(self, terminal: _Terminal) -> None:
        self._terminal = terminal
        self._workbenches = Workbenches()
        self._rates = Rates()
        self._state = TopState()
        # A key that is held down overflows the queue; the excess is dropped.
        self._keys: asyncio.Queue[str] = asyncio.Queue(maxsize=MAX_KEYS_AHEAD)
        self._unread = b""
        self._ended_by: signal.Signals | None = None

    async def show(self) -> int:
        """Show the view until a key or a signal ends it. Returns the exit status."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        loop.add_reader(sys.stdin.fileno(), self._on_input)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, task, number)
        # By default, Ctrl-Z would stop us with the alternate screen shown and no cursor, and the shell would write into
        # it.
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        try:
            while True:
                looks = await self._workbenches.look()
                self._rates.add_to(looks)
                self._state.looks, self._state.memory = looks, memory_in(looks)
                await self._read_details()
                self._draw()
                end = loop.time() + REDRAW_INTERVAL
                while (left := end - loop.time()) > 0:
                    key = await self._key(left)
                    if key is not None and await self._handle_key(key):
                        return 0
        except asyncio.CancelledError:
            if self._ended_by is None:
                raise
            task.uncancel()
            # As a shell reports a program that the signal ended.
            return 128 + self._ended_by
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
                loop.remove_signal_handler(number)
            loop.remove_reader(sys.stdin.fileno())
            self._workbenches.close()

    def _end(self, task: asyncio.Task[Any], number: signal.Signals) -> None:
        self._ended_by = number
        task.cancel()

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back to the shell, until `fg`."""
        self._terminal.leave()
        # Not SIGTSTP, which this handles.
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.enter()
        self._draw()

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 64)
        if not data:
            # Nobody is left to press a key.
            self._press(END_OF_INPUT)
            return
        self._unread += data
        # One read may return several keys, if they are typed fast or read late.
        while (found := _A_KEY.match(self._unread)) is not None:
            self._unread = self._unread[found.end() :]
            key = found[0]
            if key[0] != ESCAPE[0]:
                self._press(key.decode(errors="replace"))
            elif key in _KEYS_OF_SEQUENCES:
                self._press(_KEYS_OF_SEQUENCES[key])
        if self._unread:
            asyncio.get_running_loop().call_later(_ESCAPE_TIMEOUT, self._on_nothing_more, self._unread)

    def _on_nothing_more(self, unread: bytes) -> None:
        if self._unread == unread:
            self._unread = b""
            if unread == ESCAPE:
                self._press(ESCAPE.decode())

    def _press(self, key: str) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._keys.put_nowait(key)

    async def _key(self, seconds: float) -> str | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._keys.get()
        except TimeoutError:
            return None

    async def _handle_key(self, key: str) -> bool:
        """Handle a key. Returns whether to quit."""
        wish = self._state.press(key)
        row = self._state.chosen
        if wish in ("stop", "restart") and row is not None:
            await self._workbenches.ask(row.pid, {"do": wish, "toolbox": row.toolbox, "server": row.server})
        await self._read_details()
        self._draw()
        return wish == "quit"

    async def _read_details(self) -> None:
        row = self._state.looks_at
        if row is not None:
            request = {"do": "log", "toolbox": row.toolbox, "server": row.server}
            found = await self._workbenches.ask(row.pid, request) or {}
            self._state.log = found.get("lines", [])
            for look in self._state.looks:
                look["dayTimes"] = {row.label: found.get("day") or {}} if look["status"]["pid"] == row.pid else {}

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        lines = self._state.lines(size.columns, size.lines)
        shown = map(painted if self._terminal.has_colours else plain, lines)
        # Drawn over the previous content, each line cleared to its end, so that nothing flickers.
        sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in shown) + "\x1b[J")
        sys.stdout.flush()


class _Terminal:
    """The terminal in the mode for reading single keys, with the alternate screen: the previous content comes back at
    the end."""

    def __init__(self) -> None:
        import termios

        # https://no-color.org
        self.has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)

    def enter(self) -> None:
        import tty

        # Not raw mode: Ctrl-C and Ctrl-Z must remain signals.
        tty.setcbreak(self._descriptor)
        # xterm's private modes, which all current terminals support: the alternate screen, without a cursor.
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        sys.stdout.flush()

    def leave(self) -> None:
        import termios

        # After SIGHUP the terminal is gone.
        with contextlib.suppress(OSError, termios.error):
            # Not `TCSAFLUSH`, because typed-ahead input is for the shell.
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()
