"""From a path to a `WorkbenchConfig`.

Owns the reading of the file and the choice of reader: `msgspec` for the good case, `jsonc` when there are comments
or something is wrong and its line must be found. Refuses to know what the keys mean (`validate`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from mcp_workbench.config.model import WorkbenchConfig, modified_at
from mcp_workbench.config.problems import ConfigProblems, Problem, quote
from mcp_workbench.config.validate import foreign_part, validate

# Claude Code keeps its history beside `mcpServers` in files of several megabytes; beyond this it is some other file.
MAX_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 64 * 1024


def load(path: str, environ: Mapping[str, str]) -> WorkbenchConfig:
    """The configuration in the file at `path`, its variables taken from `environ`.

    Raises `ConfigProblems`, which tells everything that is wrong at once.
    """
    written_at = modified_at(path)
    return replace(parse(read(path), path, environ), modified_at=written_at)


def unresolved(config: WorkbenchConfig) -> ConfigProblems | None:
    """What the environment lacks for single servers, with the lines that need it; None where nothing is missing.

    Apart from `load`, which need not search a file of megabytes for lines before it can serve.
    """
    problems = config.unresolved
    if not problems:
        return None
    try:
        text = _decoded(read(config.path).removeprefix(b"\xef\xbb\xbf"), config.path)
    except ConfigProblems:
        # It was changed meanwhile: what is missing is known all the same.
        return ConfigProblems(config.path, problems)
    return ConfigProblems(config.path, _placed(problems, [], text))


def has_changed(config: WorkbenchConfig) -> bool:
    """Whether the file, or one with variables for a server, has been written to since this was read from it."""
    return (config.modified_at != 0 and modified_at(config.path) not in (0, config.modified_at)) or any(
        tuple(map(modified_at, server.env_files)) != server.env_file_times for _, server in config.servers()
    )


def parse(content: bytes, path: str, environ: Mapping[str, str]) -> WorkbenchConfig:
    """The configuration in `content`, which came from `path`."""
    # Notepad writes a byte order mark, which JSON does not allow and everybody ignores.
    content = content.removeprefix(b"\xef\xbb\xbf")
    syntax: list[Problem] = []
    try:
        document = msgspec.json.decode(content)
        # Of a key that stands twice `msgspec` keeps the last one in silence; the number of members tells.
        understood = _members_written(content) == _members_read(document)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        document, understood = None, False
    if not understood:
        document = _read_slowly(content, path, syntax)
    config, problems = validate(document, path, environ)
    if config is None or syntax:
        raise ConfigProblems(path, _placed(problems, syntax, _decoded(content, path)))
    return config


def read(path: str) -> bytes:
    """What is in the file. Raises `ConfigProblems` where it cannot be read or must not be used."""
    try:
        # Without waiting: a pipe without a writer would block for ever.
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unreadable(path, "is a pipe or a device, expected a file")
            # As ssh and sudo refuse such files. Group write is left alone: on many systems everybody has a group of
            # their own.
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                hint = "it decides which programs run as you: fix its permissions with `chmod o-w`"
                raise _unreadable(path, "can be written by every user of this machine", hint=hint)
            content = _read_whole(file)
    except FileNotFoundError:
        raise _unreadable(path, "does not exist", hint="name another one with `--config`") from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder, expected a file") from None
    except PermissionError:
        # Windows says "permission denied" for a folder.
        if os.path.isdir(path):
            raise _unreadable(path, "is a folder, expected a file") from None
        raise _unreadable(path, "cannot be read: permission denied", hint="check its permissions") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, f"cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise _unreadable(path, f"is larger than {MAX_BYTES // (1024 * 1024)} MiB, expected a configuration")
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise _unreadable(path, "is empty, expected an object with `toolboxes` or `mcpServers` in it")
    return content


def _read_whole(file: BinaryIO) -> bytes:
    # In pieces: `read(MAX_BYTES + 1)` takes that much memory before it reads, and the size that the system tells is 0
    # for files that are made up as they are read.
    pieces: list[bytes] = []
    length = 0
    while length <= MAX_BYTES and (piece := file.read(PIECE_BYTES)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _unreadable(path: str, found: str, *, hint: str | None = None) -> ConfigProblems:
    return ConfigProblems(path, [Problem(steps=None, found=found, hint=hint)])


def _decoded(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        hint = "save it as UTF-8"
        if content[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in content[:4]:
            hint = "it seems to be UTF-16; save it as UTF-8"
        found = f"found the byte {quote(f'0x{content[error.start]:02x}')}, which is not UTF-8"
        problem = Problem(steps=None, found=found, hint=hint, line=line, column=column)
        raise ConfigProblems(path, [problem]) from None


def _read_slowly(content: bytes, path: str, syntax: list[Problem]) -> object:
    """The document of a text with comments or mistakes; the mistakes are added to `syntax`."""
    from mcp_workbench.config.jsonc import Document, positions

    text = _decoded(content, path)
    document = Document(text)
    syntax += document.problems
    repeated = {steps: at for steps, at in document.repeated.items() if not foreign_part(document.value, steps)}
    if repeated:
        first = positions(text, repeated)
        for steps, (line, column) in repeated.items():
            syntax.append(
                Problem(
                    steps=steps,
                    found=f"the key {quote(str(steps[-1]))} appears more than once",
                    hint=f"the first one is on line {first[steps][0]}; keep one of them",
                    line=line,
                    column=column,
                )
            )
    if not document.complete:
        raise ConfigProblems(path, sorted(syntax, key=_place))
    return document.value


def _placed(problems: Sequence[Problem], syntax: list[Problem], text: str) -> list[Problem]:
    """All problems in the order of the file. Where the syntax was wrong, what follows from it is left out."""
    from mcp_workbench.config.jsonc import positions

    found = positions(text, [problem.steps for problem in problems if problem.steps is not None])
    taken = {(problem.line, problem.column) for problem in syntax}
    placed = list(syntax)
    for problem in problems:
        if problem.steps is not None:
            place = found[problem.steps]
            line, column = place[:2] if problem.at_key else place[2:]
            if (line, column) not in taken:
                placed.append(replace(problem, line=line, column=column))
    return sorted(placed, key=_place)


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0


def _members_written(content: bytes) -> int:
    """How many `key: value` pairs valid JSON text holds: its colons outside of strings.

    `msgspec` lets the last of two equal keys win silently; counting finds that out without a second parser. In valid
    JSON a backslash stands only inside strings, so once the escaped ones are gone every quote opens or closes one.
    """
    if b"\\" in content:
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(content.split(b'"')[::2]).count(b":")


def _members_read(document: object) -> int:
    count = 0
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            count += len(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return count
