"""Draw docs/images/demo.svg: what `mcp-workbench demo` shows on a terminal, from a real run.

`.venv/bin/python scripts/record_demo.py [FILE]`. The story is drawn up to its figures; the settings for clients that
follow are in docs/start/clients.md as text. The picture refers to nothing outside of itself: no fonts are fetched.
"""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 84
LINES = 60
END_OF_STORY = "Use it with your own servers"
_TEXT = re.compile(
    r'(?P<start><text class="[^"]*") x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="(?P<length>[\d.]+)" '
    r"(?P<end>clip-path=[^>]*)>(?P<text>[^<]*)</text>"
)
COMMAND = [sys.executable, "-m", "mcp_workbench", "demo"]


def record(command: list[str], width: int) -> str:
    """What a command shows on a terminal of this width, escape sequences included."""
    descriptor, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment.update(TERM="xterm-256color", COLUMNS=str(width))
    # Not `pty.fork`, which is unsafe where there are threads, as in tests.
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            # How Linux says that the other side of a terminal is gone.
            break
        if not piece:
            break
        shown += piece
    os.close(descriptor)
    if status := process.wait():
        raise SystemExit(f"{' '.join(command)} ended with status {status}:\n{shown.decode(errors='replace')}")
    return shown.decode().replace("\r\n", "\n")


def draw(shown: str, title: str) -> str:
    """The picture of a terminal that shows this."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ ", "bold green") + Text(f"{title}\n", "bold"))
    console.print(Text.from_ansi(shown))
    picture = console.export_svg(title=title, theme=MONOKAI)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = _TEXT.sub(_placed, picture)
    return picture.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace")


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


def picture_of_the_demo() -> str:
    """What the demo shows now."""
    story = record(COMMAND, WIDTH).partition(END_OF_STORY)[0]
    # The heading's own escape sequence precedes its words.
    story = re.sub(r"\s*(\x1b\[[\d;]*m)*$", "\x1b[0m\n", story)
    return draw(story, "mcp-workbench demo")


def main() -> None:
    """Record and draw."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "demo.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(picture_of_the_demo(), encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
