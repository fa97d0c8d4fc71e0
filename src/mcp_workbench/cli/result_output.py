"""Output of a server's result: text as text, structured content as a table or JSON, links as links, images inline if
the terminal supports them and else as files.

Owns where each part goes. stdout is data; on a terminal it is formatted for people.
"""

from __future__ import annotations

import base64
import contextlib
import json
import mimetypes
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.result_content import Binary, ResultContent, as_json
from mcp_workbench.cli.screen import Screen, stdout
from mcp_workbench.engine.portable_os import is_own

# Tables with more columns than this are unreadable.
MAX_TABLE_COLUMNS: Final = 8
# The hyperlink sequence of terminals. Those without support show the text alone, as the standard for control sequences
# requires.
_OSC_8: Final = "\x1b]8;;{}\x1b\\{}\x1b]8;;\x1b\\"
# Types that the standard library does not know, or knows under another name.
_FILE_SUFFIXES: Final = {"audio/wav": ".wav", "image/webp": ".webp"}
# Other addresses are the server's own, and no terminal can open them.
_OPENED_BY_TERMINALS: Final = ("https://", "http://", "file://")
Protocol = Literal["kitty", "iterm2"]
# The kitty protocol transmits chunks of this size.
_KITTY_CHUNK: Final = 4096
# Larger images are slow, and not what people look at in a terminal.
MAX_IMAGE_BYTES: Final = 8 * 1024 * 1024
# Seconds, a day: what a terminal cannot show is opened soon, or saved with `--output`.
IMAGES_KEPT: Final = 86400.0
_RESULT_FOLDER_PREFIX: Final = "mcp-workbench-call-"
# VS Code's terminal can too, but only with a setting that the environment does not reveal.
_ITERM2_PROGRAMS: Final = ("iTerm.app", "WezTerm", "mintty")


def show(reading: ResultContent, target: Path | None) -> None:
    """Print everything in a result; with `target`, save what is saved there."""
    screen = stdout()
    if target is not None and not reading.binaries:
        _write(target, reading.as_text().encode(errors="backslashreplace"), "text")
    else:
        _show_text(screen, reading)
    screen.flush()
    if target is None:
        _show_binaries(screen, reading.binaries)
    else:
        save_all(target, reading.binaries)
    for note in reading.remarks:
        remark("note", note)


def _show_text(screen: Screen, reading: ResultContent) -> None:
    if reading.structured is not None:
        _show_structured(screen, reading)
    else:
        for text in reading.texts:
            screen.text(text)
    for uri, title in reading.links:
        if screen.is_terminal and title:
            # In a pipe only the address, which is what the next program can use.
            screen.line((title, "strong"), "  ", wrap=False)
        if screen.is_terminal and uri.startswith(_OPENED_BY_TERMINALS) and uri.isprintable():
            sys.stdout.write(_OSC_8.format(uri, uri) + "\n")
        else:
            screen.text(uri)


def _show_structured(screen: Screen, reading: ResultContent) -> None:
    rows = table_of(reading.structured) if screen.is_terminal else None
    if rows is not None and screen.fits(*rows):
        screen.table(*rows)
    elif reading.texts and not screen.is_terminal:
        # The server's own serialisation of the same content.
        screen.text("\n".join(reading.texts))
    else:
        screen.text(as_json(reading.structured))


def table_of(value: object) -> tuple[list[str], list[list[str]]] | None:
    """Return structured content as header and rows: a list of similar objects, or an object of plain values; else
    None."""
    while isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), list):
        # Servers wrap values that are not objects like this: `{"result": [...]}`.
        (value,) = value.values()
    if isinstance(value, dict):
        return (["", ""], [[name, _cell(each)] for name, each in value.items()]) if _is_plain(value) else None
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, dict) and _is_plain(each) for each in value)
    ):
        return None
    rows: list[dict[str, Any]] = value
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not 0 < len(columns) <= MAX_TABLE_COLUMNS:
        return None
    return columns, [[_cell(row.get(name)) for name in columns] for row in rows]


def _is_plain(row: dict[str, object]) -> bool:
    return bool(row) and all(not isinstance(each, dict | list) and "\n" not in str(each) for each in row.values())


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_binaries(screen: Screen, binaries: Sequence[Binary]) -> None:
    if not binaries:
        return
    folder: Path | None = None
    for number, binary in enumerate(binaries, 1):
        inline = shown(binary.data, binary.type, os.environ) if screen.is_terminal else None
        if inline is not None:
            sys.stdout.buffer.write(inline)
            sys.stdout.flush()
            continue
        folder = folder or _folder_for_looking()
        # It may be an address or contain a slash: a server must not choose a path.
        kind = binary.kind if binary.kind.isalnum() else "data"
        _write(folder / f"{kind}-{number}{_suffix(binary.type)}", binary.data, binary)


def _folder_for_looking() -> Path:
    """A new private folder. Those of earlier calls are removed once nobody looks at them any more."""
    for each in Path(tempfile.gettempdir()).glob(f"{_RESULT_FOLDER_PREFIX}*"):
        # What a link leads to is not ours: nothing is removed then.
        with contextlib.suppress(OSError):
            found = each.lstat()
            if is_own(found) and time.time() - found.st_mtime > IMAGES_KEPT:
                shutil.rmtree(each)
    return Path(tempfile.mkdtemp(prefix=_RESULT_FOLDER_PREFIX))


def _suffix(type: str) -> str:
    return _FILE_SUFFIXES.get(type) or mimetypes.guess_extension(type) or ".bin"


def save_all(target: Path, binaries: Sequence[Binary]) -> None:
    """Save the first under the given name and further ones next to it: chart.png, chart-2.wav."""
    for number, binary in enumerate(binaries, 1):
        # Only for further ones: the first has the name that the user gave it.
        suffix = _FILE_SUFFIXES.get(binary.type) or mimetypes.guess_extension(binary.type) or target.suffix
        path = target if number == 1 else target.with_name(f"{target.stem}-{number}{suffix}")
        _write(path, binary.data, binary)


def _write(path: Path, data: bytes, what: Binary | str) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror}") from None
    remark("note", f"saved {what} as {path}")


# Images for terminals that can show them, according to the environment.
# Sixel is not supported: it needs pixels, and nothing here decodes images. Terminals with nothing else (foot, xterm)
# would have to be queried on the line that the user types on, and waited for. Conservative: only what is known to
# work is used, because a terminal without support shows pages of letters. Inside tmux and screen nothing is shown:
# they pass such sequences on only if configured to.
def protocol_of(environ: Mapping[str, str]) -> Protocol | None:
    """Return the image protocol of this terminal; None if it has none or it is unknown."""
    if environ.get("TMUX") or environ.get("STY") or environ.get("TERM", "").startswith(("screen", "tmux", "dumb")):
        return None
    # Over ssh the terminal's variables are not passed on, but `TERM` is.
    if environ.get("KITTY_WINDOW_ID") or environ.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm2" if environ.get("TERM_PROGRAM") in _ITERM2_PROGRAMS else None


def shown(data: bytes, type: str, environ: Mapping[str, str]) -> bytes | None:
    """Return what to write to the terminal for an image; None if it cannot be shown."""
    protocol = protocol_of(environ)
    if protocol is None or not type.startswith("image/") or len(data) > MAX_IMAGE_BYTES:
        return None
    encoded = base64.b64encode(data)
    if protocol == "iterm2":
        # Without `inline=1`, the terminal offers the image as a download.
        return b"\x1b]1337;File=inline=1;size=%d:%b\x07\n" % (len(data), encoded)
    if type != "image/png":
        # The only format that the kitty protocol decodes itself.
        return None
    pieces = [encoded[start : start + _KITTY_CHUNK] for start in range(0, len(encoded), _KITTY_CHUNK)]
    written = []
    for number, piece in enumerate(pieces):
        more = int(number < len(pieces) - 1)
        # `a=T` transmits and shows, `f=100` is PNG, `m=1` means that more chunks follow; only the first has the other
        # keys.
        control = b"a=T,f=100,m=%d" % more if number == 0 else b"m=%d" % more
        written.append(b"\x1b_G%b;%b\x1b\\" % (control, piece))
    return b"".join(written) + b"\n"
