"""Load a `WorkbenchConfig` from a path.

Owns reading the file and choosing the parser: `msgspec` normally, `jsonc` if there are comments or something is wrong
and its line must be found. Does not know what the keys mean (`validate`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from mcp_workbench.engine.config.model import WorkbenchConfig, modified_at
from mcp_workbench.engine.config.problems import MAX_CONFIG_NESTING, ConfigProblems, Problem, quote
from mcp_workbench.engine.config.validate import foreign_part, validate
from mcp_workbench.engine.nesting import is_nested_deeper
from mcp_workbench.engine.portable_os import NONBLOCK

# Claude Code keeps its history next to `mcpServers` in files of several megabytes; a larger file is something else.
MAX_CONFIG_BYTES = 16 * 1024 * 1024
CONFIG_READ_BYTES = 64 * 1024


def load(path: str, environ: Mapping[str, str]) -> WorkbenchConfig:
    """Load the configuration in the file at `path`, with variables from `environ`.

    Raises `ConfigProblems`, which reports everything that is wrong at once.
    """
    # Before reading, so that a write in between counts as a change.
    written_at = modified_at(path)
    return replace(parse(read(path), path, environ), modified_at=written_at)


def unresolved(config: WorkbenchConfig) -> ConfigProblems | None:
    """Return what the environment lacks for single servers, with the lines that need it; None if nothing is missing.

    Separate from `load`, which need not search a file of megabytes for lines before it can serve.
    """
    problems = config.unresolved
    if not problems:
        return None
    try:
        text = _decoded(read(config.path).removeprefix(b"\xef\xbb\xbf"), config.path)
    except ConfigProblems:
        # The file has changed in the meantime, but the problems are known.
        return ConfigProblems(config.path, problems)
    return ConfigProblems(config.path, _placed(problems, [], text))


def has_changed(config: WorkbenchConfig) -> bool:
    """Whether the file, or an `envFile` of a server, has been written to since this was read."""
    return (config.modified_at != 0 and modified_at(config.path) not in (0, config.modified_at)) or any(
        tuple(map(modified_at, server.env_files)) != server.env_file_times for _, server in config.servers()
    )


def parse(content: bytes, path: str, environ: Mapping[str, str]) -> WorkbenchConfig:
    """Parse the configuration in `content`, which came from `path`."""
    # Notepad writes a byte order mark, which JSON does not allow and all readers ignore.
    content = content.removeprefix(b"\xef\xbb\xbf")
    syntax: list[Problem] = []
    try:
        document = msgspec.json.decode(content)
        # If a key is repeated, `msgspec` silently keeps the last one; the number of members reveals it.
        understood = not is_nested_deeper(content, MAX_CONFIG_NESTING) and _members_written(content) == _members_read(
            document
        )
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        document, understood = None, False
    if not understood:
        document = _read_slowly(content, path, syntax)
    config, problems = validate(document, path, environ)
    if config is None or syntax:
        raise ConfigProblems(path, _placed(problems, syntax, _decoded(content, path)))
    return config


def read(path: str) -> bytes:
    """Read the file. Raises `ConfigProblems` if it cannot be read or must not be used."""
    try:
        # Without waiting: a pipe without a writer would block forever.
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unreadable(path, "is a pipe or a device, expected a file")
            # As ssh and sudo refuse such files. Group write is allowed, because on many systems every user has their
            # own group.
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                hint = "it decides which programs run as you: fix its permissions with `chmod o-w`"
                raise _unreadable(path, "can be written by every user of this machine", hint=hint)
            content = _read_whole(file)
    except FileNotFoundError:
        raise _unreadable(path, "does not exist", hint="name another one with `--config`") from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder, expected a file") from None
    except PermissionError:
        # Windows reports "permission denied" for a folder.
        if os.path.isdir(path):
            raise _unreadable(path, "is a folder, expected a file") from None
        raise _unreadable(path, "cannot be read: permission denied", hint="check its permissions") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, f"cannot be read: {reason}") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise _unreadable(path, f"is larger than {MAX_CONFIG_BYTES // (1024 * 1024)} MiB, expected a configuration")
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise _unreadable(path, "is empty, expected an object with `toolboxes` or `mcpServers` in it")
    return content


def _read_whole(file: BinaryIO) -> bytes:
    # In pieces: `read(MAX_BYTES + 1)` allocates that much memory before it reads, and the system reports a size of 0
    # for files that are generated as they are read.
    pieces: list[bytes] = []
    length = 0
    while length <= MAX_CONFIG_BYTES and (piece := file.read(CONFIG_READ_BYTES)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | NONBLOCK)


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
    """Return the document of a text with comments or mistakes; the mistakes are added to `syntax`."""
    from mcp_workbench.engine.config.jsonc import Document, positions

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
    """Return all problems in the order of the file. Problems that follow from a syntax error are left out."""
    from mcp_workbench.engine.config.jsonc import positions

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
    """Count the `key: value` pairs of valid JSON text: its colons outside of strings.

    `msgspec` silently lets the last of two equal keys win; counting reveals that without a second parser. In valid JSON
    a backslash occurs only inside strings, so once the escapes are removed every quote opens or closes a string.
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
