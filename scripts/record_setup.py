"""Draw docs/images/setup.svg: installing, `init` and `install claude-code` on a terminal, from a real run.

`make pictures`, or `.venv/bin/python -m scripts.record_setup [FILE]`; needs uv for the first command. The home is one
of its own, with the files of two clients whose servers are the included ones; `claude` is a program that does what
`claude mcp add-json` does, because Claude Code is not on every machine. The answers typed are Enter.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from scripts.record_demo import LINES, ROOT, WIDTH, draw

INSTALL = "uv tool install ."
COMMANDS = ("mcp-workbench init", "mcp-workbench install claude-code")
PROMPT = "\x1b[1;32m$ \x1b[0m"
_ROWS = re.compile(r"(\n)|\x1b\[(\d*)A|(\x1b\[2K)|(\r)|([^\n\r\x1b]+|\x1b\[[\d;]*m)|\x1b\[[?\d;]*[A-Za-z]")
CLAUDE = """#!{python}
import json, os, sys
path = os.path.expanduser("~/.claude.json")
content = json.load(open(path))
content["mcpServers"][sys.argv[5]] = json.loads(sys.argv[6])
json.dump(content, open(path, "w"), indent=2)
"""


def prepare(home: Path) -> None:
    """Two clients with servers, one of them in both."""

    def server(name: str, **more: object) -> dict[str, object]:
        return {"command": "mcp-workbench", "args": ["demo", name], **more}

    files = {
        ".claude.json": {"files": server("files"), "notes": server("notes"), "time": server("clock")},
        ".cursor/mcp.json": {
            "time": server("clock"),
            "math": server("calculator", env={"MATH_KEY": "sk-0123456789ab"}),
        },
    }
    for name, servers in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mcpServers": servers}))
    programs = home / "bin"
    programs.mkdir()
    for name, text in (
        ("claude", CLAUDE),
        ("mcp-workbench", "#!{python}\nfrom mcp_workbench.__main__ import main\nmain()\n"),
    ):
        (programs / name).write_text(text.format(python=sys.executable))
        (programs / name).chmod(0o755)


def record(words: list[str], home: Path, environ: dict[str, str]) -> str:
    """What a command shows; Enter is typed wherever it asks."""
    descriptor, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, WIDTH, 0, 0))
    process = subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, env=environ, cwd=home, start_new_session=True
    )
    os.close(terminal)
    shown, answered = b"", 0
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        shown += piece
        if shown[answered:].endswith(b"] "):
            answered = len(shown)
            os.write(descriptor, b"\n")
    os.close(descriptor)
    if status := process.wait():
        raise SystemExit(f"{' '.join(words)} ended with status {status}:\n{shown.decode(errors='replace')}")
    return settled(shown.decode())


def settled(shown: str) -> str:
    """What is left on the screen: a table that is drawn again and again is there once."""
    rows, at = [""], 0
    for newline, up, clear, start, text in _ROWS.findall(shown):
        if newline:
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif up:
            at = max(0, at - int(up))
        elif clear:
            rows[at] = ""
        elif text and not start:
            rows[at] += text
    return "\n".join(rows).rstrip() + "\n"


def environment(home: Path) -> dict[str, str]:
    unset = ("NO_COLOR", "COLUMNS", "LINES", "WORKBENCH_CONFIG", "CODEX_HOME", "COPILOT_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in unset and not name.startswith("XDG_")}
    chain = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    own = {"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "TERM": "xterm-256color"}
    return {**kept, **own, **chain, "XDG_RUNTIME_DIR": str(home), "PYTHONPATH": str(ROOT / "src")}


def setting_up() -> str:
    """The two commands with what they show, in a home of their own."""
    parts = []
    with tempfile.TemporaryDirectory(prefix="wb", dir="/tmp") as folder:
        home = Path(folder) / "ada"
        home.mkdir()
        prepare(home)
        for command in COMMANDS:
            program, *words = command.split()
            shown = record([str(home / "bin" / program), *words], home, environment(home))
            shown = shown.replace(str(home), "~")
            parts.append(f"{PROMPT}\x1b[1m{command}\x1b[0m\n{shown}")
    return "\n".join(parts)


def installing() -> str:
    """What uv says last when it installs this project."""
    uv = shutil.which("uv")
    if uv is None:
        raise SystemExit("uv is needed: pipx install uv")
    with tempfile.TemporaryDirectory(prefix="wb", dir="/tmp") as folder:
        own = {"UV_TOOL_DIR": f"{folder}/tools", "UV_TOOL_BIN_DIR": f"{folder}/bin", "NO_COLOR": "1"}
        own["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [uv, "tool", "install", str(ROOT)], env={**os.environ, **own}, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stderr.strip().splitlines()[-1]


def picture() -> str:
    """The whole session."""
    return draw(f"{installing()}\n\n{setting_up()}", INSTALL)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "setup.svg"
    target.write_text(picture(), encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")
