"""`top` on a workbench that runs: one picture in a pipe, keys on a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.commands.top import Rates
from mcp_workbench.cli.dispatch import run
from tests.cli.commands.test_init import CLOCK
from tests.cli.in_process import Stream, command
from tests.cli.shell import COMMAND, environment, on_terminal

pytestmark = pytest.mark.processes


# A text that appears, and what is typed then.
Step = tuple[str, bytes | Callable[[], bytes]]


class Serving:
    """A workbench with a client, which is the test."""

    def __init__(self, folder: Path) -> None:
        config = folder / "workbench.json"
        servers = {"clock": CLOCK, "never": {"command": "x"}}
        config.write_text(json.dumps({"toolboxes": {"desk": {"description": "d", "mcpServers": servers}}}))
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--private", "--config", str(config)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment({"XDG_RUNTIME_DIR": str(folder), "XDG_CACHE_HOME": str(folder)}),
        )  # fmt: skip
        self._next = 0
        client = {"name": "test", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.call()

    def call(self, zone: str = "UTC") -> None:
        tool = {"toolbox": "desk", "server": "clock", "tool": "now"}
        self.ask("tools/call", {"name": "use_tool", "arguments": {"tool": tool, "arguments": {"zone": zone}}})

    def ask(self, method: str, params: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while json.loads(self.process.stdout.readline()).get("id") != self._next:
            pass


@pytest.fixture
def serving() -> Iterator[Serving]:
    with tempfile.TemporaryDirectory(prefix="wb") as folder:
        one = Serving(Path(folder))
        yield one
        one.process.communicate(timeout=30)


@pytest.fixture
def folder(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> str:
    # In its arguments the path of its configuration, which lies in that folder.
    assert isinstance(serving.process.args, list)
    where = os.path.dirname(str(serving.process.args[-1]))
    monkeypatch.setenv("XDG_RUNTIME_DIR", where)
    return where


def test_in_a_pipe_one_picture_is_printed(folder: str, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.cli.commands.top.REDRAW_INTERVAL", 0.01)
    status, shown, complaints = command(monkeypatch, "top")
    assert (status, complaints) == (0, "")
    lines = shown.splitlines()
    assert lines[0].startswith(f"process {serving.process.pid}, stdio, up ") and lines[1].startswith("  0 calls since ")
    assert lines[2].split() == ["SERVER", "STATE", "MEMORY"]
    assert lines[3].split()[:2] == ["desk/clock", "ready"] and "MiB" in lines[3]
    assert lines[4].split() == ["desk/never", "unused"]


def test_on_a_terminal_a_server_is_chosen_and_stopped(folder: str, serving: Serving) -> None:
    """The keys are typed one after another: a log is looked at and left, the server is stopped, and that is the end."""
    steps = [("desk/clock", b"l"), ("q back", b"q"), ("q quit", b"s"), ("stopped", b"q")]
    shown = _typed(steps, folder)
    assert "\x1b[?1049h" in shown and shown.endswith("\x1b[?25h\x1b[?1049l"), "the screen comes back"
    assert "> \x1b[1mdesk/clock" in shown and "errors" not in shown
    serving.call()


def test_a_call_of_a_client_appears_with_its_name_and_why_it_failed(folder: str, serving: Serving) -> None:
    def call_twice() -> bytes:
        serving.call()
        serving.call("Mars/Olympus")
        return b"\r"

    steps: list[Step] = [("desk/clock", call_twice), ("[calls]", b""), ("Mars/Olympus", b"q"), ("LAST CALLS", b"q")]
    shown = _typed(steps, folder)
    assert " test  now" in shown and "failed: " in shown and "2 calls, 1 error since " in shown


def _typed(steps: Sequence[Step], folder: str) -> str:
    """What `top` shows if these are typed, each as soon as its text has appeared."""
    import pty

    pid, descriptor = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        env = environment({"TERM": "xterm", "XDG_RUNTIME_DIR": folder, "COLUMNS": "80", "LINES": "24"})
        os.execvpe(COMMAND[0], [*COMMAND, "top"], env)
    shown, seen, left = "", 0, list(steps)
    try:
        while True:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece.decode(errors="replace")
            while left and left[0][0] in shown[seen:]:
                seen = len(shown)
                keys = left.pop(0)[1]
                os.write(descriptor, keys if isinstance(keys, bytes) else keys())
    finally:
        os.close(descriptor)
        assert os.waitpid(pid, 0)[1] == 0
    assert not left, shown
    return shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(folder: str, number: signal.Signals) -> None:
    import pty

    pid, descriptor = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        env = environment({"TERM": "xterm", "XDG_RUNTIME_DIR": folder, "COLUMNS": "80", "LINES": "24"})
        os.execvpe(COMMAND[0], [*COMMAND, "top"], env)
    before = termios.tcgetattr(descriptor)
    shown = _read_until(descriptor, "desk/clock")
    assert not termios.tcgetattr(descriptor)[3] & termios.ICANON
    # Ctrl-Z, and `fg`.
    os.write(descriptor, b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    shown = _read_until(descriptor, "\x1b[?1049l")
    assert termios.tcgetattr(descriptor) == before
    os.kill(pid, signal.SIGCONT)
    assert "\x1b[?1049h" in _read_until(descriptor, "desk/clock")
    os.kill(pid, number)
    shown = _read_until(descriptor, "\x1b[?1049l")
    assert shown.endswith("\x1b[?25h\x1b[?1049l")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + number
    os.close(descriptor)


def _read_until(descriptor: int, text: str) -> str:
    shown = ""
    while text not in shown:
        shown += os.read(descriptor, 65_536).decode(errors="replace")
    return shown


def test_without_a_workbench_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = command(monkeypatch, "top")
    assert (done.status, done.stderr) == (0, "") and done.stdout.startswith("No workbench is running.")
    status, shown = on_terminal(
        "top", env={"XDG_RUNTIME_DIR": str(tmp_path)}, width=80, type_when=lambda shown: "q quit" in shown, key=b"q"
    )
    assert status == 0 and "No workbench is running" in shown


class FakeWorkbenches:
    """Workbenches that are not there; with each look, somebody types the next key."""

    def __init__(self, descriptor: int, keys: list[bytes]) -> None:
        self._descriptor = descriptor
        self._keys = keys
        self.asked: list[dict[str, str]] = []
        self.is_closed = False

    async def look(self) -> list[dict[str, Any]]:
        if self._keys:
            os.write(self._descriptor, self._keys.pop(0))
        servers = [{"toolbox": "box", "server": name, "state": "ready", "callsInFlight": 0} for name in ("a", "b")]
        status = {"pid": 9, "serving": "stdio", "config": "c.json", "uptimeSeconds": 1.0, "servers": servers}
        return [{"status": status, "figures": {}, "processes": {"box/a": [os.getpgrp()]}, "lastCalls": []}]

    async def ask(self, pid: int, request: dict[str, str]) -> dict[str, Any] | None:
        self.asked.append(request)
        return {"lines": ["a line of the log"]} if request["do"] == "log" else None

    def close(self) -> None:
        self.is_closed = True


def test_each_key_does_as_its_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor, terminal = os.openpty()
    # Home, delete, F1, Ctrl-Up and Alt-X are keys that mean nothing here, and no escape.
    others = b"\x1b[H\x1b[3~\x1bOP\x1b[1;5A\x1bx"
    fake = FakeWorkbenches(descriptor, [b"\x1b[B", b"l", others, b"q", b"s", b"k", b"r", b"x", b"\x1b[A", b"\x1b"])
    monkeypatch.setattr("mcp_workbench.cli.commands.top.Workbenches", lambda: fake)
    monkeypatch.setattr("mcp_workbench.cli.commands.top.REDRAW_INTERVAL", 0.05)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    shown = Stream(is_terminal=True)
    with open(terminal) as stdin, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", stdin)
        patched.setattr(sys, "stdout", shown)
        before = termios.tcgetattr(terminal)
        assert run(["top"]) == 0
        assert termios.tcgetattr(terminal) == before, "the terminal is as it was"
    os.close(descriptor)
    asked = list(dict.fromkeys((each["do"], each["server"]) for each in fake.asked))
    assert asked == [("log", "b"), ("stop", "b"), ("restart", "a")]
    text = shown.text()
    assert "> \x1b[1mbox/b" in text and "a line of the log" in text and "q back" in text and fake.is_closed
    # Of the group of this process, which is named as the server's: with many tests side by side that may be gigabytes.
    assert "MiB" in text or "GiB" in text


def test_a_rate_is_taken_over_the_last_looks_and_begins_anew_with_a_workbench() -> None:
    def look(pid: int, now: float, calls: int) -> dict[str, Any]:
        return {"status": {"pid": pid}, "now": now, "figures": {"box/a": {"calls": calls}, "box/b": {"calls": 0}}}

    rates, looks = Rates(), list[dict[str, Any]]()
    for second in range(20):
        looks = [look(1, float(second), 100 if second == 2 else 100 + second * 2), look(2, float(second), 0)]
        rates.add_to(looks)
    assert looks[0]["perSecond"] == {"box/a": 2.0, "box/b": 0.0}
    later = [look(3, 21.0, 5000)]
    rates.add_to(later)
    assert "perSecond" not in later[0]
