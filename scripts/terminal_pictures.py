"""What commands show on a terminal, as pictures: recorded from real runs in a home of their own.

The home has the files of two clients whose servers are the included ones, and a keychain; `claude` is a program that
does what `claude mcp add-json` does, because Claude Code is not on every machine. The answers typed are Enter. Of
several runs the quietest is drawn: what else the machine does is no part of the story. A picture refers to nothing
outside of itself.
"""

from __future__ import annotations

import fcntl
import html
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from scripts.diagrams import FONT
from tests.support import fake_keyring

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 84
LINES = 60
DEMO: Final = "mcp-workbench demo"
SETTING_UP: Final = ("mcp-workbench init", "mcp-workbench install claude-code")
# The demo goes on with settings for clients, which are in docs/start/clients.md as text.
END_OF_STORY = "Use it with your own servers"
CLAUDE = """#!{python}
import json, os, sys
path = os.path.expanduser("~/.claude.json")
content = json.load(open(path))
content["mcpServers"][sys.argv[5]] = json.loads(sys.argv[6])
json.dump(content, open(path, "w"), indent=2)
"""
WORKBENCH = "#!{python}\nfrom mcp_workbench.__main__ import main\nmain()\n"
_ROWS = re.compile(r"(\n)|\x1b\[(\d*)A|(\x1b\[2K)|(\r)|([^\n\r\x1b]+|\x1b\[[\d;]*m)|\x1b\[[?\d;]*[A-Za-z]")
_TEXT = re.compile(
    r'(?P<start><text class="[^"]*") x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="(?P<length>[\d.]+)" '
    r"(?P<end>clip-path=[^>]*)>(?P<text>[^<]*)</text>"
)


def prepare(home: Path) -> None:
    """Two clients with servers, one of them in both."""

    def server(*arguments: str, **more: object) -> dict[str, object]:
        return {"command": "mcp-workbench", "args": ["demo", *arguments], **more}

    files = {
        ".claude.json": {"notes": server("notes"), "time": server("clock")},
        ".cursor/mcp.json": {
            "time": server("clock"),
            "calendar": server("clock", "--with-crash", env={"CALENDAR_KEY": "sk-0123456789ab"}),
        },
    }
    for name, servers in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mcpServers": servers}))
    programs = home / "bin"
    programs.mkdir()
    for name, text in (("claude", CLAUDE), ("mcp-workbench", WORKBENCH)):
        (programs / name).write_text(text.format(python=sys.executable))
        (programs / name).chmod(0o755)


def environment(home: Path) -> dict[str, str]:
    unset = ("NO_COLOR", "COLUMNS", "LINES", "WORKBENCH_CONFIG", "CODEX_HOME", "COPILOT_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in unset and not name.startswith("XDG_")}
    own = {"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "TERM": "xterm-256color"}
    chain = fake_keyring.environment(home / "keychain")
    return {**kept, **own, **chain, "XDG_RUNTIME_DIR": str(home), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def record(words: list[str], home: Path) -> str:
    """What a command shows, escape sequences included; Enter is typed wherever it asks."""
    descriptor, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, WIDTH, 0, 0))
    # Not `pty.fork`, which is unsafe where there are threads, as in tests.
    process = subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment(home), cwd=home, start_new_session=True
    )
    os.close(terminal)
    shown, answered = b"", 0
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            # How Linux says that the other side of a terminal is gone.
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


def session(*commands: str) -> list[tuple[str, str]]:
    """Commands, one after the other in one home, each with what it shows."""
    with tempfile.TemporaryDirectory(prefix="wb", dir="/tmp") as folder:
        home = Path(folder) / "ada"
        home.mkdir()
        prepare(home)
        shown = []
        for command in commands:
            program, *words = command.split()
            said = record([str(home / "bin" / program), *words], home).replace(str(home), "~")
            shown.append((command, said))
        return shown


def draw(shown: list[tuple[str, str]]) -> str:
    """The picture of a terminal that shows these commands and what they said."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    for number, (command, said) in enumerate(shown):
        console.print(Text("\n" if number else "").append("$ ", "bold green").append(command, "bold"))
        console.print(Text.from_ansi(said.rstrip("\n")))
    picture = console.export_svg(title="", theme=MONOKAI)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = _TEXT.sub(_placed, picture)
    return re.sub(r"font-family: [^;]+;", f"font-family: {FONT};", picture)


def _placed(element: re.Match[str]) -> str:
    """A text whose words stand where they stand on the terminal, whatever becomes of white space.

    Rich writes indents and columns as no-break spaces, which programs other than browsers drop at the ends of a text.
    """
    text = html.unescape(element["text"]).replace("\xa0", " ")
    cell = float(element["length"]) / len(text)
    return "".join(
        f'{element["start"]} x="{float(element["x"]) + part.start() * cell:g}" y="{element["y"]}" '
        f'textLength="{len(part[0]) * cell:g}" {element["end"]}>{html.escape(part[0], quote=False)}</text>'
        for part in re.finditer(r"\S+(?: \S+)*", text)
    )


def words_in(picture: str) -> list[str]:
    """The lines that a picture shows, with white space as one space and figures, which differ each time, as `#`."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for element in _TEXT.finditer(picture):
        text = html.unescape(element["text"])
        lines.setdefault(float(element["y"]), []).append((float(element["x"]), text))
    shown = [" ".join(text for _, text in sorted(parts)) for _, parts in sorted(lines.items())]
    return [re.sub(r"\d[\d.,:T+-]*", "#", re.sub(r"\w+day, ", "", " ".join(line.split()))) for line in shown]


def demo() -> list[tuple[str, str]]:
    ((command, said),) = session(DEMO)
    story = said.partition(END_OF_STORY)[0]
    # The heading's own escape sequence precedes its words.
    return [(command, re.sub(r"\s*(\x1b\[[\d;]*m)*$", "\x1b[0m", story))]


def setting_up() -> list[tuple[str, str]]:
    return session(*SETTING_UP)


def quietest(run: Callable[[], list[tuple[str, str]]], runs: int) -> list[tuple[str, str]]:
    """Of several runs, the one that took the least time by its own figures."""

    def waited(shown: list[tuple[str, str]]) -> float:
        figures = re.findall(r"([\d.]+)(?:\x1b\[[\d;]*m)* (ms|s)\b", "".join(said for _, said in shown))
        return sum(float(number) * (1 if unit == "ms" else 1000) for number, unit in figures)

    return min((run() for _ in range(runs)), key=waited)
