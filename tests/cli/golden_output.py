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
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from mcp_workbench import __version__
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
    # A live view has tests of its own on a terminal.
    modes: tuple[str, ...] = MODES

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.words.lower()).strip("-")


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


CASES: Final = (
    Case("--version"),
    Case("serve"),
    Case("chekc"),
    Case("init --yes"),
    Case("init --no-check", _cursor, typed="\n\n"),
    Case("init"),
    Case("add extra --toolbox other -- mcp-workbench demo notes", _own),
    Case("add extra"),
    Case("remove extra"),
    Case("remove extra --toolbox desk"),
    Case("check"),
    Case("check --connect"),
    Case("doctor"),
    Case("list"),
    Case("open desk"),
    Case("open dsek"),
    Case("call desk/clock/convert_time time=2026-01-02T03:04 from_zone=UTC to_zone=UTC"),
    Case("call desk/clock/nwo"),
    Case("find current time"),
    Case("find"),
    Case("prompt"),
    Case("resource"),
    Case("completion"),
    Case("tokens"),
    Case("install cursor"),
    Case("install cursor --print"),
    Case("undo cursor"),
    Case("undo cursor --dry-run"),
    Case("install nobody"),
    Case("uninstall cursor"),
    Case("reload"),
    Case("up"),
    Case("status"),
    Case("top", modes=("pipe",)),
    Case("logs"),
    Case("restart"),
    Case("down"),
    Case("key list"),
    Case("audit"),
    Case("approve"),
    Case("policy test local desk/clock/now"),
    Case("lock"),
    Case("secret list"),
    Case("auth"),
    Case("login clock"),
    Case("logout https://nobody.example/mcp"),
    Case("trust", _project),
    Case("trust --list"),
    Case("schema --nonsense", _no_project),
    Case("demo nothing"),
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
        program = [sys.executable, "-m", "mcp_workbench"]
        run = _in_a_pipe if mode == "pipe" else _on_a_terminal
        try:
            for case in CASES:
                case.prepare(home)
                if mode in case.modes:
                    done = run([*program, *case.words.split()], env, home, case.typed)
                    found[case.name] = _normal(done.text(case.words), home)
        finally:
            # Where one failed in the middle, the shared workbench must not stay.
            subprocess.run([*program, "down"], env=env, capture_output=True, timeout=TIMEOUT)
    return found


def _in_a_pipe(words: list[str], env: dict[str, str], home: Path, typed: str) -> Recorded:
    done = subprocess.run(words, input=b"", capture_output=True, env=env, cwd=home, timeout=TIMEOUT)
    return Recorded(done.returncode, done.stdout.decode(), done.stderr.decode())


def _on_a_terminal(words: list[str], env: dict[str, str], home: Path, typed: str) -> Recorded:
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
    process = subprocess.Popen(
        words, stdin=out_terminal, stdout=out_terminal, stderr=err_terminal, env=env, cwd=home, start_new_session=True
    )
    os.close(out_terminal)
    os.close(err_terminal)
    shown = {out: b"", err: b""}
    waiting = set(shown)
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], TIMEOUT)
        if not ready:
            process.kill()
            break
        for end in ready:
            try:
                piece = os.read(end, 65536)
            except OSError:
                piece = b""
            shown[end] += piece
            if not piece:
                waiting.discard(end)
    for end in shown:
        os.close(end)
    return Recorded(process.wait(TIMEOUT), *(_screen(shown[end].decode()) for end in (out, err)))


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
    for value, name in ((str(home), "~"), (sys.executable, "PYTHON"), (str(ROOT), "ROOT"), (__version__, "VERSION")):
        text = text.replace(value, name)
    text = re.sub(r"[^\s\"`']*/bin/mcp-workbench", "PROGRAM", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "0.00 s", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE TIME", text)
    text = re.sub(r"process \d+", "process PID", text)
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
