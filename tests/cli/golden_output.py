"""What every command prints, fixed: exit status, stdout and stderr together, in a pipe and on a terminal of 80 columns.

The commands are run one after another in a home of their own, as somebody would who tries them all. `python -m
tests.cli.golden_output` writes the results again, to be looked at in a diff. What differs from run to run (paths,
times, process ids, versions) is replaced. A terminal is a terminal on both streams, each of them one of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from mcp_workbench import __version__
from mcp_workbench.engine.version import full_version
from tests.cli.forked_commands import ForkedCommands
from tests.cli.shell import environment
from tests.support import fake_keyring

FOLDER: Final = Path(__file__).parent / "golden"
ROOT: Final = Path(__file__).resolve().parents[2]
WIDTH: Final = 80
TIMEOUT: Final = 60
MODES: Final = ("pipe", "terminal")
CLOCK: Final = {"command": "mcp-workbench", "args": ["demo", "clock"]}
CONFIG: Final = {"toolboxes": {"desk": {"description": "The clock, and more", "mcpServers": {"clock": CLOCK}}}}
CURSOR: Final = {"mcpServers": {"clock": CLOCK, "keyed": {"command": "none", "env": {"API_KEY": "hunter2hunter2"}}}}


class Case(NamedTuple):
    """One command line. `prepare` is done before it; `typed` stands in its input."""

    words: str
    prepare: Callable[[Path], None] = lambda home: None
    typed: str = ""
    # A live view has tests of its own on a terminal, and so has a prompt that does not echo.
    modes: tuple[str, ...] = MODES
    # Where the same command line is tried more than once.
    when: str = ""

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.words} {self.when}".lower()).strip("-")


def _write(home: Path, name: str, content: object) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")


def _cursor(home: Path) -> None:
    _write(home, ".cursor/mcp.json", CURSOR)


def _own(home: Path) -> None:
    _write(home, ".config/mcp-workbench/workbench-config.json", CONFIG)


def _project(home: Path) -> None:
    _write(home, "workbench-config.json", CONFIG)


def _no_project(home: Path) -> None:
    (home / "workbench-config.json").unlink()


def _broken(home: Path) -> None:
    _write(home, "broken.json", '{\n  "toolboxes": {"desk": {"mcpServers": {"clock": {"comand": "x"}}}},\n}\n')


def _server_json(home: Path) -> None:
    token = {"name": "TOKEN", "description": "Your key", "isRequired": True, "isSecret": True}
    package = {"registryType": "npm", "identifier": "@x/weather", "version": "1.0", "environmentVariables": [token]}
    _write(home, "server.json", {"name": "io.example/weather", "packages": [package]})
    _answer_as(home, "npx", "")
    _answer_as(home, "npm", json.dumps({"version": "1.0.0", "dist.integrity": "sha512-abc"}))


def _answer_as(home: Path, program: str, answer: str) -> None:
    path = home / "bin" / program
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)


# Somebody tries every command and every action of one, and makes the mistakes that people make.
CASES: Final = (
    Case("--version"),
    Case("--help"),
    Case("serve"),
    Case("serve --hlep"),
    Case("serve nothing.json"),
    Case("chekc"),
    Case("help opne"),
    Case("help topics"),
    Case("team"),
    Case("team kye"),
    Case("auth login"),
    # Set up.
    Case("init --yes"),
    Case("init --from nobody"),
    Case("init --dry-run --yes", _cursor),
    Case("init --no-check", typed="\n\n\n"),
    Case("init"),
    Case("add extra --toolbox other -- mcp-workbench demo notes", _own),
    Case("add extra"),
    Case("add extra nothing.json"),
    Case("add extra server.json --toolbox desk", _server_json),
    Case("add extra https://nobody.example/mcp --toolbox desk --env A=b"),
    Case("remove extra"),
    Case("remove desk/extra"),
    Case("check"),
    Case("check --json"),
    Case("check --config broken.json", _broken),
    Case("check --config nothing.json"),
    Case("check --connect"),
    Case("doctor"),
    Case("doctor nonsense"),
    Case("sandbox"),
    Case("sandbox try"),
    Case("sandbox try desk/nonsense"),
    Case("sandbox prepare desk/nonsense"),
    Case("secret"),
    Case("secret list"),
    Case("secret list --json"),
    Case("secret set TOKEN", modes=("pipe",)),
    Case("secret remove TOKEN"),
    Case("secret sat TOKEN"),
    Case("auth"),
    Case("auth --encrypt"),
    Case("login"),
    Case("login clock"),
    Case("login nobody"),
    Case("logout https://nobody.example/mcp"),
    Case("completion"),
    Case("completion tcsh"),
    Case("completion words -- unin"),
    Case("schema --nonsense"),
    # Use.
    Case("list"),
    Case("list --json"),
    Case("list --face flat"),
    Case("list --face round"),
    Case("open"),
    Case("open desk"),
    Case("open desk --json"),
    Case("open desk --budget much"),
    Case("open dsek"),
    Case("find current time"),
    Case("find current time --json"),
    Case("find zzzz --toolbox nowhere"),
    Case("find xylophone"),
    Case("find"),
    Case("call"),
    Case("call desk/clock/convert_time time=2026-01-02T03:04 from_zone=UTC to_zone=UTC"),
    Case("call desk/clock/convert_time --raw time=2026-01-02T03:04 from_zone=UTC to_zone=UTC"),
    Case("call clock convert_time time=now"),
    Case("call desk/clock/convert_time time=now"),
    Case("call desk/clock/now zone=Nowhere"),
    Case("call desk/clock/nwo"),
    Case("call desk/clokc/now"),
    Case("call nothing"),
    Case("prompt"),
    Case("prompt nothing"),
    Case("resource"),
    Case("resource nothing://1"),
    Case("tokens"),
    Case("tokens --json"),
    Case("tokens nothing.json"),
    Case("forget"),
    Case("forget everything"),
    Case("demo nothing"),
    # The clients.
    Case("install"),
    Case("install nobody"),
    Case("install cursor --dry-run"),
    Case("install cursor --name a/b"),
    Case("install cursor"),
    Case("install cursor --print"),
    Case("install cursor --json"),
    Case("undo cursor"),
    Case("undo cursor --dry-run"),
    Case("undo cursor --project"),
    Case("undo"),
    Case("uninstall cursor"),
    Case("uninstall cursor nobody"),
    # Run.
    Case("status", when="nothing runs"),
    Case("logs", when="nothing runs"),
    Case("page", when="nothing runs"),
    Case("down", when="nothing runs"),
    Case("reload"),
    Case("up --backgroud"),
    Case("up"),
    Case("up", when="it runs"),
    Case("status"),
    Case("status nonsense"),
    Case("top", modes=("pipe",)),
    Case("logs"),
    Case("logs --lines some"),
    Case("reload nobody"),
    Case("top now"),
    Case("page --port http"),
    Case("restart now"),
    Case("restart"),
    Case("down now"),
    Case("down"),
    # Team.
    Case("cluster status"),
    # A key is a different one each time.
    Case("cluster key --nonsense"),
    Case("key"),
    Case("key list"),
    Case("key create"),
    Case("key create ci --expires never"),
    Case("key create ci --toolboxes desk"),
    Case("key list", when="there is one"),
    Case("key revoke ci"),
    Case("key revoke nobody"),
    Case("audit"),
    Case("audit verify nothing.jsonl"),
    Case("audit --since yesterday"),
    Case("approve"),
    Case("approve nothing"),
    Case("team cluster"),
    Case("team cluster status"),
    Case("policy test local desk/clock/now"),
    Case("policy test local nowhere"),
    Case("policy tset"),
    Case("lock"),
    Case("lock diff"),
    Case("lock accept desk/clock"),
    Case("lock accept nothing"),
    Case("lock fidd"),
    Case("trust", _project),
    Case("trust --list"),
    Case("trust --remove"),
    Case("trust nothing.json", _no_project),
)


class Recorded(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    def text(self, words: str) -> str:
        parts = [f"$ mcp-workbench {words}\n", f"status {self.status}\n"]
        for title, shown in (("stdout", self.stdout), ("stderr", self.stderr)):
            parts.append(f"--- {title}\n{shown}" + ("" if shown.endswith("\n") or not shown else "\n"))
        return "".join(parts)


def record(mode: str) -> dict[str, str]:
    """What each command printed, by its name."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="wb", dir="/tmp") as folder:
        home = Path(folder) / "home"
        (home / "bin").mkdir(parents=True)
        unset = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CODEX_HOME", "COPILOT_HOME")
        env = environment(
            {
                **dict.fromkeys((*unset, "WORKBENCH_CONFIG", "WORKBENCH_TOKEN"), ""),
                **fake_keyring.environment(home / "keys"),
                "FAKE_KEYRING_FAULT": "locked",
                "HOME": str(home),
                "PATH": str(home / "bin"),
                "XDG_RUNTIME_DIR": folder,
                "TERM": "xterm-256color",
                "TZ": "UTC",
            }
        )
        run = _in_a_pipe if mode == "pipe" else _on_a_terminal
        with ForkedCommands() as commands:
            try:
                for case in CASES:
                    case.prepare(home)
                    if mode in case.modes:
                        done = run(commands, shlex.split(case.words), env, home, case.typed)
                        found[case.name] = _normal(done.text(case.words), home)
            finally:
                # Where one failed in the middle, the shared workbench must not stay.
                down = [sys.executable, "-m", "mcp_workbench", "down"]
                subprocess.run(down, env=env, capture_output=True, timeout=TIMEOUT)
    return found


def _in_a_pipe(commands: ForkedCommands, words: list[str], env: dict[str, str], home: Path, typed: str) -> Recorded:
    (out, out_writer), (err, err_writer) = os.pipe(), os.pipe()
    with open(os.devnull) as empty:
        commands.start(words, env, home, [empty.fileno(), out_writer, err_writer])
    os.close(out_writer)
    os.close(err_writer)
    return Recorded(*_read_to_the_end(commands, out, err))


def _on_a_terminal(commands: ForkedCommands, words: list[str], env: dict[str, str], home: Path, typed: str) -> Recorded:
    """Both streams are terminals, apart from each other, so that it is seen what goes where."""
    ends = [pty.openpty() for _ in range(2)]
    for _, terminal in ends:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    (out, out_terminal), (err, err_terminal) = ends
    # The end of input is said as at a keyboard.
    os.write(out, typed.encode() + b"\x04")
    commands.start(words, env, home, [out_terminal, out_terminal, err_terminal])
    os.close(out_terminal)
    os.close(err_terminal)
    status, shown, complaints = _read_to_the_end(commands, out, err)
    return Recorded(status, _screen(shown), _screen(complaints))


def _read_to_the_end(commands: ForkedCommands, out: int, err: int) -> tuple[int, str, str]:
    """The exit status, and what came on both streams."""
    shown = {out: b"", err: b""}
    waiting = set(shown)
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], TIMEOUT)
        if not ready:
            commands.kill()
            raise TimeoutError(shown)
        for end in ready:
            try:
                piece = os.read(end, 65536)
            except OSError:
                # How Linux says that the other side of a terminal is gone.
                piece = b""
            shown[end] += piece
            if not piece:
                waiting.discard(end)
                os.close(end)
    return commands.wait(), shown[out].decode(), shown[err].decode()


_ESCAPE: Final = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)|\x1b")


def _screen(text: str) -> str:
    """What is left on a terminal in the end: a table that is drawn again and again is there once."""
    lines, row, column = [""], 0, 0
    for found in _ESCAPE.finditer(text):
        number, letter, home, down, words = found.groups()
        if words:
            lines[row] = lines[row][:column].ljust(column) + words + lines[row][column + len(words) :]
            column += len(words)
        elif home:
            column = 0
        elif down:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
        elif letter == "J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
    return "\n".join(line.rstrip() for line in lines)


def _normal(text: str, home: Path) -> str:
    """Without what differs from run to run."""
    versions = ((full_version(), "VERSION"), (__version__, "VERSION"))
    for value, name in ((str(home), "HOME"), (sys.executable, "PYTHON"), (str(ROOT), "ROOT"), *versions):
        text = text.replace(value, name)
    text = re.sub(r"[^\s\"`']*/bin/mcp-workbench", "PROGRAM", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "0.00 s", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE TIME UTC", text)
    text = re.sub(r"since \d\d:\d\d\b", "since TIME", text)
    text = re.sub(r"\bwbk_[\w-]+", "TOKEN", text)
    text = re.sub(r"process \d+", "process PID", text)
    text = re.sub(r"(sandbox: this machine has) (?:[^\n]|\n(?!\w+: |---))*", r"\1 …", text)
    text = re.sub(r"(in `guard`, the\s+default)(?:;(?:[^\n]|\n(?!\w+: |---))*)?", r"\1", text)
    text = re.sub(r"\bup \d+\.?\d* (s|ms)\b", "up 0 s", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def main() -> None:
    """Write all of them again."""
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    FOLDER.mkdir(exist_ok=True)
    for mode in MODES:
        for name, text in record(mode).items():
            (FOLDER / f"{name}.{mode}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
