"""Draw docs/images/demo.svg: what `mcp-workbench demo` shows on a terminal, from a real run.

`.venv/bin/python scripts/record_demo.py [FILE]`. The story is drawn up to its figures; the settings for clients that
follow are in the README as text. The picture refers to nothing outside of itself: no fonts are fetched.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
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
COMMAND = [sys.executable, "-m", "mcp_workbench", "demo"]


def record(command: list[str], width: int) -> str:
    """What a command shows on a terminal of this width, escape sequences included."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(width))
        os.environ.pop("NO_COLOR", None)
        os.execv(command[0], command)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, width, 0, 0))
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
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}:\n{shown.decode(errors='replace')}")
    return shown.decode().replace("\r\n", "\n")


def draw(shown: str, title: str) -> str:
    """The picture of a terminal that shows this."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ ", "bold green") + Text(f"{title}\n", "bold"))
    console.print(Text.from_ansi(shown))
    picture = console.export_svg(title=title, theme=MONOKAI)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    return picture.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace")


def main() -> None:
    """Record and draw."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "demo.svg"
    story = record(COMMAND, WIDTH).partition(END_OF_STORY)[0]
    # The heading's own escape sequence precedes its words.
    story = re.sub(r"\s*(\x1b\[[\d;]*m)*$", "\x1b[0m\n", story)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(draw(story, "mcp-workbench demo"), encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
