"""`mcp-workbench top`: a live view of what runs, with keys to stop and restart servers and to read their logs.

Owns the connections to workbenches and the terminal while the view is shown; `top_view` draws it. In a pipe it prints
one view, after measuring for a second. Workbenches measure calls only while this is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from typing import Any, Final

from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.top_view import ServerRow, log_picture, picture, rows_of
from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.engine.observe.process_memory import memory_of
from mcp_workbench.engine.run import run as run_loop

REDRAW_INTERVAL: Final = 1.0
_PIPE_WIDTH: Final = 100
_KEYS: Final = {b"k": "up", b"j": "down", b"\r": "l", b"\n": "l", b"\x1b": "q"}
_KEYS_OF_SEQUENCES: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
# A key is a letter or an escape sequence: CSI with parameters, SS3 and a letter, or Alt with a letter. It may arrive in
# two reads.
_A_KEY: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|[^\x1b]", re.DOTALL)
# How long the rest of an escape sequence may take; an escape alone is a key.
_ESCAPE_SECONDS: Final = 0.1


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


async def _one_picture() -> list[str]:
    workbenches = Workbenches()
    try:
        if await workbenches.look():
            # Calls are measured only from the first `look` on.
            await asyncio.sleep(REDRAW_INTERVAL)
        looks = await workbenches.look()
        return [line.rstrip() for line in picture(looks, memory_in(looks), _PIPE_WIDTH, None, None)]
    finally:
        workbenches.close()


class _Live:
    """The view while it is shown: the chosen server, the open log, the last status."""

    def __init__(self, terminal: _Terminal) -> None:
        self._terminal = terminal
        self._workbenches = Workbenches()
        # A key that is held down overflows the queue; the excess is dropped.
        self._keys: asyncio.Queue[str] = asyncio.Queue(maxsize=16)
        self._unread = b""
        self._looks: list[dict[str, Any]] = []
        self._memory: dict[int, int] = {}
        # By identity, because rows change places; and its last row, for when it is gone.
        self._chosen: tuple[int, str] | None = None
        self._place = 0
        self._log: tuple[str, list[str]] | None = None
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
                self._looks = await self._workbenches.look()
                self._memory = memory_in(self._looks)
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
            self._press("q")
            return
        self._unread += data
        # One read may return several keys, if they are typed fast or read late.
        while (found := _A_KEY.match(self._unread)) is not None:
            self._unread = self._unread[found.end() :]
            key = found[0]
            if len(key) == 1:
                self._press(_KEYS.get(key) or key.decode(errors="replace"))
            elif key in _KEYS_OF_SEQUENCES:
                self._press(_KEYS_OF_SEQUENCES[key])
        if self._unread:
            asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._on_nothing_more, self._unread)

    def _on_nothing_more(self, unread: bytes) -> None:
        if self._unread == unread:
            self._unread = b""
            if unread == b"\x1b":
                self._press("q")

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
        rows = self._rows()
        if key == "q":
            if self._log is None:
                return True
            self._log = None
        elif key in ("up", "down") and rows:
            place = max(0, min(self._index(rows) + (1 if key == "down" else -1), len(rows) - 1))
            self._chosen, self._place = (rows[place].pid, rows[place].label), place
        elif key in ("l", "s", "r") and rows:
            row = rows[self._index(rows)]
            self._chosen = (row.pid, row.label)
            await self._about(row, key)
        self._draw()
        return False

    def _rows(self) -> list[ServerRow]:
        return [row for look in self._looks for row in rows_of(look, self._memory)]

    def _index(self, rows: list[ServerRow]) -> int:
        """Return the row of the chosen server, or of its neighbour if it is gone."""
        places = (place for place, row in enumerate(rows) if (row.pid, row.label) == self._chosen)
        self._place = next(places, max(0, min(self._place, len(rows) - 1)))
        return self._place

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
            lines = picture(self._looks, self._memory, size.columns, size.lines, self._index(self._rows()))
        # Drawn over the previous content, each line cleared to its end, so that nothing flickers.
        sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()


class _Terminal:
    """The terminal in the mode for reading single keys, with the alternate screen: the previous content comes back at
    the end."""

    def __init__(self) -> None:
        import termios

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
